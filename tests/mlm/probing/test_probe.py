"""Probes of a model: windows, logits at the mask, choice, scores, and models that cannot be probed."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig

from danseo.errors import DanseoError
from danseo.mlm.probing.items import ProbeItem, read_bundled_items
from danseo.mlm.probing.probe import GapQuery, ProbeOptions, fill_greedily, make_choice, predict_gaps, probe_model
from danseo.mlm.probing.windows import WindowBuilder, WordTokenizer
from danseo.models.mlm.masked_model import MaskedModel
from danseo.models.mlm.positions import choose_length
from danseo.models.new_encoder import EncoderSize, make_encoder

from .tiny import FAMILIES, FakeAnalyser, save_pair, tiny_pair

ITEMS = [item for kind in ("repeated", "lambada") for item in read_bundled_items() if item.kind == kind][::12]


def item_of(text: str, target: str, antecedent: tuple[int, int] | None = None) -> ProbeItem:
    start = text.rindex(target)
    span = (start, start + len(target))
    return ProbeItem("i", "s", "d", "repeated", text, span, target, antecedent, None, "", "", candidates=(target,))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_at_the_mask_equal_those_of_the_full_model(family):
    """Rows of a padded batch equal the full logits of each text alone."""
    model, tokenizer = tiny_pair(family)
    windows = list(WindowBuilder(tokenizer, 128).build(ITEMS[:5]))
    masked = MaskedModel(model, tokenizer)
    for part, rows in masked.compute_gap_logits([w.ids for w in windows], [w.position for w in windows]):
        for k, row in zip(part, rows, strict=True):
            with torch.inference_mode():
                full = model(input_ids=torch.tensor([windows[k].ids])).logits[0, windows[k].position]
            torch.testing.assert_close(row, full, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_int8_gives_similar_logits(family, tmp_path):
    save_pair(tmp_path, tiny_pair(family))
    exact, rough = (MaskedModel.load(str(tmp_path), "cpu", precision) for precision in ("fp32", "int8"))
    windows = list(WindowBuilder(exact.tokenizer, 128).build(ITEMS[:5]))
    inputs = [w.ids for w in windows], [w.position for w in windows]
    ((_, one),), ((_, other),) = (list(masked.compute_gap_logits(*inputs)) for masked in (exact, rough))
    assert not torch.equal(one, other)
    assert float((one - other).abs().max()) < 0.1 * float(one.std())


def test_windows_are_centred_and_full(pair):
    tokenizer = pair[1]
    text = " ".join(["정부는 시장을 열었다."] * 60)
    middle = item_of(text, "정부", (0, 2))
    middle = replace(middle, span=(text.index("정부", 400), text.index("정부", 400) + 2))
    (window,) = WindowBuilder(tokenizer, 32).build([middle])
    assert len(window.ids) == 32
    assert window.ids[window.position] == tokenizer.mask_token_id
    assert abs(window.position - 16) <= 1
    assert not window.antecedent_in_window
    assert window.distance > 64
    (early,) = WindowBuilder(tokenizer, 32).build([item_of("정부는 정부" + "는 시장을 열었다." * 20, "정부", (0, 2))])
    assert len(early.ids) == 32
    assert early.antecedent_in_window
    assert early.distance <= 2


def test_spelling_decides_how_the_particle_is_tokenized(pair):
    tokenizer = pair[1]
    item = item_of("장인은 흙을 빚는다. 장인은 쉰다.", "장인")
    (natural,), (separate,) = (
        WindowBuilder(tokenizer, 64, spelling).build([item]) for spelling in ("natural", "separate")
    )
    after = [tokenizer.convert_ids_to_tokens(window.ids[window.position + 1]) for window in (natural, separate)]
    assert after == ["##은", "은"]
    assert natural.ids[: natural.position] == separate.ids[: separate.position]
    written = tokenizer(item.text[:12] + tokenizer.mask_token + item.right)["input_ids"]
    assert list(separate.ids) == written, "the mask written into the text, as it always was"
    assert WindowBuilder(tokenizer, 64).spelling == ProbeOptions().spelling == "natural"


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_natural_windows_are_the_text_without_the_noun(family):
    """With its own tokens in the gap a window is the text as a tokenizer cuts it, but where one token holds more."""
    tokenizer = tiny_pair(family, vocabulary=900)[1]
    windows, tokens = WindowBuilder(tokenizer, 4096), WordTokenizer(tokenizer)
    items = read_bundled_items()
    made = list(windows.build(items))
    assert len(made) == len(items)
    differing = []
    for item, window in zip(items, made, strict=True):
        assert window.ids.count(tokenizer.mask_token_id) == 1
        whole = window.fill(tokens.tokenize_in_gap(item.target, item))[0]
        cut = tuple(tokenizer(item.text)["input_ids"])
        differing.append(whole != cut)
        assert window.respelled or whole == cut
        text = tokenizer.decode(whole, skip_special_tokens=True).replace(" ", "")
        if tokenizer.unk_token_id not in whole:
            assert text == item.text.replace(" ", "")
    respelled = [window.respelled for window in made]
    assert 0 < sum(respelled) < len(items)
    assert sum(differing) <= sum(respelled)


def test_word_in_a_gap_is_tokenized_by_its_context():
    """SentencePiece marks blanks, WordPiece what goes on: behind a bracket the one goes on and the other begins."""
    for family, forms in (("xlm-roberta", ("▁", "", "")), ("bert", ("", "", "##"))):
        tokenizer = tiny_pair(family)[1]
        for left, form in zip(("흙을 ", "흙을 (", "흙을"), forms, strict=True):
            item = item_of(f"{left}장인은", "장인")
            first = tokenizer.convert_ids_to_tokens(WordTokenizer(tokenizer).tokenize_in_gap("장인", item)[0])
            assert first.removesuffix("장인").removesuffix("장") == form, (family, left)


def test_respelled_items_are_counted(pair):
    item = item_of("장인은 흙을 빚는다. 장인은 쉰다.", "장인")
    assert "장인은" in pair[1].get_vocab(), "one token swallows the particle"
    results = {
        spelling: probe_model(MaskedModel(*pair), [item], ProbeOptions(quick=True, spelling=spelling), FakeAnalyser())
        for spelling in ("natural", "separate")
    }
    assert [result.probes["repeated"]["respelled"] for result in results.values()] == [1.0, 0.0]
    assert [result.as_dict()["spelling"] for result in results.values()] == ["natural", "separate"]


def test_lengths_follow_the_architecture(golden, pair):
    want = golden["roberta_positions"]
    roberta = AutoConfig.for_model("roberta", max_position_embeddings=514, pad_token_id=want["padding_idx"])
    deberta = AutoConfig.for_model("deberta-v2", max_position_embeddings=512, position_biased_input=False)
    unlimited = type("Tokenizer", (), {"model_max_length": 10**30})()
    assert choose_length(roberta, unlimited) == want["usable_length_for_max_position_embeddings_514"]
    roberta.max_position_embeddings = want["rows_needed_for_usable_2048"]
    assert choose_length(roberta, unlimited) == 2048
    assert choose_length(AutoConfig.for_model("bert"), unlimited) == 512
    assert choose_length(deberta, unlimited) == 512
    assert choose_length(deberta, unlimited, 2048) == 2048
    assert choose_length(AutoConfig.for_model("bert"), pair[1]) == 128
    with pytest.raises(DanseoError, match="more than the 512"):
        choose_length(AutoConfig.for_model("bert"), unlimited, 1024)
    with pytest.raises(DanseoError, match="give --seq-len"):
        choose_length(AutoConfig.for_model("t5"), unlimited)


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_pseudo_likelihood_is_the_sum_over_tokens(family):
    """PLL-w2r of a word of several tokens, computed by hand: each token with itself and those to its right masked."""
    model, tokenizer = tiny_pair(family)
    masked, tokens = MaskedModel(model, tokenizer), WordTokenizer(tokenizer)
    item = replace(ITEMS[0], candidates=("도서관장실", ITEMS[0].target))
    (window,) = WindowBuilder(tokenizer, 128).build([item])
    choice = make_choice(item, window, tokens)
    scores = choice.compute_scores(predict_gaps(masked, choice.make_queries(tokenizer.mask_token_id)))
    word = tokens.tokenize_in_gap("도서관장실", item)
    assert len(word) > 1
    total = 0.0
    for k, token in enumerate(word):
        ids = [*window.ids[: window.position], *word[:k], *[tokenizer.mask_token_id] * (len(word) - k)]
        ids += window.ids[window.position + 1 :]
        with torch.inference_mode():
            total += model(input_ids=torch.tensor([ids])).logits[0, window.position + k].log_softmax(-1)[token].item()
    assert scores["도서관장실"] == pytest.approx(total, abs=1e-3)


def test_perfect_model_has_full_scores(pair, monkeypatch):
    """With a head that always says the target's tokens every score is 1, the control included."""
    tokenizer = pair[1]
    items = [item for item in read_bundled_items() if item.target == ITEMS[0].target and item.kind == "repeated"]
    tokens = WordTokenizer(tokenizer).tokenize_in_gap(items[0].target, items[0])
    masked = MaskedModel(*pair)

    def predict_target(inputs, positions, on_done=lambda n: None):
        rows = torch.zeros(len(inputs), len(tokenizer))
        for row, (ids, position) in enumerate(zip(inputs, positions, strict=True)):
            done = 0
            while done < len(tokens) - 1 and ids[position - done - 1 : position] == tuple(tokens[: done + 1]):
                done += 1
            rows[row, tokens[done]] = 50.0
        yield list(range(len(inputs))), rows

    monkeypatch.setattr(masked, "compute_gap_logits", predict_target)
    result = probe_model(masked, items, analyser=FakeAnalyser())
    if len(tokens) == 1:
        assert result.value("repeated", "strict@1") == 1
    assert result.value("repeated", "choice@1") == result.value("repeated", "exact@1") == 1
    assert result.probes["repeated"]["choice_mrr"] == 1


