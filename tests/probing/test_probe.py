"""Models in front of gaps: windows, heads at the mask only, choice, scores, and models that cannot be probed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from danseo.errors import DanseoError
from danseo.models.masked.lengths import readable_length
from danseo.models.masked.load import MaskedModel
from danseo.models.scratch import Size, make_encoder
from danseo.probing.asking import Question, ask
from danseo.probing.choice import choice_of, greedy_fills, rank
from danseo.probing.filter import noun_mask, piece_words
from danseo.probing.items import ProbeItem, shipped_items
from danseo.probing.pieces import WordPieces
from danseo.probing.probe import ProbeOptions, probe_model
from danseo.probing.windows import Windows, bucket_of, clip, without_mentions

from .tiny import FAMILIES, FakeAnalyser, save_pair, tiny_pair

ITEMS = [item for kind in ("repeated", "lambada") for item in shipped_items() if item.kind == kind][::12]


def item_of(text: str, target: str, antecedent: tuple[int, int] | None = None) -> ProbeItem:
    start = text.rindex(target)
    span = (start, start + len(target))
    return ProbeItem("i", "s", "d", "repeated", text, span, target, antecedent, None, "", "", candidates=(target,))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_at_the_mask_is_the_whole_head(family):
    """Rows of a padded batch equal the full logits of each text alone."""
    model, tokenizer = tiny_pair(family)
    windows = list(Windows(tokenizer, 128).of(ITEMS[:5]))
    masked = MaskedModel(model, tokenizer)
    for part, rows in masked.gap_logits([w.ids for w in windows], [w.position for w in windows]):
        for k, row in zip(part, rows, strict=True):
            with torch.inference_mode():
                full = model(input_ids=torch.tensor([windows[k].ids])).logits[0, windows[k].position]
            torch.testing.assert_close(row, full, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_body_in_bytes_says_about_the_same(family, tmp_path):
    save_pair(tmp_path, tiny_pair(family))
    exact, rough = (MaskedModel.load(str(tmp_path), "cpu", precision) for precision in ("fp32", "int8"))
    windows = list(Windows(exact.tokenizer, 128).of(ITEMS[:5]))
    inputs = [w.ids for w in windows], [w.position for w in windows]
    ((_, one),), ((_, other),) = (list(masked.gap_logits(*inputs)) for masked in (exact, rough))
    assert not torch.equal(one, other)
    assert float((one - other).abs().max()) < 0.1 * float(one.std())


def test_windows_are_centred_and_as_long_as_the_model_reads(pair):
    tokenizer = pair[1]
    text = " ".join(["정부는 시장을 열었다."] * 60)
    middle = item_of(text, "정부", (0, 2))
    middle = replace(middle, span=(text.index("정부", 400), text.index("정부", 400) + 2))
    (window,) = Windows(tokenizer, 32).of([middle])
    assert len(window.ids) == 32
    assert window.ids[window.position] == tokenizer.mask_token_id
    assert abs(window.position - 16) <= 1
    assert not window.antecedent_in_window
    assert window.distance > 64
    (early,) = Windows(tokenizer, 32).of([item_of("정부는 정부" + "는 시장을 열었다." * 20, "정부", (0, 2))])
    assert len(early.ids) == 32
    assert early.antecedent_in_window
    assert early.distance <= 2


def test_what_one_side_leaves_goes_to_the_other():
    assert clip(100, 100, 31) == (15, 15)
    assert clip(3, 100, 31) == (3, 27)
    assert clip(100, 3, 31) == (27, 3)
    assert clip(2, 2, 31) == (2, 2)


def test_a_literal_mask_in_the_text_is_only_text(pair):
    item = item_of("[MASK] 표시는 [SEP] 표시다. 정부는 정부다.", "정부")
    (window,) = Windows(pair[1], 64).of([item])
    assert window.ids.count(pair[1].mask_token_id) == 1
    assert window.ids.count(pair[1].sep_token_id) == 1


def test_filling_keeps_the_length(pair):
    (window,) = Windows(pair[1], 24).of([item_of("시장은 " * 40 + "정부" + "는 시장" * 40, "정부")])
    ids, position = window.filled([7, 8, 9])
    assert len(ids) == 24
    assert ids[position : position + 3] == (7, 8, 9)
    assert ids[0] == pair[1].cls_token_id
    assert ids[-1] == pair[1].sep_token_id


def test_the_particle_stays_inside_its_word_unless_the_old_spelling_is_named(pair):
    tokenizer = pair[1]
    item = item_of("장인은 흙을 빚는다. 장인은 쉰다.", "장인")
    (natural,), (separate,) = (Windows(tokenizer, 64, spelling).of([item]) for spelling in ("natural", "separate"))
    after = [tokenizer.convert_ids_to_tokens(window.ids[window.position + 1]) for window in (natural, separate)]
    assert after == ["##은", "은"]
    assert natural.ids[: natural.position] == separate.ids[: separate.position]
    written = tokenizer(item.text[:12] + tokenizer.mask_token + item.right)["input_ids"]
    assert list(separate.ids) == written, "the mask written into the text, as it always was"
    assert Windows(tokenizer, 64).spelling == ProbeOptions().spelling == "natural"


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_natural_windows_are_the_text_with_pieces_of_the_noun_gone(family):
    """With its own pieces in the gap a window is the text as a tokenizer cuts it, but where one piece holds more."""
    tokenizer = tiny_pair(family, vocabulary=900)[1]
    windows, pieces = Windows(tokenizer, 4096), WordPieces(tokenizer)
    items = shipped_items()
    made = list(windows.of(items))
    assert len(made) == len(items)
    differing = []
    for item, window in zip(items, made, strict=True):
        assert window.ids.count(tokenizer.mask_token_id) == 1
        whole = window.filled(pieces.in_gap(item.target, item))[0]
        cut = tuple(tokenizer(item.text)["input_ids"])
        differing.append(whole != cut)
        assert window.respelled or whole == cut
        text = tokenizer.decode(whole, skip_special_tokens=True).replace(" ", "")
        if tokenizer.unk_token_id not in whole:
            assert text == item.text.replace(" ", "")
    respelled = [window.respelled for window in made]
    assert 0 < sum(respelled) < len(items)
    assert sum(differing) <= sum(respelled)


def test_a_word_in_a_gap_has_the_form_of_its_place():
    """SentencePiece marks blanks, WordPiece what goes on: behind a bracket the one goes on and the other begins."""
    for family, forms in (("xlm-roberta", ("▁", "", "")), ("bert", ("", "", "##"))):
        tokenizer = tiny_pair(family)[1]
        for left, form in zip(("흙을 ", "흙을 (", "흙을"), forms, strict=True):
            item = item_of(f"{left}장인은", "장인")
            first = tokenizer.convert_ids_to_tokens(WordPieces(tokenizer).in_gap("장인", item)[0])
            assert first.removesuffix("장인").removesuffix("장") == form, (family, left)


def test_respelled_items_are_counted(pair):
    item = item_of("장인은 흙을 빚는다. 장인은 쉰다.", "장인")
    assert "장인은" in pair[1].get_vocab(), "one piece swallows the particle"
    results = {
        spelling: probe_model(MaskedModel(*pair), [item], ProbeOptions(quick=True, spelling=spelling), FakeAnalyser())
        for spelling in ("natural", "separate")
    }
    assert [result.probes["repeated"]["respelled"] for result in results.values()] == [1.0, 0.0]
    assert [result.as_dict()["spelling"] for result in results.values()] == ["natural", "separate"]


def test_distances_fall_into_ranges():
    assert [bucket_of(d) for d in (0, 64, 300, 512, 5000, None)] == [
        "<64",
        "64-256",
        "256-512",
        "512-1k",
        ">1k",
        "none",
    ]


def test_the_control_has_nothing_to_copy():
    item = ITEMS[0]
    control = without_mentions(item)
    assert control.text.count(item.target) == 1
    assert control.text[slice(*control.span)] == item.target


def test_lengths_follow_the_architecture(golden, pair):
    want = golden["roberta_positions"]
    roberta = AutoConfig.for_model("roberta", max_position_embeddings=514, pad_token_id=want["padding_idx"])
    deberta = AutoConfig.for_model("deberta-v2", max_position_embeddings=512, position_biased_input=False)
    unlimited = type("Tokenizer", (), {"model_max_length": 10**30})()
    assert readable_length(roberta, unlimited) == want["usable_length_for_max_position_embeddings_514"]
    roberta.max_position_embeddings = want["rows_needed_for_usable_2048"]
    assert readable_length(roberta, unlimited) == 2048
    assert readable_length(AutoConfig.for_model("bert"), unlimited) == 512
    assert readable_length(deberta, unlimited) == 512
    assert readable_length(deberta, unlimited, 2048) == 2048
    assert readable_length(AutoConfig.for_model("bert"), pair[1]) == 128
    with pytest.raises(DanseoError, match="more than the 512"):
        readable_length(AutoConfig.for_model("bert"), unlimited, 1024)
    with pytest.raises(DanseoError, match="give --seq-len"):
        readable_length(AutoConfig.for_model("t5"), unlimited)


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_pseudo_likelihood_is_the_sum_over_pieces(family):
    """PLL-w2r of a word of several pieces, computed by hand: each piece with itself and those to its right masked."""
    model, tokenizer = tiny_pair(family)
    masked, pieces = MaskedModel(model, tokenizer), WordPieces(tokenizer)
    item = replace(ITEMS[0], candidates=("도서관장실", ITEMS[0].target))
    (window,) = Windows(tokenizer, 128).of([item])
    choice = choice_of(item, window, pieces)
    scores = choice.scores(ask(masked, choice.questions(tokenizer.mask_token_id)))
    word = pieces.in_gap("도서관장실", item)
    assert len(word) > 1
    total = 0.0
    for k, piece in enumerate(word):
        ids = [*window.ids[: window.position], *word[:k], *[tokenizer.mask_token_id] * (len(word) - k)]
        ids += window.ids[window.position + 1 :]
        with torch.inference_mode():
            total += model(input_ids=torch.tensor([ids])).logits[0, window.position + k].log_softmax(-1)[piece].item()
    assert scores["도서관장실"] == pytest.approx(total, abs=1e-3)


def test_ranks():
    scores = {"가": -1.0, "나": -2.0, "다": -math.inf}
    assert [rank(scores, word, ("가", "나", "다")) for word in ("가", "나", "다")] == [1, 2, 3]


def test_a_model_that_knows_the_answer_scores_full(pair, monkeypatch):
    """With a head that always says the target's pieces every score is 1, the control included."""
    tokenizer = pair[1]
    items = [item for item in shipped_items() if item.target == ITEMS[0].target and item.kind == "repeated"]
    pieces = WordPieces(tokenizer).in_gap(items[0].target, items[0])
    masked = MaskedModel(*pair)

    def knows(inputs, positions, on_done=lambda n: None):
        rows = torch.zeros(len(inputs), len(tokenizer))
        for row, (ids, position) in enumerate(zip(inputs, positions, strict=True)):
            done = 0
            while done < len(pieces) - 1 and ids[position - done - 1 : position] == tuple(pieces[: done + 1]):
                done += 1
            rows[row, pieces[done]] = 50.0
        yield list(range(len(inputs))), rows

    monkeypatch.setattr(masked, "gap_logits", knows)
    result = probe_model(masked, items, analyser=FakeAnalyser())
    if len(pieces) == 1:
        assert result.value("repeated", "strict@1") == 1
    assert result.value("repeated", "choice@1") == result.value("repeated", "exact@1") == 1
    assert result.probes["repeated"]["choice_mrr"] == 1


