"""Steps on torch's meta device: a CPU tensor mixed in, or a number that is read, fails there as it stalls on a GPU."""

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from tests.models.encoder.test_packed_texts import PACKED_BODIES, bodies  # noqa: E402, F401
from tests.tiny import quick_config, read_split  # noqa: E402

META = torch.device("meta")


@pytest.fixture(autouse=True)
def without_autocast(monkeypatch):
    """Torch has no autocast for the meta device."""
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())


def run_step(body, sample, task: str, **settings) -> None:
    """Load on the CPU, move to the meta device, and run forward, loss and backward."""
    model = Encoder(quick_config(task, body, max_length=96, **settings), TASKS[task], Workers("cpu"))
    model.prepare(read_split(sample, task, "train", 6), read_split(sample, task, "dev", 4))
    engine = model._engine()
    if "attn_implementation" not in settings and model.network.model.config.model_type != "deberta-v2":
        assert engine.mode.attention == PACKED
    features = sorted(model.train_features[:8], key=len, reverse=True)
    model.network.to(META).train()
    engine.workers.device = META
    model.task_head.begin_step(0, features)
    outputs, batch = engine.forward(features, with_gold=True)
    loss, weight = model.task_head.loss(outputs, batch)
    assert loss.device == weight.device == META
    (loss / weight).backward()
    assert any(parameter.grad is not None for parameter in model.network.parameters())


@pytest.mark.parametrize(
    ("family", "task"),
    [*((body, task) for body, task in PACKED_BODIES if body == "bert" or task == "ner"), ("llama", "wos")],
)
def test_a_step_needs_no_cpu(bodies, sample, family, task):  # noqa: F811
    run_step(bodies(family), sample, task)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("re", {"pooling": "e_mean", "loss": "focal", "hard_negative_ratio": 0.5}),
        ("re", {"pooling": "cls+e_start", "class_weights": "balanced", "type_mask": "training"}),
        ("re", {"max_entity_distance": 8}),
        ("re", {"max_entity_distance": 8, "pooling": "e_mean"}),
        ("nli", {"pooling": "compare", "loss": "ldam"}),
        ("mrc", {"pooling": "compare"}),
        ("ynat", {"pooling": "mean", "loss": "logit_adjusted"}),
        ("ynat", {"gradient_checkpointing": True, "class_weights": "balanced"}),
        ("ner", {"architecture": "official", "class_weights": "balanced"}),
        ("dp", {"architecture": "official"}),
        ("wos", {"architecture": "official", "teacher_forcing_ratio": 1.0}),
        ("wos", {"architecture": "official", "teacher_forcing_ratio": 0.0}),
    ],
)
def test_a_step_of_every_head_needs_no_cpu(bodies, sample, task, settings, monkeypatch):  # noqa: F811
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 32)
    run_step(bodies("bert"), sample, task, **settings)