def test_result_has_all_scores(pair):
    seen = []
    result = probe_model(
        MaskedModel(*pair), ITEMS, None, FakeAnalyser(), lambda done, total: seen.append((done, total))
    )
    document = result.as_dict()
    assert set(result.headline()) == {"strict@1", "strict@5", "choice@1", "composite"}
    assert seen[-1][0] == seen[-1][1]
    assert document["seq_len"] == 128
    for kind in ("repeated", "lambada"):
        probe = document["probes"][kind]
        assert (
            probe["n"] == len([item for item in ITEMS if item.kind == kind]) == len(document["hits"][kind]["strict@1"])
        )
        assert set(probe["baselines"]) == {"nearest", "frequent", "unigram"}
        for group in ("scores", "unfiltered", "covered_scores", "without_antecedent"):
            assert {"strict@1", "lenient@5", "lenient_min2@1", "token@5"} <= set(probe[group])
        assert probe["scores"]["strict@1"]["value"] <= probe["scores"]["lenient@1"]["value"]
        assert sum(row["n"] for row in probe["by_distance"]) == probe["n"]


def test_results_do_not_depend_on_the_batch(pair):
    one, other = MaskedModel(*pair), MaskedModel(*pair, batch_tokens=200)
    results = [probe_model(masked, ITEMS, ProbeOptions(), FakeAnalyser()) for masked in (one, other)]
    assert results[0].hits == results[1].hits
    short = probe_model(one, ITEMS, ProbeOptions(seq_len=32, quick=True), FakeAnalyser())
    assert short.items == results[0].items
    assert short.probes["repeated"]["n"] == results[0].probes["repeated"]["n"]
    assert "choice@1" not in short.probes["repeated"]
    assert short.headline()["choice@1"] is None


