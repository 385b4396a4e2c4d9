"""Heads that run only at gaps, and rows of several documents, give the same numbers as plain transformers."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.mlm.masking import Masked  # noqa: E402
from danseo.models.encoder.packed_forward import run_model  # noqa: E402
from danseo.models.encoder.packed_texts import PackedTexts  # noqa: E402
from danseo.models.mlm.objective import MlmNetwork, MlmObjective  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from tests.mlm.conftest import masked_model  # noqa: E402
from tests.tiny import FAMILIES  # noqa: E402

GAPS = [3, 7, 29]  # of texts of 20 and 12 tokens


def make_batch(*lengths: int) -> dict:
    """Random texts in one row."""
    return {
        "input_ids": torch.randint(5, 200, (sum(lengths),)),
        "texts": PackedTexts.of(lengths),
        "positions": torch.tensor(GAPS),
        "counts": (2, 1, *[0] * (len(lengths) - 2)),
    }


def compute_alone(model, batch: dict) -> torch.Tensor:
    """The logits of every text alone, by the model itself."""
    texts = batch["input_ids"].split(batch["texts"].lengths)
    return torch.cat(
        [model(input_ids=text[None], attention_mask=torch.ones_like(text[None])).logits[0] for text in texts]
    )


def list_attentions(model) -> list[str]:
    return ["eager"] if model.config.model_type == "deberta-v2" else ["eager", "sdpa", PACKED]


@pytest.mark.parametrize("lengths", [(20, 12), (20, 12, 150)])  # beyond ModernBERT's local window
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_at_gaps_equal_those_of_the_full_model(family, lengths, tokenizers):
    model = masked_model(family, tokenizers[family], positions=600)
    network, batch = MlmNetwork(model, 64), make_batch(*lengths)
    with torch.no_grad():
        expected = compute_alone(model, batch)
        for attention in list_attentions(model):
            network.use_attention(attention)
            torch.testing.assert_close(network(batch)["logits"], expected[GAPS], rtol=1e-3, atol=1e-4)
            states = run_model(model, batch["input_ids"], batch["texts"])
            torch.testing.assert_close(states["logits"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_equal_those_of_the_full_head(checkpointing, tokenizers):
    model = masked_model("bert", tokenizers["bert"]).train()
    network, batch = MlmNetwork(model), make_batch(20, 12)
    if checkpointing:
        model.gradient_checkpointing_enable()
    labels = batch["input_ids"][GAPS]
    torch.nn.functional.cross_entropy(compute_alone(model, batch)[GAPS], labels).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    network.use_attention(PACKED)
    torch.nn.functional.cross_entropy(network(batch)["logits"], labels).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


def test_loss_equals_that_of_the_full_head(tokenizers):
    model = masked_model("bert", tokenizers["bert"])
    network, ids = MlmNetwork(model), [np.arange(10, 22), np.arange(30, 36)]
    positions = [np.array([2, 5]), np.array([0, 3, 4])]

    def masker(record, step):
        gap_positions = positions[record.example]
        changed = record.ids.copy()
        changed[gap_positions] = 4
        return Masked(changed, gap_positions, record.ids[gap_positions], np.ones(len(gap_positions), dtype=np.float32))

    objective = MlmObjective(masker)
    features = [Features(k, row, [], {}) for k, row in enumerate(ids)]
    batch = network.collate(features, objective, True)
    with torch.inference_mode():
        outputs = network(batch)
    loss, weight = objective.loss(outputs, batch)
    labels = torch.full(batch["input_ids"].shape, -100)
    for start, there, row in zip((0, 12), positions, ids, strict=True):
        labels[start + there] = torch.from_numpy(row[there])
    with torch.inference_mode():
        stock = torch.nn.functional.cross_entropy(compute_alone(model, batch), labels)
    assert float(weight) == 5
    assert float(loss / weight) == pytest.approx(float(stock), rel=1e-5)
    unpacked = objective.unpack(outputs, batch, features)
    assert [len(one["losses"]) for one in unpacked] == [2, 3]
    assert sum(float(one["losses"].sum()) for one in unpacked) == pytest.approx(float(loss), rel=1e-5)
