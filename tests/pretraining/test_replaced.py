"""Replaced-token detection: what is drawn, what is learned, on from a kill, on two processes, and in every family."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.models.masked.replaced import Generator, ReplacedKind, ReplacedNetwork, detection_scores, drawn  # noqa: E402
from danseo.pretraining.config import MaskConfig  # noqa: E402
from danseo.pretraining.masker import ReplacingMasker  # noqa: E402
from danseo.pretraining.masking import BEGINS, SPECIAL, Vocabulary  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from danseo.training.fit import weights_of  # noqa: E402
from tests.pretraining.conftest import masked_model  # noqa: E402
from tests.pretraining.processes import killed_when, two_processes, weights  # noqa: E402
from tests.pretraining.test_pretrain import begun, cache, command, losses, trained  # noqa: E402, F401
from tests.tiny import FAMILIES  # noqa: E402

RTD = ("objective=rtd", "generator_width=16", "generator_layers=1")
HELD_OUT = ("held_out_rtd_loss", "held_out_rtd_accuracy", "held_out_rtd_majority", "held_out_generator_loss")


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training without interruption."""
    folder = tmp_path_factory.mktemp("rtd")
    os.environ["DANSEO_CACHE"] = str(folder / "cache")
    return trained(text_file, folder / "run", *RTD).path


def network_of(family: str, tokenizer, probability: float = 0.15) -> tuple[ReplacedNetwork, ReplacedKind]:
    model = masked_model(family, tokenizer, positions=200).base_model
    masker = ReplacingMasker(Vocabulary.of(tokenizer), MaskConfig(probability=probability), 64, seed=3)
    torch.manual_seed(2)
    network = ReplacedNetwork(model, Generator(model, 16, 2), tokenizer.all_special_ids, 64)
    return network.eval(), ReplacedKind(masker, tokenizer.pad_token_id, masker.read_batch)


def row(number: int, tokenizer, *lengths: int) -> Features:
    """Random documents of these lengths in one row."""
    rng = np.random.default_rng(number)
    ids, marks = rng.integers(5, 200, sum(lengths)), np.full(sum(lengths), BEGINS)
    ends = np.cumsum(lengths)
    ids[ends - lengths], ids[ends - 1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    marks[ends - lengths] = marks[ends - 1] = SPECIAL
    return Features(number, ids, [], {"marks": marks, "parts": np.array(lengths)})


# Drawing


def test_pieces_are_drawn_by_their_probability_and_special_ones_never():
    guesses = torch.log(torch.tensor([0.3, 0.1, 0.4, 0.2])).expand(7, 4)
    draws = torch.tensor([0.0, 0.05, 0.13, 0.15, 0.7, 0.72, 0.9999999])
    assert drawn(guesses, draws, [0]).tolist() == [1, 1, 1, 2, 2, 3, 3]
    many = drawn(guesses[:1].expand(4000, 4), torch.linspace(0, 0.9999, 4000), [3])
    assert (torch.bincount(many, minlength=4) / 4000).tolist() == pytest.approx([0.375, 0.125, 0.5, 0], abs=0.01)


def test_every_gap_is_masked_and_its_draw_comes_with_it(tokenizers):
    tokenizer = tokenizers["bert"]
    _, kind = network_of("bert", tokenizer)
    record = row(1, tokenizer, 60)
    one, again, other = (kind.masker(record, step) for step in (4, 4, 5))
    assert (one.ids[one.positions] == tokenizer.mask_token_id).all()
    assert (record.ids[one.positions] == one.labels).all()
    assert len(one.positions) == round(0.15 * 58)
    assert one.weights.tolist() == pytest.approx([1 / 0.15] * len(one.positions))
    assert (one.draws == again.draws).all()
    assert not np.array_equal(one.draws, other.draws)


# The network


@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_document_gives_what_it_gives_alone(family, tokenizers):
    tokenizer = tokenizers[family]
    network, kind = network_of(family, tokenizer, 0.4)  # so that each document has gaps
    lengths = [40, 12, 31]
    batch = network.collate([row(1, tokenizer, *lengths), row(2, tokenizer, 25)], kind, True)
    with torch.inference_mode():
        packed = network(batch)
        for start, end in ((0, 40), (40, 52), (52, 83)):
            positions = batch["positions"][0][: int((batch["owners"] == 0).sum())]
            inside = ((positions >= start) & (positions < end)).nonzero()[:, 0]
            alone = network(alone_of(batch, start, end, inside))
            torch.testing.assert_close(alone["guesses"], packed["guesses"][inside], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(alone["judged"][0], packed["judged"][0, start:end], rtol=1e-3, atol=1e-4)
            assert torch.equal(alone["replaced"][0], packed["replaced"][0, start:end])


def alone_of(batch: dict, start: int, end: int, inside: torch.Tensor) -> dict:
    """A document of the first row with its gaps and draws, by itself."""
    gaps = {key: batch[key][inside] for key in ("labels", "weights", "draws")}
    positions = batch["positions"][:1][:, inside] - start
    gaps |= {"positions": positions, "gaps": torch.arange(len(inside))}
    gaps |= {"owners": torch.zeros(len(inside), dtype=torch.long)}
    return {**gaps, **{key: batch[key][:1, start:end] for key in ("input_ids", "attention_mask", "is_text")}}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_its_parts_and_reaches_every_weight(family, tokenizers):
    tokenizer = tokenizers[family]
    network, kind = network_of(family, tokenizer)
    features = [row(k, tokenizer, 30 + k) for k in range(3)]
    batch = network.collate(features, kind, True)
    outputs = network(batch)
    loss, weight = kind.loss(outputs, batch)
    assert int(weight) == 28 + 29 + 30
    assert not outputs["replaced"][~batch["is_text"]].any()
    unpacked = kind.unpack({key: value.detach() for key, value in outputs.items()}, batch, features)
    guessing, judging = (sum(float(one[key].sum()) for one in unpacked) for key in ("guessing", "losses"))
    assert float(loss.detach()) == pytest.approx(guessing / 0.15 + 50 * judging, rel=1e-4)
    assert [len(one["losses"]) for one in unpacked] == [28, 29, 30]
    loss.backward()
    idle = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert idle == []


def test_the_table_of_pieces_is_one_and_the_same(tokenizers):
    network, _ = network_of("bert", tokenizers["bert"])
    pieces = len(tokenizers["bert"])
    tables = [name for name, parameter in network.named_parameters() if parameter.shape[0] == pieces]
    assert tables == ["model.embeddings.word_embeddings.weight", "generator.bias"]
    assert sum(value.shape[0] == pieces for value in weights_of(network).values()) == 2


def test_scores_name_what_they_are():
    rows = [
        {"losses": np.array([0.5, 0.1]), "right": np.array([1, 1]), "replaced": np.array([0, 1]), "guessing": [4.0]},
        {"losses": np.array([0.3, 0.3]), "right": np.array([0, 1]), "replaced": np.array([0, 0]), "guessing": [2.0]},
    ]
    assert detection_scores(rows) == pytest.approx(
        dict(zip(HELD_OUT, (0.3, 0.75, 0.75, 3.0), strict=True)),
    )


# From end to end


def test_the_generator_learns_and_only_the_body_is_saved(whole):
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    log = losses(whole)
    assert [line["step"] for line in log] == [4, 8, 12, 16, 20, 24]
    assert all(name in line and "held_out_loss" not in line for line in log for name in HELD_OUT)
    assert log[-1]["held_out_generator_loss"] < log[0]["held_out_generator_loss"] - 0.1
    assert log[-1]["loss"] < log[0]["loss"]
    folder = whole / "checkpoint-24"
    model, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(folder))
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.hidden_size == 32
    assert not any("generator" in name or "judge" in name for name in weights(folder))
    assert AutoModelForMaskedLM.from_pretrained(folder).config.architectures == ["ModernBertModel"]
    before, after, last = (weights(whole / name) for name in ("start", "checkpoint-24", "model"))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(last[name], after[name]) for name in after), "model/ holds the last weights"


