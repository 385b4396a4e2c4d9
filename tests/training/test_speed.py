import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from danseo.config import TrainConfig  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.runs.directory import Run  # noqa: E402
from danseo.training import speed  # noqa: E402
from danseo.training.speed import (  # noqa: E402
    ComputeMode,
    bf16_works,
    choose_mode,
    keeps_half,
    measured_seconds,
    recorded_mode,
    settled_mode,
)
from danseo.training.workers import Workers  # noqa: E402
from tests.tiny import FAMILIES  # noqa: E402
from tests.training.test_optim import network_of  # noqa: E402

CPU = torch.device("cpu")
SDPA, EAGER, HALF_SDPA, HALF_EAGER = (ComputeMode(p, a) for p in ("fp32", "bf16") for a in ("sdpa", "eager"))
TIMES = {HALF_EAGER: 1.0, HALF_SDPA: 2.0, SDPA: 3.0, EAGER: 4.0}


class Inner(nn.Module):
    """An encoder that knows some kinds of attention and fails, or says nothing, at the others."""

    def __init__(self, *known: str, is_deaf: bool = False) -> None:
        super().__init__()
        self.known, self.is_deaf = known, is_deaf
        measures = {"hidden_size": 4, "num_hidden_layers": 3, "model_type": "fake"}
        self.config = SimpleNamespace(_attn_implementation="eager", **measures)
        self.words, self.layers = nn.Embedding(50, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    @property
    def base_model(self):
        return self

    def get_input_embeddings(self):
        return self.words

    def set_attn_implementation(self, name: str) -> None:
        if name in self.known:
            self.config._attn_implementation = name
        elif not self.is_deaf:
            raise ValueError(f"no {name} here")


class OtherHead(Inner):
    """The same body under another name."""


def fake(*known: str, inner: type[Inner] = Inner, **options):
    model = inner(*(known or ("sdpa", "eager")), **options)
    return SimpleNamespace(model=model, use_attention=model.set_attn_implementation)


@pytest.fixture
def trials(monkeypatch) -> list[ComputeMode]:
    """Measured times are those of the table, on a CPU that has bfloat16; the modes that were tried."""
    tried: list[ComputeMode] = []

    def trial(network, mode, device):
        tried.append(mode)
        return TIMES[mode]

    monkeypatch.setattr(speed, "_trial", trial)
    monkeypatch.setattr(speed, "_BF16_TRIAL", "")
    monkeypatch.setattr(speed, "has_bf16", lambda: True)
    return tried


# Choosing


def test_the_fastest_mode_is_measured_once_with_a_word_and_remembered(trials, tmp_path):
    memory, network, notes = tmp_path / "cache" / "measured.json", fake(), []
    assert choose_mode(network, TrainConfig(), CPU, memory, on_note=notes.append) == HALF_EAGER
    assert network.model.config._attn_implementation == "eager"
    assert {mode: trials.count(mode) for mode in TIMES} == dict.fromkeys(TIMES, 4)  # a warm-up and three rounds
    assert len(notes) == 1
    assert notes[0].startswith("measuring")
    trials.clear()
    for same in (fake(), fake(inner=OtherHead)):
        assert choose_mode(same, TrainConfig(), CPU, memory, on_note=notes.append) == HALF_EAGER
    assert choose_mode(fake(), TrainConfig(precision="fp32"), CPU, memory) == SDPA, "the same times say this too"
    assert trials == []
    assert len(notes) == 1


def test_only_what_the_settings_leave_open_is_measured(trials, tmp_path):
    memory = tmp_path / "measured.json"
    assert choose_mode(fake(), TrainConfig(precision="fp32"), CPU, memory) == SDPA
    assert set(trials) == {SDPA, EAGER}
    trials.clear()
    network = fake()
    assert choose_mode(network, TrainConfig(precision="fp32", attention="eager"), CPU, memory) == EAGER
    assert network.model.config._attn_implementation == "eager"
    assert trials == []


def test_little_work_takes_the_usual_mode_whatever_is_remembered(trials, tmp_path):
    """So that the same command computes the same way before and after a measurement."""
    memory = tmp_path / "measured.json"
    for pieces, chosen in ((1000, SDPA), (1e12, HALF_EAGER), (1000, SDPA)):
        assert choose_mode(fake(), TrainConfig(), CPU, memory, pieces) == chosen
    assert choose_mode(fake("eager"), TrainConfig(), CPU, memory, 1000) == EAGER
    assert choose_mode(fake(), TrainConfig(precision="bf16"), CPU, memory, 1000) == HALF_SDPA


def test_a_cpu_without_bfloat16_does_not_try_it(trials, monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "has_bf16", lambda: False)
    assert choose_mode(fake(), TrainConfig(), CPU, tmp_path / "measured.json") == SDPA
    assert set(trials) == {SDPA, EAGER}


@pytest.mark.parametrize(("half", "gains"), [(1.0, True), (2.8, False)])
def test_frozen_weights_of_large_models_lie_in_half_where_products_gain(trials, monkeypatch, tmp_path, half, gains):
    memory, tried = tmp_path / "measured.json", []

    def product(mode):
        tried.append(mode.precision)
        return {"fp32": 3.0, "bf16": half}[mode.precision]

    monkeypatch.setattr(speed, "_product", product)
    assert keeps_half(1e8, CPU, memory) is gains
    assert set(tried) == {"fp32", "bf16"}
    tried.clear()
    assert keeps_half(1e8, CPU, memory) is gains
    assert not keeps_half(1e5, CPU, memory), "a small model"
    monkeypatch.setattr(speed, "has_bf16", lambda: False)
    assert not keeps_half(1e8, CPU, memory)
    assert tried == [], "the times are remembered"


def test_a_product_takes_time_in_both_precisions():
    assert speed._product(SDPA) > 0


def test_a_damaged_memory_is_measured_anew(trials, tmp_path):
    memory = tmp_path / "measured.json"
    memory.write_text("{")
    assert choose_mode(fake(), TrainConfig(), CPU, memory) == HALF_EAGER
    assert trials
    assert json.loads(memory.read_text())


@pytest.mark.parametrize(
    ("device", "has_it", "precision"),
    [("cpu", True, "fp32"), ("cuda", True, "bf16"), ("cuda", False, "fp16"), ("mps", False, "fp32")],
)
def test_the_usual_precision_is_one_that_the_device_has(monkeypatch, device, has_it, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it or including_emulation)
    assert speed.usual_precision(torch.device(device)) == precision


# Attention


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_family_without_an_attention_does_without_it(trials, tmp_path, is_deaf):
    memory, network = tmp_path / "measured.json", fake("eager", is_deaf=is_deaf)
    assert choose_mode(network, TrainConfig(), CPU, memory) == HALF_EAGER
    assert {mode.attention for mode in trials} == {"eager"}
    with pytest.raises(DanseoError, match="no sdpa attention here; use attention=auto"):
        choose_mode(network, TrainConfig(attention="sdpa"), CPU, memory)
    with pytest.raises(DanseoError, match="no sdpa attention here; use attention=auto"):
        SDPA.engage(network)


@pytest.mark.parametrize("pieces", [0, 1e15])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_with_the_attention_that_is_recorded(trials, tmp_path, family, pieces):
    network = network_of(family)
    for wanted in ("auto", "eager", "sdpa"):
        config, arguments = TrainConfig(attention=wanted), (CPU, tmp_path / "measured.json", pieces)
        if (family, wanted) == ("deberta-v2", "sdpa"):  # which would go on with its own
            with pytest.raises(DanseoError, match="no sdpa attention here; use attention=auto"):
                choose_mode(network, config, *arguments)
            continue
        mode = choose_mode(network, config, *arguments)
        assert network.model.config._attn_implementation == mode.attention
        assert wanted in ("auto", mode.attention)


# Runs


def test_a_run_keeps_its_mode_where_settings_and_device_allow(trials, tmp_path):
    run, workers = Run(tmp_path), Workers("cpu")
    assert settled_mode(fake(), TrainConfig(), workers, run, 1000) == SDPA
    assert settled_mode(fake(), TrainConfig(), workers, run, 1e15) == SDPA, "as it began"
    assert recorded_mode(run, TrainConfig(attention="sdpa"), CPU) == SDPA
    assert recorded_mode(run, TrainConfig(attention="eager"), CPU) is None
    assert recorded_mode(run, TrainConfig(precision="bf16"), CPU) is None
    assert recorded_mode(run, TrainConfig(), torch.device("cuda")) is None
    assert recorded_mode(Run(tmp_path / "other"), TrainConfig(), CPU) is None


def test_a_run_that_goes_on_with_other_threads_says_so_and_keeps_both(trials, tmp_path):
    run, workers, notes = Run(tmp_path), Workers("cpu"), []
    threads = torch.get_num_threads()
    settle = partial(settled_mode, fake(), TrainConfig(), workers, run, 1000, notes.append)
    settle()
    assert run.read_json("gear.json")["threads"] == threads
    try:
        torch.set_num_threads(threads + 1)
        settle()
        assert notes == [], "nothing was learned yet: this is the beginning"
        assert run.read_json("gear.json")["threads"] == threads + 1
        run.save_checkpoint({"weight": torch.zeros(1)}, {"step": 1})
        settle()
        assert notes == [], "as it began"
        torch.set_num_threads(threads)
        settle()
    finally:
        torch.set_num_threads(threads)
    assert f"(threads {threads + 1} then, {threads} now): not bit for bit" in notes[0]
    kept = run.read_json("gear.json")
    assert kept["threads"] == threads + 1
    assert [later["threads"] for later in kept["later"]] == [threads]


def test_the_runs_of_a_series_compute_alike(trials, tmp_path):
    """Little work would take the usual mode, and much the fastest; the first to choose decides for all."""
    series, workers = tmp_path / "sweep" / "model.json", Workers("cpu")
    series.parent.mkdir()
    settled = [settled_mode(fake(), TrainConfig(), workers, None, pieces, series=series) for pieces in (1e15, 1000)]
    assert settled == [HALF_EAGER, HALF_EAGER]
    assert [path.name for path in series.parent.iterdir()] == ["model.json"]
    apart = tmp_path / "apart" / "model.json"
    assert settled_mode(fake(), TrainConfig(), workers, None, 1e15, series=apart) == SDPA, "which all would take"


# Measuring


class Clock:
    """Time that passes only where work is done."""

    def __init__(self, monkeypatch, seconds: dict[ComputeMode, float]) -> None:
        self.now, self.seconds, self.tried = 0.0, seconds, []
        monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def trial(self, mode: ComputeMode) -> float:
        self.tried.append(mode)
        self.now += self.seconds[mode]
        return self.seconds[mode]


@pytest.mark.parametrize(
    ("seconds", "trials", "rounds"),
    [
        (0.01, 1e9, 4),  # fast: a warm-up and three rounds
        (0.8, 1e9, 2),  # 1.6 s a round: three seconds are spent after the second
        (20.0, 1e9, 1),  # one pass of each, however slow
        (0.1, 20, 1),  # two seconds of work: no more than a warm-up
        (0.1, 150, 2),  # fifteen seconds: 0.3 s
    ],
)
def test_measuring_ends_with_its_time(monkeypatch, seconds, trials, rounds):
    clock = Clock(monkeypatch, {SDPA: seconds, EAGER: 1.01 * seconds})
    measured = measured_seconds([SDPA, EAGER], clock.trial, trials)
    assert clock.tried == [SDPA, EAGER] * rounds
    assert min(measured, key=measured.get) == SDPA


def test_one_slow_round_decides_nothing():
    times = {SDPA: [9, 1, 1, 9], EAGER: [9, 2, 2, 2]}
    assert measured_seconds(list(times), lambda mode: times[mode].pop(0), 1e9) == {SDPA: 1, EAGER: 2}


def test_a_trial_runs_some_layers_and_leaves_all(monkeypatch, tmp_path):
    network, seen = fake(), []

    def trial(network, mode, device):
        seen.append(list(network.model.layers))
        return TIMES[mode]

    monkeypatch.setattr(speed, "_trial", trial)
    layers = network.model.layers
    choose_mode(network, TrainConfig(precision="fp32"), CPU, tmp_path / "measured.json")
    assert network.model.layers is layers
    assert {tuple(map(id, each)) for each in seen} == {tuple(map(id, layers[-2:]))}


@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False),
        ("raise RuntimeError", False),
        ("import time; time.sleep(999)", False),
        ("pass", True),
    ],
)
def test_a_process_of_its_own_finds_out_whether_bf16_kills(monkeypatch, tmp_path: Path, code, works):
    memory = tmp_path / "measured.json"
    monkeypatch.setattr(speed, "_PATIENCE", 0.5 if "sleep" in code else 60)
    monkeypatch.setattr(speed, "_BF16_TRIAL", code)
    assert bf16_works(memory) is works
    monkeypatch.setattr(speed, "_BF16_TRIAL", "raise SystemExit(not 0)" if works else "pass")
    assert bf16_works(memory) is works, "the answer is remembered"


def test_where_bf16_kills_auto_computes_in_fp32(trials, monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "_BF16_TRIAL", "import os; os.abort()")
    assert choose_mode(fake(), TrainConfig(), CPU, tmp_path / "measured.json") == SDPA


@pytest.mark.parametrize(("task", "freeze"), [("ynat", "none"), ("dp", "none"), ("dp", "encoder")])
def test_a_real_network_can_be_measured(prepared, task, freeze):
    """Also when the encoder is frozen and only a head of our own would learn."""
    model = prepared(task, freeze=freeze)
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    assert speed._trial(model.network, EAGER, CPU) > 0
    assert all(parameter.grad is None for parameter in model.network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_measured_whole_and_comes_back(tmp_path, family):
    network = network_of(family)
    weights = [id(parameter) for parameter in network.parameters()]
    mode = choose_mode(network, TrainConfig(precision="fp32"), CPU, tmp_path / "measured.json")
    assert network.model.config._attn_implementation == mode.attention
    assert [id(parameter) for parameter in network.parameters()] == weights
