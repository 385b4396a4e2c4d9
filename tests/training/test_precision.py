"""Precision and attention: the rule, and what a run and a sweep keep of it."""

from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from danseo.config.train import TrainSettings  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.training import precision  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.network import TrainableNetwork  # noqa: E402
from danseo.training.precision import (  # noqa: E402
    ComputeConfig,
    bf16_works,
    choose_compute_config,
    read_compute_config,
    select_compute_config,
    select_precision,
    stores_bf16,
)
from tests.tiny import FAMILIES  # noqa: E402
from tests.training.test_optimizers import network_of  # noqa: E402

CPU, LARGE = torch.device("cpu"), 1e8
SDPA, EAGER, HALF_SDPA, HALF_EAGER = (ComputeConfig(p, a) for p in ("fp32", "bf16") for a in ("sdpa", "eager"))


class Inner(nn.Module):
    """An encoder with some kinds of attention; for others it raises an error, or says nothing if it is deaf."""

    def __init__(self, *known: str, is_deaf: bool = False) -> None:
        super().__init__()
        self.known, self.is_deaf = known, is_deaf
        self.config = SimpleNamespace(_attn_implementation="eager")
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


class FakeNetwork(TrainableNetwork):
    """A network that reads packed texts where its encoder has an attention for them."""

    def __init__(self, model: Inner, *, packs: bool) -> None:
        super().__init__()
        self.model, self.packs = model, packs

    @property
    def is_packed(self) -> bool:
        return self.packs and self.model.config._attn_implementation in (precision.PACKED, precision.FLASH)


def fake(*known: str, packs: bool = True, **options) -> FakeNetwork:
    return FakeNetwork(Inner(*(known or ("sdpa", "eager")), **options), packs=packs)


@pytest.fixture
def cpu_with_bf16(monkeypatch) -> None:
    """A CPU that has bf16, and a network that is large enough for it."""
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
    monkeypatch.setattr(precision, "bf16_works", lambda: True)
    monkeypatch.setattr(precision, "_LARGE", 10)


# Precision


@pytest.mark.parametrize(
    ("has_it", "works", "size", "chosen"),
    [
        (True, True, LARGE, "bf16"),
        (False, True, LARGE, "fp32"),
        (True, False, LARGE, "fp32"),
        (True, True, 1e6, "fp32"),
    ],
)
def test_a_cpu_takes_bf16_for_large_networks_where_it_has_it_and_survives(monkeypatch, has_it, works, size, chosen):
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: has_it)
    monkeypatch.setattr(precision, "bf16_works", lambda: works)
    assert select_precision("auto", CPU, size) == chosen
    assert stores_bf16(size, CPU) is (chosen == "bf16")


@pytest.mark.parametrize(
    ("device", "has_it", "chosen"), [("cuda", True, "bf16"), ("cuda", False, "fp16"), ("mps", False, "fp32")]
)
def test_a_gpu_takes_the_half_precision_that_it_has(monkeypatch, device, has_it, chosen):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it or including_emulation)
    for size in (1e6, LARGE):
        assert select_precision("auto", torch.device(device), size) == chosen
    for named in ("fp16", "bf16", "fp32"):
        assert select_precision(named, torch.device(device), LARGE) == named


def test_a_small_network_starts_no_other_process(monkeypatch):
    monkeypatch.setattr(precision, "bf16_works", lambda: pytest.fail("nothing is to be tried"))
    assert select_compute_config(fake(), TrainSettings(), CPU) == SDPA
    assert select_precision("fp32", CPU, LARGE) == "fp32"


def test_bf16_by_name_computes_without_amx_where_amx_kills(monkeypatch):
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
    monkeypatch.setattr(precision, "bf16_works", lambda: False)
    monkeypatch.setitem(precision.os.environ, "ONEDNN_MAX_CPU_ISA", "")
    precision.os.environ.pop("ONEDNN_MAX_CPU_ISA")
    assert select_precision("bf16", CPU, LARGE) == "bf16"
    assert precision.os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


