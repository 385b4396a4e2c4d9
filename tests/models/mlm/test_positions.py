"""Extended position tables keep the outputs of the old length and load with plain transformers."""

import pytest

pytest.importorskip("torch")

import torch

from danseo.errors import DanseoError
from danseo.models.encoder.model_info import usable_positions
from danseo.models.mlm.objective import vocabulary_logits
from danseo.models.mlm.positions import extend_positions
from tests.mlm.conftest import masked_model
from tests.tiny import FAMILIES

OLD, NEW = 48, 150


def logits_of(model, ids):
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits


def assert_same_weights(one, other):
    theirs = other.state_dict()
    assert all(torch.equal(weights, theirs[name]) for name, weights in one.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
def test_extension_keeps_the_old_length_and_loads_plainly(family, tokenizers, tmp_path):
    from transformers import AutoModelForMaskedLM

    model = masked_model(family, tokenizers[family], positions=OLD)
    short, long = torch.randint(5, 200, (2, OLD)), torch.randint(5, 200, (2, NEW))
    before = logits_of(model, short)
    extended, description = extend_positions(model, NEW)
    assert description
    torch.testing.assert_close(logits_of(extended, short), before)
    extended.save_pretrained(tmp_path / family)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / family).eval()
    assert_same_weights(loaded, extended)
    torch.testing.assert_close(logits_of(loaded, long), logits_of(extended, long))
    assert torch.isfinite(logits_of(loaded, long)).all()
    if family != "deberta-v2":
        assert usable_positions(loaded.config) == NEW


def test_roberta_positions_start_behind_padding(tokenizers):
    model = masked_model("roberta", tokenizers["roberta"], positions=510, pad_token_id=1, max_position_embeddings=514)
    assert usable_positions(model.config) == 512
    table = model.roberta.embeddings.position_embeddings.weight.detach().clone()
    extended, _ = extend_positions(model, 2048)
    position_table = extended.roberta.embeddings.position_embeddings
    assert extended.config.max_position_embeddings == position_table.weight.shape[0] == 2050
    assert position_table.padding_idx == 1
    assert not position_table.weight[1].any(), "the row of padding stays zero"
    torch.testing.assert_close(position_table.weight[:514], table, rtol=0, atol=0)
    torch.testing.assert_close(position_table.weight[514], table[2], rtol=0, atol=0)  # position 513 is the first again
    ids = torch.tensor([[5, 6, 1]])
    assert type(extended.roberta.embeddings).create_position_ids_from_input_ids(ids, 1).tolist() == [[2, 3, 1]]


@pytest.mark.parametrize("absolute", [False, True])
def test_deberta_keeps_its_relative_table_and_scale(tokenizers, tmp_path, absolute):
    from transformers import AutoModelForMaskedLM

    measures = {"position_buckets": 16, "position_biased_input": absolute, "norm_rel_ebd": "layer_norm"}
    model = masked_model("deberta-v2", tokenizers["deberta-v2"], positions=OLD, **measures)
    longest = torch.randint(5, 200, (1, OLD))
    before = logits_of(model, longest)
    extended, description = extend_positions(model, NEW)
    encoder = extended.deberta.encoder
    assert encoder.rel_embeddings.weight.shape[0] == 32
    assert encoder.max_relative_positions == OLD, "the scale that it was trained with"
    assert ("nothing is added" in description) is not absolute
    extended.save_pretrained(tmp_path / "m")
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "m").eval()
    assert loaded.deberta.encoder.max_relative_positions == OLD
    assert_same_weights(loaded, extended)
    torch.testing.assert_close(logits_of(loaded, longest), before)


def test_unknown_architectures_give_one_line(tokenizers):
    model = masked_model("bert", tokenizers["bert"])
    model.config.model_type = "fnet"
    with pytest.raises(DanseoError, match="fnet"):
        extend_positions(model, 999)
    del model.cls
    states = torch.zeros(1, model.config.hidden_size)
    with pytest.raises(DanseoError, match="modernbert"):
        vocabulary_logits(model, states)