def test_a_result_has_everything(pair):
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
            assert {"strict@1", "lenient@5", "lenient_min2@1", "piece@5"} <= set(probe[group])
        assert probe["scores"]["strict@1"]["value"] <= probe["scores"]["lenient@1"]["value"]
        assert sum(row["n"] for row in probe["by_distance"]) == probe["n"]


def test_the_same_items_whatever_the_length_and_the_batch(pair):
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
    (window,) = Windows(pair[1], 128).of(ITEMS[:1])
    (fill,) = greedy_fills(masked, [window], [2])
    ids, position = window.filled([fill[0], pair[1].mask_token_id])
    assert ask(masked, [Question(ids, position + 1, top=1)])[0].top == [fill[1]]


def test_the_noun_filter_is_remembered(pair, tmp_path):
    tokenizer = pair[1]
    words = piece_words(tokenizer)
    first = noun_mask(tokenizer, words, FakeAnalyser(), tmp_path)

    class Silent(FakeAnalyser):
        def words(self, texts):
            raise AssertionError("asked again")

    assert np.array_equal(noun_mask(tokenizer, words, Silent(), tmp_path), first)
    assert first.any()
    assert not first[tokenizer.all_special_ids].any()


def test_what_cannot_be_probed_says_so(tmp_path, pair):
    from transformers import AutoModelForCausalLM, GPT2Config

    model, tokenizer = pair
    causal = AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=len(tokenizer)))
    save_pair(tmp_path / "causal", (causal, tokenizer))
    with pytest.raises(DanseoError, match="causal language model"):
        MaskedModel.load(str(tmp_path / "causal"), "cpu", "fp32")
    make_encoder(tmp_path / "headless", ["정부는 정책을 냈다."] * 5, size=Size(1, 8, 1, 100, 32))
    with pytest.raises(DanseoError, match="no masked-language-model head"):
        MaskedModel.load(str(tmp_path / "headless"), "cpu", "fp32")
    folder = save_pair(tmp_path / "pickled", pair)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(DanseoError, match="no safetensors"):
        MaskedModel.load(str(folder), "cpu", "fp32")
    bigger = tiny_pair(vocabulary=3000)[1]
    with pytest.raises(DanseoError, match="not of one checkpoint"):
        MaskedModel(model, bigger)
    bigger.mask_token = None
    with pytest.raises(DanseoError, match="no mask token"):
        MaskedModel(model, bigger)
    with pytest.raises(DanseoError, match="no probe items"):
        probe_model(MaskedModel(*pair), [])


def test_training_mode_comes_back(pair):
    model, tokenizer = pair
    model.train()
    probe_model(MaskedModel(model, tokenizer), ITEMS[:2], ProbeOptions(quick=True), FakeAnalyser())
    assert model.training
    model.eval()