@pytest.mark.parametrize(
    ("code", "works"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False),
        ("raise RuntimeError", False),
        ("import time; time.sleep(999)", False),
        ("pass", True),
    ],
)
def test_another_process_finds_out_whether_bf16_kills(monkeypatch, code, works):
    monkeypatch.setattr(precision, "_TRIAL_SECONDS", 0.5 if "sleep" in code else 60)
    monkeypatch.setattr(precision, "_BF16_TRIAL", code)
    assert bf16_works.__wrapped__() is works


# Attention


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_family_without_an_attention_does_without_it(is_deaf):
    network = fake("eager", is_deaf=is_deaf)
    assert select_compute_config(network, TrainSettings(), CPU) == EAGER
    with pytest.raises(DanseoError, match="no sdpa attention"):
        select_compute_config(network, TrainSettings(attn_implementation="sdpa"), CPU)
    with pytest.raises(DanseoError, match="no sdpa attention"):
        SDPA.apply_to(network)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_with_the_attention_that_is_recorded(family):
    network = network_of(family)
    for wanted in ("auto", "eager", "sdpa"):
        config = TrainSettings(attn_implementation=wanted)
        if (family, wanted) == ("deberta-v2", "sdpa"):  # it would keep its own
            with pytest.raises(DanseoError, match="no sdpa attention"):
                select_compute_config(network, config, CPU)
            continue
        chosen = select_compute_config(network, config, CPU)
        assert network.model.config._attn_implementation == chosen.attention
        assert wanted in ("auto", chosen.attention)
        if wanted == "auto":
            assert chosen.attention == ("eager" if family == "deberta-v2" else "packed")


# Runs


def test_a_run_keeps_its_precision_where_settings_and_device_allow(tmp_path, monkeypatch):
    run, workers = Run(tmp_path), Workers("cpu")
    assert choose_compute_config(fake(), TrainSettings(), workers, run) == SDPA
    monkeypatch.setattr(precision, "select_precision", lambda *arguments: "bf16")
    assert choose_compute_config(fake(), TrainSettings(), workers, run) == SDPA, "as recorded"
    assert read_compute_config(run, TrainSettings(attn_implementation="sdpa"), CPU) == SDPA
    assert read_compute_config(run, TrainSettings(attn_implementation="eager"), CPU) is None
    assert read_compute_config(run, TrainSettings(precision="bf16"), CPU) is None
    assert read_compute_config(run, TrainSettings(), torch.device("cuda")) is None
    assert read_compute_config(Run(tmp_path / "other"), TrainSettings(), CPU) is None


def test_a_run_that_resumes_with_other_threads_says_so_and_keeps_both(tmp_path):
    run, workers, notes = Run(tmp_path), Workers("cpu"), []
    threads = torch.get_num_threads()
    settle = partial(choose_compute_config, fake(), TrainSettings(), workers, run, notes.append)
    settle()
    assert run.read_json("compute.json")["threads"] == threads
    try:
        torch.set_num_threads(threads + 1)
        settle()
        assert notes == [], "nothing was learned yet: this is the beginning"
        assert run.read_json("compute.json")["threads"] == threads + 1
        run.save_checkpoint({"weight": torch.zeros(1)}, {"step": 1})
        settle()
        assert notes == [], "as it began"
        torch.set_num_threads(threads)
        settle()
    finally:
        torch.set_num_threads(threads)
    assert f"(threads {threads + 1} then, {threads} now): not bit for bit" in notes[0]
    kept = run.read_json("compute.json")
    assert kept["threads"] == threads + 1
    assert [later["threads"] for later in kept["later"]] == [threads]


def test_the_runs_of_a_sweep_share_the_config_of_the_first(cpu_with_bf16, tmp_path, monkeypatch):
    series, workers = tmp_path / "sweep" / "model.json", Workers("cpu")
    series.parent.mkdir()
    assert choose_compute_config(fake(), TrainSettings(), workers, series=series) == HALF_SDPA
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: False)  # another node
    assert choose_compute_config(fake(), TrainSettings(), workers, series=series) == HALF_SDPA
    assert [path.name for path in series.parent.iterdir()] == ["model.json"]
    apart = tmp_path / "apart" / "model.json"
    assert choose_compute_config(fake(), TrainSettings(), workers, series=apart) == SDPA, "it does not see the folder"
