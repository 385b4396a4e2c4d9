"""The head only where it is asked for, and rows of several documents: the same numbers as the plain way."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.models.masked.head import hidden_states, restarted, vocabulary_logits  # noqa: E402
from danseo.models.masked.kind import MaskedKind, MaskedNetwork  # noqa: E402
from danseo.pretraining.masking import Masked  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from tests.pretraining.conftest import masked_model  # noqa: E402
from tests.tiny import FAMILIES  # noqa: E402

GAPS = [3, 7, 29]  # of two rows of twenty


def gaps() -> dict[str, torch.Tensor]:
    return {"positions": torch.tensor([[3, 7], [9, 0]]), "gaps": torch.tensor([0, 1, 2])}


def attention_of(model) -> list[str]:
    return ["eager"] if model.config.model_type == "deberta-v2" else ["eager", "sdpa"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_at_some_places_is_the_head_everywhere_gathered(family, tokenizers):
    model = masked_model(family, tokenizers[family])
    ids = torch.randint(5, 200, (3, 12))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    ids[1, 8:] = tokenizers[family].pad_token_id
    with torch.inference_mode():
        whole = model(input_ids=ids, attention_mask=mask).logits
        states = hidden_states(model, ids, mask)
        positions = torch.tensor([1, 13, 25])
        some = vocabulary_logits(model, states.flatten(0, 1)[positions])
    torch.testing.assert_close(some, whole.flatten(0, 1)[positions], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_network_computes_at_the_gaps_what_the_model_does(family, packed, tokenizers):
    model = masked_model(family, tokenizers[family])
    network = MaskedNetwork(model, 64)
    ids, mask = torch.randint(5, 200, (2, 20)), torch.ones(2, 20).long()
    ids[1, 15:], mask[1, 15:] = tokenizers[family].pad_token_id, 0
    batch = {"input_ids": ids, "attention_mask": mask, **gaps()}
    if packed:
        batch["documents"] = (torch.arange(20) >= 9).long().expand(2, -1)
    for attention in attention_of(model):
        model.set_attn_implementation(attention)
        with torch.no_grad():
            logits = network(batch)["logits"]
            states = hidden_states(model, ids, mask, batch.get("documents"))
            whole = vocabulary_logits(model, states).flatten(0, 1)[GAPS]
            if not packed:
                plain = model(input_ids=ids, attention_mask=mask).logits
                torch.testing.assert_close(plain.flatten(0, 1)[GAPS], logits, rtol=1e-4, atol=1e-5)
        assert logits.shape == (3, model.config.vocab_size)
        torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "width"), [("bert", 2), ("roberta", 2), ("electra", 2), ("modernbert", 20)])
def test_the_last_layer_works_only_at_the_gaps(family, width, tokenizers):
    model, seen = masked_model(family, tokenizers[family]), []
    last = (model.base_model.encoder.layer if hasattr(model.base_model, "encoder") else model.base_model.layers)[-1]
    part = last.intermediate if hasattr(last, "intermediate") else last.mlp
    part.register_forward_hook(lambda module, inputs, made: seen.append(inputs[0].shape[1]))
    ids = torch.randint(5, 200, (2, 20))
    MaskedNetwork(model)({"input_ids": ids, "attention_mask": torch.ones_like(ids), **gaps()})
    hidden_states(model, ids, torch.ones_like(ids))
    assert seen == [width, 20], "and everywhere again behind it"


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_of_the_whole_head(checkpointing, tokenizers):
    model = masked_model("bert", tokenizers["bert"]).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.randint(5, 200, (2, 20))
    labels = torch.full((40,), -100)
    labels[GAPS] = ids.flatten()[GAPS]
    model(input_ids=ids, labels=labels.view(2, 20)).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **gaps()}
    logits = MaskedNetwork(model)(batch)["logits"]
    torch.nn.functional.cross_entropy(logits, labels[GAPS]).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_document_in_a_packed_row_is_as_if_it_were_alone(family, tokenizers):
    model = masked_model(family, tokenizers[family], positions=600)
    texts = [torch.randint(5, 200, (length,)) for length in (40, 7, 150)]  # beyond ModernBERT's local window
    row = torch.cat(texts)
    padded = torch.full((2, len(row) + 5), tokenizers[family].pad_token_id)
    padded[0, : len(row)], padded[1, :40] = row, texts[0]
    mask = torch.zeros_like(padded)
    mask[0, : len(row)], mask[1, :40] = 1, 1
    documents = torch.full_like(padded, -100)
    documents[0, : len(row)] = torch.repeat_interleave(torch.arange(3), torch.tensor([40, 7, 150]))
    documents[1, :40] = 0
    for attention in attention_of(model):
        model.set_attn_implementation(attention)
        with torch.inference_mode():
            packed = hidden_states(model, padded, mask, documents)
            alone = [hidden_states(model, text[None], torch.ones(1, len(text)).long())[0] for text in texts]
        torch.testing.assert_close(packed[0, : len(row)], torch.cat(alone), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(packed[1, :40], alone[0], rtol=1e-3, atol=1e-4)
        assert torch.isfinite(packed).all()


def test_positions_begin_anew_with_every_document():
    assert restarted(torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, -100, -100, -100, -100]])).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 1, 0, 1, 2, 3],
    ]


def test_the_loss_is_that_of_the_whole_head(tokenizers):
    model = masked_model("bert", tokenizers["bert"])
    network, ids = MaskedNetwork(model), [np.arange(10, 22), np.arange(30, 36)]
    positions = [np.array([2, 5]), np.array([0, 3, 4])]

    def masker(record, step):
        there = positions[record.example]
        changed = record.ids.copy()
        changed[there] = 4
        return Masked(changed, there, record.ids[there], np.ones(len(there), dtype=np.float32))

    kind = MaskedKind(masker, 0)
    features = [Features(k, row, [], {}) for k, row in enumerate(ids)]
    batch = network.collate(features, kind, True)
    with torch.inference_mode():
        outputs = network(batch)
    loss, weight = kind.loss(outputs, batch)
    labels = torch.full(batch["input_ids"].shape, -100)
    for row, there in enumerate(positions):
        labels[row, there] = torch.from_numpy(ids[row][there])
    with torch.inference_mode():
        stock = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
    assert float(weight) == 5
    assert float(loss / weight) == pytest.approx(float(stock), rel=1e-5)
    unpacked = kind.unpack(outputs, batch, features)
    assert [len(one["losses"]) for one in unpacked] == [2, 3]
    assert sum(float(one["losses"].sum()) for one in unpacked) == pytest.approx(float(loss), rel=1e-5)
