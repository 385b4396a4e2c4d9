"""Texts of a batch in one row without padding: the same losses and gradients as with padding."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from danseo.data.find import load  # noqa: E402
from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.models.encoder.packed_texts import PackedTexts, attend  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from tests.contracts.test_task_types import CUSTOM, make_custom  # noqa: E402
from tests.tiny import FAMILIES, quick_config, read_split, tiny_decoder, tiny_encoder  # noqa: E402

KLUE = ("ynat", "sts", "nli", "ner", "re", "dp", "mrc", "wos")
BODIES = [*(("bert", task) for task in KLUE), *((f, t) for f in FAMILIES if f != "bert" for t in ("ner", "mrc"))]
"""All tasks on one body, and two on each of the others: heads know nothing of their body."""
PACKED_BODIES = [(family, task) for family, task in BODIES if family != "deberta-v2"]


@pytest.fixture(scope="module")
def bodies(sample, tmp_path_factory):
    """Checkpoints by family, made when they are needed."""
    made = {}

    def body(family: str):
        if family not in made:
            folder = tmp_path_factory.mktemp("body") / family
            make = tiny_encoder if family in FAMILIES else tiny_decoder
            made[family] = make(folder, sample, family)
        return made[family]

    return body


def load_model(body, sample, task: str, **settings) -> Encoder:
    """A prepared encoder in training mode without dropout."""
    model = Encoder(quick_config(task, body, parser_dropout=0.0, **settings), TASKS[task], Workers("cpu"))
    return prepare_model(model, read_split(sample, task, "train", 6), read_split(sample, task, "dev", 4))


def prepare_model(model: Encoder, train: list, dev: list) -> Encoder:
    model.prepare(train, dev)
    for module in model.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.network.train()
    return model


def compute_step(model: Encoder, attention: str) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss of all features in one batch, and its gradients."""
    engine = model._engine()
    model.network.use_attention(attention)
    model.network.zero_grad()
    features = sorted(model.train_features[:12], key=len, reverse=True)
    model.task_head.begin_step(0, features)
    torch.manual_seed(0)
    outputs, batch = engine.forward(features, with_gold=True)
    loss, weight = model.task_head.loss(outputs, batch)
    (loss / weight).backward()
    gradients = {name: p.grad.clone() for name, p in model.network.named_parameters() if p.grad is not None}
    return float((loss / weight).detach()), gradients


def assert_same_step(model: Encoder) -> None:
    loss, gradients = compute_step(model, PACKED)
    padded_loss, expected = compute_step(model, "eager")
    assert loss == pytest.approx(padded_loss, rel=1e-5, abs=1e-6)
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    for name in expected:
        torch.testing.assert_close(gradients[name], expected[name], rtol=1e-3, atol=1e-5 * max(scale, 1), msg=name)


@pytest.mark.parametrize(("family", "task"), PACKED_BODIES)
def test_packed_steps_equal_padded_steps(bodies, sample, family, task):
    assert_same_step(load_model(bodies(family), sample, task, max_length=96))


@pytest.mark.parametrize("name", CUSTOM)
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_packed_steps_of_custom_tasks_equal_padded_ones(bodies, sample, tmp_path, family, name):
    task = make_custom(name, tmp_path)
    texts = [example.text for example in read_split(sample, "ner", "train", 12)]
    assert len(set(map(len, texts))) > 3
    train = [replace(example, text=text) for example, text in zip(load(task, "train", sample), texts, strict=True)]
    model = Encoder(quick_config(task.name, bodies(family), max_length=96), task, Workers("cpu"))
    assert_same_step(prepare_model(model, train, train[:4]))


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize(("family", "task"), [("gemma3_text", "ner"), ("llama", "wos"), ("qwen2", "ner")])
def test_packed_language_models_equal_padded_ones(bodies, sample, family, task, direction):
    model = load_model(bodies(family), sample, task, max_length=96, attention_direction=direction)
    assert_same_step(model)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("re", {"pooling": "e_mean"}),
        ("re", {"pooling": "cls+e_start"}),
        ("nli", {"pooling": "compare"}),
        ("mrc", {"pooling": "compare"}),
        ("ynat", {"pooling": "mean"}),
        ("ynat", {"gradient_checkpointing": True}),
        ("dp", {"architecture": "official"}),
        ("wos", {"architecture": "official", "teacher_forcing_ratio": 1.0}),
    ],
)
def test_packed_heads_equal_padded_heads(bodies, sample, task, settings, monkeypatch):
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 32)
    assert_same_step(load_model(bodies("bert"), sample, task, max_length=96, **settings))


def test_families_without_the_interface_keep_padding(bodies, sample):
    model = load_model(bodies("deberta-v2"), sample, "ner", max_length=96)
    engine = model._engine()
    assert (engine.mode.attention, model.network.is_packed) == ("eager", False)
    lengths = [9, 90, 8, 92]
    assert engine.split(range(4), lengths, 512) == [[3, 1], [0, 2]]


def test_rows_become_tables_and_back():
    texts = PackedTexts.of([3, 1, 2])
    row = torch.tensor([10.0, 11, 12, 20, 30, 31])
    assert texts.pad(row)[texts.mask].tolist() == row.tolist()
    assert texts.pad(row).tolist() == [[10, 11, 12], [20, 20, 20], [30, 31, 31]]
    assert torch.equal(texts.unpad(texts.pad(row)), row)
    assert (texts.starts.tolist(), texts.lasts.tolist(), texts.positions.tolist()) == (
        [0, 3, 4],
        [2, 3, 5],
        [0, 1, 2, 0, 0, 1],
    )
    assert replace(texts).to(torch.device("meta")).mask.shape == (3, 3)


@pytest.mark.parametrize("dropout", [0.0, 1e-7], ids=["fused", "own"])
@pytest.mark.parametrize(("window", "counts"), [(None, None), (3, None), (None, [1, 0, 2, 1, 3])])
def test_groups_of_similar_texts_attend_as_each_text_alone(dropout, window, counts):
    lengths = [9, 4, 30, 11, 28]  # 9 and 11, 30 and 28 share a table with padding
    generator = torch.Generator().manual_seed(1)
    sizes = [sum(counts or lengths), sum(lengths), sum(lengths)]
    states = [torch.randn(1, 2, size, 8, generator=generator, requires_grad=True) for size in sizes]
    options = {"window": window, "causal": False, "dropout_p": dropout, "scale": None}
    found = attend(*states, PackedTexts.of(lengths), counts, **options)
    parts = zip(states[0].split(counts or lengths, 2), *(state.split(lengths, 2) for state in states[1:]), strict=True)
    near = [(torch.arange(n)[:, None] - torch.arange(n)).abs() < (window or n) for n in lengths]
    masks = [None if counts else mask for mask in near]
    alone = [scaled_dot_product_attention(*part, attn_mask=mask) for part, mask in zip(parts, masks, strict=True)]
    expected = torch.cat(alone, 2).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(expected.shape, generator=generator)
    for got, due in zip(*(torch.autograd.grad(made, states, weights) for made in (found, expected)), strict=True):
        torch.testing.assert_close(got, due)