@pytest.mark.parametrize("head", ["AutoModelForTokenClassification", "AutoModelForSequenceClassification"])
def test_fine_tuning_begins_with_what_was_learned(head, whole):
    import transformers

    model = getattr(transformers, head).from_pretrained(whole / "model", num_labels=3)
    own, learned = model.base_model.state_dict(), weights(whole / "model")
    assert all(torch.equal(own[name], learned[name]) for name in learned)


def test_killed_and_resumed_bit_for_bit(whole, text_file, tmp_path):
    out = begun(whole, tmp_path / "killed")
    killed_when((out / "checkpoint-8").is_dir, command(text_file, out, *RTD))
    assert not (out / "result.json").exists()
    trained(text_file, out, *RTD)
    for step in (4, 8, 12, 16, 20, 24):
        mine, theirs = weights(out / f"checkpoint-{step}"), weights(whole / f"checkpoint-{step}")
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs), step
    assert losses(out) == losses(whole)


@pytest.mark.lengthy
def test_two_processes_train_as_one(whole, text_file, tmp_path):
    ended = two_processes(command(text_file, begun(whole, tmp_path / "two"), *RTD))
    assert json.loads(ended.stdout)["steps"] == 24
    one, two = losses(whole), losses(tmp_path / "two")
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], abs=0.2)
    for name in HELD_OUT:
        assert [line[name] for line in two] == pytest.approx([line[name] for line in one], abs=2e-2)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "deberta-v2", "xlm-roberta"])
def test_every_family_trains_from_scratch(family, text_file, tmp_path):
    from transformers import AutoModel

    run = trained(text_file, tmp_path / "run", *RTD, f"family={family}", "steps=2")
    assert AutoModel.from_pretrained(run.path / "checkpoint-2").config.model_type == family


def test_further_from_a_masked_model_and_back(tokenizers, text_file, tmp_path):
    from danseo.pretraining.start import load_masked

    model = masked_model("bert", tokenizers["bert"], positions=64)
    model.save_pretrained(tmp_path / "old")
    tokenizers["bert"].save_pretrained(tmp_path / "old")
    run = trained(text_file, tmp_path / "rtd", *RTD, f"checkpoint={tmp_path / 'old'}", "steps=2")
    table = weights(run.path / "start")["embeddings.word_embeddings.weight"]
    assert torch.equal(table, model.bert.embeddings.word_embeddings.weight)
    back = trained(text_file, tmp_path / "mlm", f"checkpoint={run.path / 'model'}", "steps=2")
    assert load_masked(str(back.path / "checkpoint-2"), needs_head=True)[0].config.model_type == "bert"


def test_probes_need_a_head(text_file, tmp_path):
    from danseo.probing.items import shipped_items

    with pytest.raises(DanseoError, match="cannot be probed"):
        trained(text_file, tmp_path / "run", *RTD, probes=tuple(shipped_items("dev")))


def test_the_table_shows_detection(whole):
    from danseo.pretraining.tables import pretrain_tables
    from danseo.runs.directory import Run

    (table,) = pretrain_tables(Run(whole))
    assert "held-out rtd loss" in table.columns
    assert "held-out loss" not in table.columns
    assert "last weights" in table.note
    assert (whole / "learning_curve.png").stat().st_size > 5000
