"""What GPUs need, as far as a CPU can tell: half precision with a scaled loss, exact sums, and no waiting."""

import os

import pytest

pytest.importorskip("torch")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from danseo.config.train import TrainSettings
from danseo.errors import DanseoError, WorkFailed
from danseo.runs.store import Run
from danseo.training import precision
from danseo.training.optimizers import make_optimizer
from danseo.training.precision import ComputeConfig, configure_torch, select_compute_config
from danseo.training.trainer import Trainer
from danseo.training.training_loop import BatchPlan, Engine, train_steps
from tests.tiny import Watch
from tests.training.test_precision import fake

GPU = torch.device("cuda")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")


class Waits(TorchDispatchMode):
    """Counts what a GPU would be waited for: numbers that are read, and sizes that depend on them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [each for each in (args[1] if name in ("index", "index_put") else ()) if each is not None]
        if name.startswith(WAITING) or any(mask.dtype == torch.bool for mask in masks):
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def steps_of(model, engine: Engine, optimizer=None, **settings):
    config = TrainSettings(batch_size=8, epochs=2, warmup_ratio=0, lr_scheduler_type="constant", **settings)
    plan = BatchPlan([len(record) for record in model.train_features], config, seed=1)
    optimizer = optimizer or make_optimizer(model.network, config)
    return train_steps(engine, model.train_features, plan, optimizer, config)


def engine_of(model, mode: ComputeConfig | None = None) -> Engine:
    model.mode = mode
    return model._engine()


# Waiting


@pytest.mark.parametrize(
    ("task", "precision"), [("ynat", "fp16"), ("sts", "fp32"), ("ner", "fp32"), ("dp", "fp32"), ("mrc", "fp32")]
)
def test_no_step_waits_for_the_device(prepared, task, precision):
    """As on a GPU, where losses are not read."""
    model = prepared(task, class_weights="balanced")
    engine = engine_of(model, ComputeConfig(precision, "packed"))
    engine.reads_at_once = False
    with Waits() as waits:
        steps = [step for _, step in zip(range(3), steps_of(model, engine), strict=False)]
    assert waits.found == []
    assert all(isinstance(step.loss, torch.Tensor) for step in steps)
    with Waits() as waits:
        engine.check_losses()
    assert waits.found == ["_local_scalar_dense"], "the counter counts"


def test_a_loss_that_is_no_number_shows_before_anything_is_kept(prepared, tmp_path, monkeypatch):
    """On a GPU the steps behind it are told already; neither a checkpoint nor an evaluation is made of them."""
    model, run = prepared("ynat", epochs=2, evals_per_epoch=1), Run(tmp_path / "run")
    engine = engine_of(model, ComputeConfig("fp32", "eager"))
    engine.reads_at_once = False
    plain, calls = model.task_head.loss, []

    def breaking(outputs, batch):
        calls.append(len(calls))
        loss, weight = plain(outputs, batch)
        return (loss * float("nan") if len(calls) == 2 else loss), weight

    monkeypatch.setattr(model.task_head, "loss", breaking)
    trainer = Trainer(engine, model.train_features, model.config.train, 1, run)
    with pytest.raises(WorkFailed, match=r"the loss is not a number at step 2; lower train\.learning_rate"):
        trainer.train(lambda: 1.0, Watch())
    assert len(calls) == 3, "the first evaluation is after the third step"
    assert not run.path.exists()


class Order:
    """An engine's kind that notes what is computed and what is read, one after the other."""

    def __init__(self, engine: Engine, monkeypatch) -> None:
        self.seen: list[str] = []
        forward, unpack = engine.forward, engine.objective.unpack
        monkeypatch.setattr(
            engine, "forward", lambda *given, **named: self.seen.append("told") or forward(*given, **named)
        )
        monkeypatch.setattr(engine.objective, "unpack", lambda *given: self.seen.append("read") or unpack(*given))


# FlashAttention


def flashing(*known: str):
    return fake(*(known or ("sdpa", "eager", precision.FLASH)))


@pytest.fixture
def with_flash(monkeypatch):
    monkeypatch.setattr(precision, "find_spec", lambda name: name == "flash_attn" or None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)


def test_flash_attention_is_taken_in_half_precision(with_flash):
    assert select_compute_config(flashing(), TrainSettings(), GPU) == ComputeConfig("bf16", precision.FLASH)
    assert select_compute_config(flashing(), TrainSettings(precision="fp32"), GPU) == ComputeConfig("fp32", "sdpa")
    named = TrainSettings(attn_implementation=precision.FLASH)
    assert select_compute_config(flashing(), named, GPU) == ComputeConfig("bf16", precision.FLASH)
    with pytest.raises(DanseoError, match="computes in half precision"):
        select_compute_config(flashing(), TrainSettings(attn_implementation=precision.FLASH, precision="fp32"), GPU)


# Half precision


def test_half_precision_with_a_scaled_loss_learns_as_full_precision(prepared):
    weights = []
    for half in ("fp32", "fp16"):
        model = prepared("ynat")
        engine = engine_of(model, ComputeConfig(half, "eager"))
        assert engine.scaler.is_enabled() is (half == "fp16")
        before = {name: value.detach().clone() for name, value in model.network.named_parameters()}
        sgd = torch.optim.SGD([{"params": list(model.network.parameters()), "lr": 1.0, "peak": 1.0}])
        engine.reset_scaler({**engine.scaler.state_dict(), "scale": 1024.0} if half == "fp16" else {})
        next(steps_of(model, engine, sgd, max_grad_norm=0.0))
        weights.append({name: value.detach() - before[name] for name, value in model.network.named_parameters()})
    full, rough = (torch.cat([change.flatten() for change in each.values()]) for each in weights)
    assert float(full.norm()) > 1e-2
    assert float((rough - full).norm() / full.norm()) < 0.05


def test_a_step_that_overflows_is_left_out_and_the_scale_falls_and_is_kept(prepared, tmp_path):
    model, run = prepared("ynat", epochs=2, evals_per_epoch=1), Run(tmp_path / "run")
    engine = engine_of(model, ComputeConfig("fp16", "eager"))
    trainer = Trainer(engine, model.train_features, model.config.train, 1, run)
    engine.reset_scaler({**engine.scaler.state_dict(), "scale": 2.0**40})
    before = {name: value.detach().clone() for name, value in model.network.named_parameters()}
    same = []

    def look(step, progress):
        same.append(all(torch.equal(value, before[name]) for name, value in model.network.named_parameters()))

    trainer.train(lambda: 1.0, Watch(look=look))
    assert same[:2] == [True, True], "nothing was learned from infinite gradients"
    scale = engine.scaler.get_scale()
    assert scale <= 2.0**38
    again = Trainer(engine_of(model, ComputeConfig("fp16", "eager")), model.train_features, model.config.train, 1, run)
    assert again.engine.scaler.get_scale() == scale


# Exactness


@pytest.fixture
def switches():
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = False


def test_fp32_is_tf32_on_a_gpu_if_allowed(switches):
    for allowed in (False, True):
        configure_torch(TrainSettings(allow_tf32=allowed), GPU)
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
    assert TrainSettings().allow_tf32


def test_deterministic_algorithms_hold_for_the_run_that_asks(switches, prepared, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    model = prepared("ynat", full_determinism=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    next(steps_of(model, engine_of(model, ComputeConfig("fp32", "eager"))))
    prepared("ynat")
    assert not torch.are_deterministic_algorithms_enabled()
