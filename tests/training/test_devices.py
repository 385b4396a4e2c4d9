"""What GPUs need, as far as a CPU can tell: half precision with a scaled loss, exact sums, and no waiting."""

import os
import traceback
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from danseo.config import RunConfig, TrainConfig  # noqa: E402
from danseo.errors import DanseoError, WorkFailed  # noqa: E402
from danseo.runs.directory import Run  # noqa: E402
from danseo.settings.declaring import identifying  # noqa: E402
from danseo.settings.values import with_settings  # noqa: E402
from danseo.training import speed  # noqa: E402
from danseo.training.fit import Fitting  # noqa: E402
from danseo.training.loop import Engine, Plan, outputs_of, train_steps  # noqa: E402
from danseo.training.numbers import settle  # noqa: E402
from danseo.training.optim import make_optimizer  # noqa: E402
from danseo.training.speed import ComputeMode, choose_mode, precisions, recorded_mode  # noqa: E402
from tests.tiny import Watch  # noqa: E402
from tests.training.test_speed import fake  # noqa: E402

GPU = torch.device("cuda")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")


class Waits(TorchDispatchMode):
    """Counts what a GPU would be waited for: numbers that are read, and sizes that depend on them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.library: list[str] = []
        """What transformers asks: once per part whether anything is padded."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [each for each in (args[1] if name in ("index", "index_put") else ()) if each is not None]
        if name.startswith(WAITING) or any(mask.dtype == torch.bool for mask in masks):
            asks = any(frame.filename.endswith("masking_utils.py") for frame in traceback.extract_stack())
            (self.library if asks else self.found).append(name)
        return function(*args, **(kwargs or {}))


def steps_of(model, engine: Engine, optimizer=None, **settings):
    config = TrainConfig(batch_size=8, epochs=2, warmup=0, schedule="constant", **settings)
    plan = Plan([len(record) for record in model.train_features], config, seed=1)
    optimizer = optimizer or make_optimizer(model.network, config)
    return train_steps(engine, model.train_features, plan, optimizer, config)


def engine_of(model, mode: ComputeMode | None = None) -> Engine:
    model.mode = mode
    return model._engine()


# Waiting


@pytest.mark.parametrize(
    ("task", "precision"), [("ynat", "fp16"), ("sts", "fp32"), ("ner", "fp32"), ("dp", "fp32"), ("mrc", "fp32")]
)
def test_no_step_waits_for_the_device(prepared, task, precision):
    """As on a GPU, where losses are not read."""
    model = prepared(task, class_weights="balanced")
    engine = engine_of(model, ComputeMode(precision, "eager"))
    engine.is_prompt = False
    with Waits() as waits:
        steps = [step for _, step in zip(range(3), steps_of(model, engine), strict=False)]
    assert waits.found == []
    assert len(waits.library) <= 3
    assert all(isinstance(step.loss, torch.Tensor) for step in steps)
    with Waits() as waits:
        engine.check_losses()
    assert waits.found == ["_local_scalar_dense"], "the counter counts"


def test_a_loss_that_is_no_number_shows_before_anything_is_kept(prepared, tmp_path, monkeypatch):
    """On a GPU the steps behind it are told already; neither a checkpoint nor an evaluation is made of them."""
    model, run = prepared("ynat", epochs=2, evaluations=1), Run(tmp_path / "run")
    engine = engine_of(model, ComputeMode("fp32", "eager"))
    engine.is_prompt = False
    plain, calls = model.kind.loss, []

    def breaking(outputs, batch):
        calls.append(len(calls))
        loss, weight = plain(outputs, batch)
        return (loss * float("nan") if len(calls) == 2 else loss), weight

    monkeypatch.setattr(model.kind, "loss", breaking)
    fitting = Fitting(engine, model.train_features, model.config.train, 1, run)
    with pytest.raises(WorkFailed, match=r"the loss is no number at step 2; lower train\.learning_rate"):
        fitting.run_to_end(lambda: 1.0, Watch())
    assert len(calls) == 3, "the first evaluation is after the third step"
    assert not run.path.exists()


def test_losses_are_read_when_they_are_logged(prepared, tmp_path):
    logs = []
    for is_prompt in (True, False):
        model, run = prepared("ynat", epochs=2, evaluations=1), Run(tmp_path / str(is_prompt))
        engine = engine_of(model, ComputeMode("fp32", "eager"))
        engine.is_prompt = is_prompt
        fitting = Fitting(engine, model.train_features, model.config.train, 1, run)
        fitting.run_to_end(lambda: 1.0, Watch())
        logs.append(run.read_log())
    assert [line["loss"] for line in logs[0]] == pytest.approx([line["loss"] for line in logs[1]])