def test_greedy_filling_is_left_to_right(pair):
    masked = MaskedModel(*pair)
    (window,) = WindowBuilder(pair[1], 128).build(ITEMS[:1])
    (fill,) = fill_greedily(masked, [window], [2])
    ids, position = window.fill([fill[0], pair[1].mask_token_id])
    assert predict_gaps(masked, [GapQuery(ids, position + 1, top=1)])[0].top == [fill[1]]


def test_models_that_cannot_be_probed_give_one_line(tmp_path, pair):
    make_encoder(tmp_path / "headless", ["정부는 정책을 냈다."] * 5, size=EncoderSize(1, 8, 1, 100, 32))
    folder = save_pair(tmp_path / "pickled", pair)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    for name, word in (("headless", "head"), ("pickled", "safetensors")):
        with pytest.raises(DanseoError, match=word):
            MaskedModel.load(str(tmp_path / name), "cpu", "fp32")
    with pytest.raises(DanseoError, match="no probe items"):
        probe_model(MaskedModel(*pair), [])


def test_a_batch_that_does_not_fit_is_halved_and_logged(monkeypatch):
    masked, notes, sizes = MaskedModel(*tiny_pair()), [], []
    masked.on_note = notes.append
    forward = masked._forward

    def run_out_of_memory(inputs, positions):
        sizes.append(len(inputs))
        if len(inputs) > 3:
            raise torch.OutOfMemoryError("no memory left")
        return forward(inputs, positions)

    expected = probe_model(masked, ITEMS, ProbeOptions(quick=True), FakeAnalyser())
    monkeypatch.setattr(masked, "_forward", run_out_of_memory)
    found = probe_model(masked, ITEMS, ProbeOptions(quick=True), FakeAnalyser())
    assert found.hits == expected.hits
    assert masked.batch_size <= 3
    assert notes[-1].endswith(f"the batch size is now {masked.batch_size}")
    assert sizes.count(max(sizes)) == 1  # never tried again


def test_one_window_that_does_not_fit_is_an_error(monkeypatch):
    masked = MaskedModel(*tiny_pair(), batch_size=1)

    def run_out_of_memory(inputs, positions):
        assert len(inputs) == 1
        raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(masked, "_forward", run_out_of_memory)
    with pytest.raises(DanseoError, match="lower --seq-len"):
        probe_model(masked, ITEMS, ProbeOptions(quick=True), FakeAnalyser())
