"""Replaced-token detection: sampling, losses of every architecture, and trainings."""

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.config.mlm import MaskSettings  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.mlm.masking import (  # noqa: E402
    BEGINS,
    SPECIAL,
    ReplacingMasker,
    Vocabulary,
)
from danseo.models.encoder.packed_texts import PackedTexts  # noqa: E402
from danseo.models.mlm.objective import (  # noqa: E402
    Generator,
    RtdNetwork,
    RtdObjective,
    sample_tokens,
)
from danseo.training.features import Features  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from danseo.training.trainer import copy_weights  # noqa: E402
from tests.mlm.conftest import masked_model  # noqa: E402
from tests.mlm.processes import run_two_processes, weights  # noqa: E402
from tests.mlm.test_pretraining import RTD, cache, command, read_log, train  # noqa: E402, F401
from tests.tiny import FAMILIES  # noqa: E402

HELD_OUT = ("held_out_rtd_loss", "held_out_rtd_accuracy", "held_out_rtd_majority", "held_out_generator_loss")


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training without interruption."""
    folder = tmp_path_factory.mktemp("rtd")
    os.environ["DANSEO_CACHE"] = str(folder / "cache")
    return train(text_file, folder / "run", *RTD).path


def network_of(family: str, tokenizer, probability: float = 0.15) -> tuple[RtdNetwork, RtdObjective]:
    model = masked_model(family, tokenizer, positions=200).base_model
    masker = ReplacingMasker(Vocabulary.of(tokenizer), MaskSettings(mlm_probability=probability), 64, seed=3)
    torch.manual_seed(2)
    network = RtdNetwork(model, Generator(model, 16, 2), tokenizer.all_special_ids, 64)
    return network.eval(), RtdObjective(masker, masker.read_batch)


def row(number: int, tokenizer, *lengths: int) -> Features:
    """Random documents of these lengths in one row."""
    rng = np.random.default_rng(number)
    ids, marks = rng.integers(5, 200, sum(lengths)), np.full(sum(lengths), BEGINS)
    ends = np.cumsum(lengths)
    ids[ends - lengths], ids[ends - 1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    marks[ends - lengths] = marks[ends - 1] = SPECIAL
    return Features(number, ids, [], {"marks": marks, "parts": np.array(lengths)})


def test_tokens_are_sampled_by_probability_and_special_ones_never():
    guesses = torch.log(torch.tensor([0.3, 0.1, 0.4, 0.2])).expand(7, 4)
    draws = torch.tensor([0.0, 0.05, 0.13, 0.15, 0.7, 0.72, 0.9999999])
    assert sample_tokens(guesses, draws, [0]).tolist() == [1, 1, 1, 2, 2, 3, 3]
    many = sample_tokens(guesses[:1].expand(4000, 4), torch.linspace(0, 0.9999, 4000), [3])
    assert (torch.bincount(many, minlength=4) / 4000).tolist() == pytest.approx([0.375, 0.125, 0.5, 0], abs=0.01)


def test_every_gap_is_masked_and_has_a_random_number(tokenizers):
    tokenizer = tokenizers["bert"]
    _, objective = network_of("bert", tokenizer)
    record = row(1, tokenizer, 60)
    one, again, other = (objective.masker(record, step) for step in (4, 4, 5))
    assert (one.ids[one.positions] == tokenizer.mask_token_id).all()
    assert (record.ids[one.positions] == one.labels).all()
    assert len(one.positions) == round(0.15 * 58)
    assert one.weights.tolist() == pytest.approx([1 / 0.15] * len(one.positions))
    assert (one.draws == again.draws).all()
    assert not np.array_equal(one.draws, other.draws)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_give_the_outputs_of_single_ones(family, tokenizers):
    tokenizer = tokenizers[family]
    network, objective = network_of(family, tokenizer, 0.4)  # so that each document has gaps
    if family != "deberta-v2":
        network.use_attention(PACKED)
    lengths = [40, 12, 31, 25]
    batch = network.collate([row(1, tokenizer, *lengths[:3]), row(2, tokenizer, 25)], objective, True)
    assert batch["texts"].lengths == tuple(lengths)
    with torch.inference_mode():
        packed = network(batch)
        for start, end in pairwise(np.cumsum([0, *lengths]).tolist()):
            inside = ((batch["positions"] >= start) & (batch["positions"] < end)).nonzero()[:, 0]
            tokens = ((batch["text"] >= start) & (batch["text"] < end)).nonzero()[:, 0]
            alone = network(alone_of(batch, start, end, inside, tokens))
            torch.testing.assert_close(alone["guesses"], packed["guesses"][inside], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(alone["logits"], packed["logits"][tokens], rtol=1e-3, atol=1e-4)
            assert torch.equal(alone["replaced"], packed["replaced"][tokens])


def alone_of(batch: dict, start: int, end: int, inside: torch.Tensor, tokens: torch.Tensor) -> dict:
    """A document with its gaps and draws, by itself."""
    gaps = {key: batch[key][inside] for key in ("labels", "weights", "draws")}
    gaps |= {"positions": batch["positions"][inside] - start, "text": batch["text"][tokens] - start}
    return {
        **gaps,
        "input_ids": batch["input_ids"][start:end],
        "texts": PackedTexts.of([end - start]),
        "counts": (len(inside),),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_is_the_sum_of_both_and_reaches_every_weight(family, tokenizers):
    tokenizer = tokenizers[family]
    network, objective = network_of(family, tokenizer)
    features = [row(k, tokenizer, 30 + k) for k in range(3)]
    batch = network.collate(features, objective, True)
    outputs = network(batch)
    loss, weight = objective.loss(outputs, batch)
    assert int(weight) == 28 + 29 + 30
    unpacked = objective.unpack({key: value.detach() for key, value in outputs.items()}, batch, features)
    guessing, judging = (sum(float(one[key].sum()) for one in unpacked) for key in ("guessing", "losses"))
    assert float(loss.detach()) == pytest.approx(guessing / 0.15 + 50 * judging, rel=1e-4)
    assert [len(one["losses"]) for one in unpacked] == [28, 29, 30]
    loss.backward()
    without_gradient = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert without_gradient == []


def test_generator_shares_the_embeddings(tokenizers):
    network, _ = network_of("bert", tokenizers["bert"])
    tokens = len(tokenizers["bert"])
    tables = [name for name, parameter in network.named_parameters() if parameter.shape[0] == tokens]
    assert tables == ["model.embeddings.word_embeddings.weight", "generator.bias"]
    assert sum(value.shape[0] == tokens for value in copy_weights(network).values()) == 2


def test_generator_learns_and_only_the_encoder_is_saved(whole):
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    log = read_log(whole)
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
    assert not any("generator" in name or "detector" in name for name in weights(folder))
    assert AutoModelForMaskedLM.from_pretrained(folder).config.architectures == ["ModernBertModel"]
    before, after, last = (weights(whole / name) for name in ("start", "checkpoint-24", "model"))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(last[name], after[name]) for name in after), "model/ holds the last weights"


@pytest.mark.nightly
@pytest.mark.lengthy
def test_two_processes_train_as_one(whole, text_file, tmp_path):
    ended = run_two_processes(command(text_file, tmp_path / "two", *RTD))
    assert json.loads(ended.stdout)["steps"] == 24
    one, two = read_log(whole), read_log(tmp_path / "two")
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], abs=0.2)
    for name in HELD_OUT:
        assert [line[name] for line in two] == pytest.approx([line[name] for line in one], abs=2e-2)


def test_rtd_continues_mlm_and_mlm_continues_rtd(tokenizers, text_file, tmp_path):
    from danseo.mlm.initialization import load_masked

    model = masked_model("bert", tokenizers["bert"], positions=64)
    model.save_pretrained(tmp_path / "old")
    tokenizers["bert"].save_pretrained(tmp_path / "old")
    run = train(text_file, tmp_path / "rtd", *RTD, f"checkpoint={tmp_path / 'old'}", "steps=2")
    table = weights(run.path / "start")["embeddings.word_embeddings.weight"]
    assert torch.equal(table, model.bert.embeddings.word_embeddings.weight)
    back = train(text_file, tmp_path / "mlm", f"checkpoint={run.path / 'model'}", "steps=2")
    assert load_masked(str(back.path / "checkpoint-2"), needs_head=True)[0].config.model_type == "bert"


def test_probes_need_a_head(text_file, tmp_path):
    from danseo.mlm.probing.items import read_bundled_items

    with pytest.raises(DanseoError, match="cannot be probed"):
        train(text_file, tmp_path / "run", *RTD, probes=tuple(read_bundled_items("dev")))