class Order:
    """An engine's kind that notes what is computed and what is read, one after the other."""

    def __init__(self, engine: Engine, monkeypatch) -> None:
        self.seen: list[str] = []
        forward, unpack = engine.forward, engine.kind.unpack
        monkeypatch.setattr(
            engine, "forward", lambda *given, **named: self.seen.append("told") or forward(*given, **named)
        )
        monkeypatch.setattr(engine.kind, "unpack", lambda *given: self.seen.append("read") or unpack(*given))


def test_a_gpu_has_the_next_part_before_the_last_one_is_read(prepared, monkeypatch):
    found, orders = [], []
    for is_prompt in (True, False):
        model = prepared("ynat")
        engine = engine_of(model, ComputeMode("fp32", "eager"))
        engine.is_prompt, engine.tokens = is_prompt, max(map(len, model.train_features))
        order = Order(engine, monkeypatch)
        found.append(outputs_of(engine, model.train_features))
        orders.append(order.seen)
        monkeypatch.undo()
    count = len(orders[0]) // 2
    assert count > 3
    assert orders[0] == ["told", "read"] * count
    assert orders[1] == ["told", *["told", "read"] * (count - 1), "read"]
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)


def test_a_part_that_does_not_fit_is_halved_while_another_is_out(prepared, monkeypatch):
    model = prepared("ynat")
    engine = engine_of(model, ComputeMode("fp32", "eager"))
    whole = outputs_of(engine, model.train_features)
    engine.is_prompt, forward, calls = False, engine.forward, []

    def short(features, with_gold):
        calls.append(len(features))
        if len(calls) == 2:
            raise torch.OutOfMemoryError
        return forward(features, with_gold)

    engine.tokens = 2 * max(map(len, model.train_features))
    monkeypatch.setattr(engine, "forward", short)
    again = outputs_of(engine, model.train_features)
    assert len(calls) > 3
    for one, other in zip(whole, again, strict=True):
        assert all(one[name] == pytest.approx(other[name], abs=1e-5) for name in one)


# FlashAttention


def flashing(*known: str):
    network = fake(*(known or ("sdpa", "eager", speed.FLASH)))
    network.takes_flash = True
    return network


