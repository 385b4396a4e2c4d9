import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.config import TrainConfig  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.training import speed  # noqa: E402
from danseo.training.speed import Gear, bf16_works, choose_gear, fastest, possible_gears  # noqa: E402

CPU = torch.device("cpu")
TIMES = {Gear("bf16", "eager"): 1.0, Gear("bf16", "sdpa"): 2.0, Gear("fp32", "sdpa"): 3.0, Gear("fp32", "eager"): 4.0}


class Inner:
    """An encoder that knows some kinds of attention."""

    def __init__(self, *known: str) -> None:
        self.known, self.attention = known, None
        self.config = type("Config", (), {"hidden_size": 32, "num_hidden_layers": 2})

    def set_attn_implementation(self, name: str) -> None:
        if name not in self.known:
            raise ValueError(f"no {name} here")
        self.attention = name


class Fake:
    """What choosing a gear needs of a network."""

    def __init__(self, *known: str) -> None:
        self.model = Inner(*(known or ("sdpa", "eager")))


@pytest.fixture
def trials(monkeypatch) -> list[Gear]:
    """Measured times are those of the table; the gears that were tried."""
    tried: list[Gear] = []

    def trial(network, gear, device):
        tried.append(gear)
        return TIMES[gear]

    monkeypatch.setattr(speed, "_trial", trial)
    monkeypatch.setattr(speed, "_BF16_TRIAL", "")
    return tried


def test_the_fastest_gear_is_measured_once_and_remembered(trials, tmp_path):
    memory, network = tmp_path / "cache" / "measured.json", Fake()
    assert choose_gear(network, TrainConfig(), CPU, memory) == Gear("bf16", "eager")
    assert network.model.attention == "eager"
    assert {gear: trials.count(gear) for gear in TIMES} == dict.fromkeys(TIMES, 4)  # a warm-up and three rounds
    trials.clear()
    assert choose_gear(Fake(), TrainConfig(), CPU, memory) == Gear("bf16", "eager")
    assert trials == []


def test_only_what_the_settings_leave_open_is_measured(trials, tmp_path):
    memory = tmp_path / "measured.json"
    assert choose_gear(Fake(), TrainConfig(precision="fp32"), CPU, memory) == Gear("fp32", "sdpa")
    assert set(trials) == {Gear("fp32", "sdpa"), Gear("fp32", "eager")}
    trials.clear()
    network = Fake()
    assert choose_gear(network, TrainConfig(precision="fp32", attention="eager"), CPU, memory) == Gear("fp32", "eager")
    assert network.model.attention == "eager"
    assert trials == []


def test_one_slow_round_decides_nothing():
    times = {Gear("fp32", "sdpa"): [9, 1, 1, 9], Gear("fp32", "eager"): [9, 2, 2, 2]}
    assert fastest(list(times), lambda gear: times[gear].pop(0)) == Gear("fp32", "sdpa")


def test_a_damaged_memory_is_measured_anew(trials, tmp_path):
    memory = tmp_path / "measured.json"
    memory.write_text("{")
    assert choose_gear(Fake(), TrainConfig(), CPU, memory) == Gear("bf16", "eager")
    assert trials
    assert json.loads(memory.read_text())


def test_a_family_without_an_attention_does_without_it(trials, tmp_path):
    memory = tmp_path / "measured.json"
    assert {gear.attention for gear in possible_gears(Fake("eager"), TrainConfig(), CPU, memory)} == {"eager"}
    with pytest.raises(DanseoError, match="no sdpa attention; use attention=auto"):
        choose_gear(Fake("eager"), TrainConfig(attention="sdpa"), CPU, memory)


@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False),
        ("raise RuntimeError", False),
        ("pass", True),
    ],
)
def test_a_process_of_its_own_finds_out_whether_bf16_kills(monkeypatch, tmp_path: Path, code, works):
    memory = tmp_path / "measured.json"
    monkeypatch.setattr(speed, "_BF16_TRIAL", code)
    assert bf16_works(memory) is works
    monkeypatch.setattr(speed, "_BF16_TRIAL", "raise SystemExit(not 0)" if works else "pass")
    assert bf16_works(memory) is works, "the answer is remembered"


def test_where_bf16_kills_auto_computes_in_fp32(trials, monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "_BF16_TRIAL", "import os; os.abort()")
    assert choose_gear(Fake(), TrainConfig(), CPU, tmp_path / "measured.json") == Gear("fp32", "sdpa")


@pytest.mark.parametrize(("task", "freeze"), [("ynat", "none"), ("dp", "none"), ("dp", "encoder")])
def test_a_real_network_can_be_measured(prepared, task, freeze):
    """Also when the encoder is frozen and only a head of our own would learn."""
    model = prepared(task, freeze=freeze)
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    assert speed._trial(model.network, Gear("fp32", "eager"), CPU) > 0
    assert all(parameter.grad is None for parameter in model.network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())
