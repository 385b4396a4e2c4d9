"""Longer positions: the old length as before, and a plain load of what was saved."""

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.models.encoder.network import usable_positions  # noqa: E402
from danseo.models.masked.extending import extend  # noqa: E402
from danseo.models.masked.head import hidden_states, vocabulary_logits  # noqa: E402
from tests.pretraining.conftest import masked_model  # noqa: E402
from tests.tiny import FAMILIES  # noqa: E402

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
    extended, said = extend(model, NEW)
    assert said
    torch.testing.assert_close(logits_of(extended, short), before)
    extended.save_pretrained(tmp_path / family)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / family).eval()
    assert_same_weights(loaded, extended)
    torch.testing.assert_close(logits_of(loaded, long), logits_of(extended, long))
    assert torch.isfinite(logits_of(loaded, long)).all()
    if family != "deberta-v2":
        assert usable_positions(loaded.config) == NEW


def test_the_head_stays_tied_to_the_embeddings(tokenizers):
    extended, _ = extend(masked_model("bert", tokenizers["bert"], positions=OLD), NEW)
    assert extended.get_output_embeddings().weight is extended.get_input_embeddings().weight


def test_roberta_counts_from_its_padding(tokenizers):
    model = masked_model("roberta", tokenizers["roberta"], positions=510, pad_token_id=1, max_position_embeddings=514)
    assert usable_positions(model.config) == 512
    table = model.roberta.embeddings.position_embeddings.weight.detach().clone()
    extended, _ = extend(model, 2048)
    grown = extended.roberta.embeddings.position_embeddings
    assert extended.config.max_position_embeddings == grown.weight.shape[0] == 2050
    assert grown.padding_idx == 1
    assert not grown.weight[1].any(), "the row of padding stays zero"
    torch.testing.assert_close(grown.weight[:514], table, rtol=0, atol=0)
    torch.testing.assert_close(grown.weight[514], table[2], rtol=0, atol=0)  # position 513 is the first again
    ids = torch.tensor([[5, 6, 1]])
    assert type(extended.roberta.embeddings).create_position_ids_from_input_ids(ids, 1).tolist() == [[2, 3, 1]]


@pytest.mark.parametrize(
    ("distance", "at_512", "at_1536", "at_2048"),
    [(1, 1, 1, 1), (128, 128, 128, 128), (200, 169, 151, 149), (400, 233, 187, 181), (511, 255, 199, 192)],
)
def test_the_scale_of_debertas_buckets(distance, at_512, at_1536, at_2048):
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    found = [int(make_log_bucket_position(torch.tensor([distance]), 256, size)) for size in (512, 1536, 2048)]
    assert found == [at_512, at_1536, at_2048]


@pytest.mark.parametrize("absolute", [False, True])
def test_deberta_keeps_its_relative_table_and_scale(tokenizers, tmp_path, absolute):
    from transformers import AutoModelForMaskedLM

    measures = {"position_buckets": 16, "position_biased_input": absolute, "norm_rel_ebd": "layer_norm"}
    model = masked_model("deberta-v2", tokenizers["deberta-v2"], positions=OLD, **measures)
    far = torch.randint(5, 200, (1, OLD))
    before = logits_of(model, far)
    extended, said = extend(model, NEW)
    encoder = extended.deberta.encoder
    assert encoder.rel_embeddings.weight.shape[0] == 32
    assert encoder.max_relative_positions == OLD, "the scale that it was trained with"
    assert ("nothing is added" in said) is not absolute
    extended.save_pretrained(tmp_path / "m")
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "m").eval()
    assert loaded.deberta.encoder.max_relative_positions == OLD
    assert_same_weights(loaded, extended)
    torch.testing.assert_close(logits_of(loaded, far), before)


def test_enough_positions_are_left_alone(tokenizers):
    model = masked_model("bert", tokenizers["bert"], positions=OLD)
    same, said = extend(model, OLD // 2)
    assert same is model
    assert said == f"{OLD} positions are enough for {OLD // 2} pieces"


def test_unknown_families_are_one_line(tokenizers):
    model = masked_model("bert", tokenizers["bert"])
    model.config.model_type = "fnet"
    with pytest.raises(DanseoError, match="cannot extend fnet"):
        extend(model, 999)
    del model.cls
    states = hidden_states(model, torch.tensor([[5]]), torch.tensor([[1]]))
    with pytest.raises(DanseoError, match="known families"):
        vocabulary_logits(model, states)