@pytest.fixture
def with_flash(monkeypatch):
    monkeypatch.setattr(speed, "find_spec", lambda name: name == "flash_attn" or None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")


def test_flash_attention_is_taken_where_it_is_faster(with_flash, monkeypatch, tmp_path):
    tried = []

    def trial(network, mode, device):
        tried.append(mode)
        return 1.0 if mode.attention == speed.FLASH else 2.0

    monkeypatch.setattr(speed, "_trial", trial)
    memory = tmp_path / "measured.json"
    assert choose_mode(flashing(), TrainConfig(), GPU, memory) == ComputeMode("bf16", speed.FLASH)
    assert ComputeMode("fp32", speed.FLASH) not in tried
    assert choose_mode(flashing(), TrainConfig(), GPU, memory, pieces=1000) == ComputeMode("bf16", "sdpa"), "short work"
    assert choose_mode(flashing(), TrainConfig(attention=speed.FLASH), GPU, memory).attention == speed.FLASH
    with pytest.raises(DanseoError, match="computes in half precision"):
        choose_mode(flashing(), TrainConfig(attention=speed.FLASH, precision="fp32"), GPU, memory)


def test_flash_attention_is_for_gpus_with_the_package_and_networks_that_take_it(with_flash, monkeypatch, tmp_path):
    asked, memory = TrainConfig(attention=speed.FLASH), tmp_path / "measured.json"
    for network, device in (
        (fake("sdpa", speed.FLASH), GPU),
        (flashing(), torch.device("cpu")),
        (flashing("sdpa"), GPU),
    ):
        with pytest.raises(DanseoError, match="no flash_attention_2 attention here; use attention=auto"):
            choose_mode(network, asked, device, memory)
    run = Run(tmp_path / "run")
    run.write_json("gear.json", {"precision": "bf16", "attention": speed.FLASH, "device": "cuda"})
    assert recorded_mode(run, TrainConfig(), GPU) == ComputeMode("bf16", speed.FLASH)
    monkeypatch.setattr(speed, "find_spec", lambda name: None)
    assert recorded_mode(run, TrainConfig(), GPU) is None, "it is chosen anew on a machine without the package"
    with pytest.raises(DanseoError, match="no flash_attention_2 attention here"):
        choose_mode(flashing(), asked, GPU, memory)


# Half precision


def test_half_precision_with_a_scaled_loss_learns_as_full_precision(prepared):
    weights = []
    for precision in ("fp32", "fp16"):
        model = prepared("ynat")
        engine = engine_of(model, ComputeMode(precision, "eager"))
        assert engine.scaler.is_enabled() is (precision == "fp16")
        before = {name: value.detach().clone() for name, value in model.network.named_parameters()}
        sgd = torch.optim.SGD([{"params": list(model.network.parameters()), "lr": 1.0, "peak": 1.0}])
        engine.renew_scaler({**engine.scaler.state_dict(), "scale": 1024.0} if precision == "fp16" else {})
        next(steps_of(model, engine, sgd, clip=0.0))
        weights.append({name: value.detach() - before[name] for name, value in model.network.named_parameters()})
    full, half = (torch.cat([change.flatten() for change in each.values()]) for each in weights)
    assert float(full.norm()) > 1e-2
    assert float((half - full).norm() / full.norm()) < 0.05


def test_a_step_that_overflows_is_left_out_and_the_scale_falls_and_is_kept(prepared, tmp_path):
    model, run = prepared("ynat", epochs=2, evaluations=1), Run(tmp_path / "run")
    engine = engine_of(model, ComputeMode("fp16", "eager"))
    fitting = Fitting(engine, model.train_features, model.config.train, 1, run)
    engine.renew_scaler({**engine.scaler.state_dict(), "scale": 2.0**40})
    before = {name: value.detach().clone() for name, value in model.network.named_parameters()}
    same = []

    def look(step, progress):
        same.append(all(torch.equal(value, before[name]) for name, value in model.network.named_parameters()))

    fitting.run_to_end(lambda: 1.0, Watch(look=look))
    assert same[:2] == [True, True], "nothing was learned from infinite gradients"
    scale = engine.scaler.get_scale()
    assert scale <= 2.0**38
    again = Fitting(engine_of(model, ComputeMode("fp16", "eager")), model.train_features, model.config.train, 1, run)
    assert again.engine.scaler.get_scale() == scale


@pytest.mark.parametrize(("has_it", "half"), [(False, "fp16"), (True, "bf16")])
def test_cards_without_bf16_take_fp16(monkeypatch, tmp_path, has_it, half):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it or including_emulation)
    memory = tmp_path / "measured.json"
    assert precisions(TrainConfig(), GPU, memory) == (half, "fp32")
    for named in ("fp16", "bf16", "fp32"):
        assert precisions(TrainConfig(precision=named), GPU, memory) == (named,)
    assert choose_mode(fake(), TrainConfig(), GPU, memory, pieces=1000) == ComputeMode(half, "sdpa")
    assert precisions(TrainConfig(precision="fp16"), torch.device("cpu"), memory) == ("fp16",)


def test_a_gpu_is_measured_with_batches_that_fill_it():
    rows, width = speed._shape(fake(), GPU)
    assert rows * width == TrainConfig().batch_tokens
    assert speed._shape(SimpleNamespace(shape=(2, 512)), GPU) == (16, 512)
    assert speed._shape(SimpleNamespace(shape=(2, 512)), torch.device("cpu")) == (2, 512)


# Exactness


@pytest.fixture
def switches():
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = False


def test_fp32_is_tf32_on_a_gpu_unless_exact(switches):
    for exact in (False, True):
        settle(TrainConfig(exact=exact), GPU)
        assert torch.backends.cuda.matmul.allow_tf32 is not exact
        assert torch.backends.cudnn.allow_tf32 is not exact


def test_deterministic_algorithms_hold_for_the_run_that_asks(switches, prepared, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    model = prepared("ynat", deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    next(steps_of(model, engine_of(model, ComputeMode("fp32", "eager"))))
    prepared("ynat")
    assert not torch.are_deterministic_algorithms_enabled()


def test_runs_that_do_not_ask_keep_their_names():
    config = RunConfig(task="ynat", model="some/encoder")
    assert not {"train.exact", "train.deterministic"} & identifying(config).keys()
    asked = identifying(with_settings(config, {"exact": True, "deterministic": True}))
    assert asked["train.exact"] is asked["train.deterministic"] is True
