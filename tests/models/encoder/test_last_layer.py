"""Heads that read the first piece: the last layer computes no more than that, and nothing changes."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from danseo.models.encoder.network import Network  # noqa: E402
from danseo.models.encoder.packed_forward import get_last_layer  # noqa: E402
from tests.tiny import FAMILIES, tiny_encoder  # noqa: E402

NAMES = {"input_ids": "input_ids", "attention_mask": "attention_mask", "segments": "token_type_ids"}
SHORTENED = ("bert", "roberta", "xlm-roberta", "electra")


@pytest.fixture(scope="module", params=FAMILIES)
def stock(request, sample, tmp_path_factory):
    """A stock classifier of each family, without dropout, and its family."""
    folder = tiny_encoder(
        tmp_path_factory.mktemp("encoder") / request.param, sample, request.param, layers=2, dropout=0
    )
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval(), request.param


def make_batch(model) -> dict[str, torch.Tensor]:
    ids, mask = torch.randint(5, 200, (3, 14)), torch.ones(3, 14).long()
    ids[1, 6:], mask[1, 6:] = model.config.pad_token_id, 0
    return {"input_ids": ids, "attention_mask": mask, "segments": (torch.arange(14) > 4).long().expand(3, -1)}


def has_segments(model, key: str) -> bool:
    return key != "segments" or getattr(model.config, "type_vocab_size", 0) > 1


def gradients_of(model, logits) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_logits_and_gradients_are_those_of_the_whole_layer(stock):
    model, family = stock
    network = Network(model, None)
    for attention in ["eager"] if family == "deberta-v2" else ["eager", "sdpa"]:
        model.set_attn_implementation(attention)
        batch = make_batch(model)
        expected = model(**{NAMES[key]: value for key, value in batch.items() if has_segments(model, key)}).logits
        wanted = gradients_of(model, expected)
        found = network(batch)["logits"]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        for name, gradient in gradients_of(model, found).items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-6, msg=name)


def test_the_states_are_those_of_the_first_piece_within_the_block_alone(stock):
    model, family = stock
    inputs = {key: value for key, value in make_batch(model).items() if key != "segments"}
    with torch.no_grad(), get_last_layer(model).at(torch.zeros(3, 1).long()) as shortened:
        inside = model.base_model(**inputs).last_hidden_state
    assert shortened == (family in SHORTENED)
    assert inside.shape[1] == (1 if shortened else 14)
    assert model.base_model(**inputs).last_hidden_state.shape[1] == 14
    assert get_last_layer(model) is get_last_layer(model)


def test_a_copy_has_a_last_layer_of_its_own(stock):
    model, family = stock
    get_last_layer(model)
    other = copy.deepcopy(model)
    inputs = {key: value for key, value in make_batch(model).items() if key != "segments"}
    with torch.no_grad(), get_last_layer(other).at(torch.zeros(3, 1).long()):
        assert other.base_model(**inputs).last_hidden_state.shape[1] == (1 if family in SHORTENED else 14)
        assert model.base_model(**inputs).last_hidden_state.shape[1] == 14
