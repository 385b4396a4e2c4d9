"""Several processes: as one process would do it, on two that talk through 127.0.0.1."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.registry import configure_run  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from tests.tiny import QUICK, read_split  # noqa: E402

pytestmark = pytest.mark.lengthy

# 121 examples in batches of 8: the last batch has one example, so that a process goes without.
SETTINGS = {
    **QUICK,
    "max_train_samples": 121,
    "epochs": 6,
    "learning_rate": 2e-3,
    "evals_per_epoch": 1,
    "ema_decay": 0.5,
}


def rank_of(rank: int, world: int) -> Workers:
    """One of several processes, as far as sharing goes."""
    workers = Workers("cpu")
    workers.rank, workers.world = rank, world
    return workers


@pytest.mark.parametrize(("count", "world"), [(10, 2), (11, 3), (1, 2), (0, 2)])
def test_shares_cover_everything_once(monkeypatch, count, world):
    shares = [rank_of(rank, world).shard(range(count)) for rank in range(world)]
    assert sorted(item for share in shares for item in share) == list(range(count))

    def exchange(parts, own, group):
        parts[:] = shares

    monkeypatch.setattr(torch.distributed, "all_gather_object", exchange)
    monkeypatch.setattr("danseo.training.distributed._cpu_group", lambda: None)
    assert rank_of(0, world).all_gather(shares[0]) == list(range(count))


@pytest.mark.parametrize("name", ["banana", "cuda:99", "cpu cpu"])
def test_a_device_that_is_not_there_is_one_line(name):
    with pytest.raises(DanseoError, match=f"device {name} cannot be used: .+") as caught:
        Workers(name)
    assert "\n" not in str(caught.value)


# Two nodes that share no folder. The second one is short of memory: in its forward pass, so that both must work in
# smaller parts, once in the update (the fourth step), and once where gradients meet (it goes without an example then).
SHORT_OF_MEMORY = """
import atexit, os, pathlib, sys, torch
os.environ["LOCAL_RANK"] = "0"
def say_threads():
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    print("threads left", sum("gloo" in name for name in names), file=sys.stderr)
atexit.register(say_threads)  # the first to come is the last to go
from danseo.cli import main
from danseo.models.encoder.network import Network  # noqa: E402
from danseo.training import distributed
second, left = os.environ["RANK"] == "1", {"update": 4, "meeting": 1}
def limited(function, name, is_much=lambda *given: True):
    def call(*given, **named):
        if second and is_much(*given):
            left[name] = left.get(name, 10**9) - 1
            if left[name] == 0 or name == "forward":
                print("short of memory:", name, file=sys.stderr)
                raise torch.OutOfMemoryError("CUDA out of memory")
        return function(*given, **named)
    return call
Network.forward = limited(Network.forward, "forward", lambda self, batch: batch["input_ids"].numel() > 80)
torch.optim.AdamW.step = limited(torch.optim.AdamW.step, "update")
distributed._add_missing_gradients = limited(distributed._add_missing_gradients, "meeting")
def say_timeout():
    group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
    print("timeout", group.options._timeout.total_seconds(), file=sys.stderr)
try:
    main([argument.replace("NODE", os.environ["RANK"]) for argument in sys.argv[1:]])
finally:
    say_timeout()
"""


@pytest.fixture(scope="module")
def one_and_two(sample: Path, bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run directories of the same settings on one process and on two."""
    folder = tmp_path_factory.mktemp("workers")
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    script = folder / "short_of_memory.py"
    script.write_text(SHORT_OF_MEMORY, "utf-8")
    runs = folder / "two" / "NODE"
    command = ["train", "ynat", "-m", bert, "--data", sample, "--runs", runs, "--device", "cpu", *settings]
    process = subprocess.Popen(
        [sys.executable, *launcher, str(script), *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DANSEO_CACHE": str(folder / "cache")},
    )
    one = run_experiment(
        configure_run("ynat", str(bert), "default", SETTINGS), sample, folder / "one", device="cpu", quiet=True
    )  # meanwhile
    words, _ = process.communicate(timeout=600)
    assert process.returncode == 0, words
    for where in ("forward", "update", "meeting"):
        assert f"short of memory: {where}" in words
    assert "split into parts of at most 64 tokens" in words
    timeouts = [float(line.split()[1]) for line in words.splitlines() if line.startswith("timeout")]
    assert min(timeouts) >= 6 * 3600, "the first process may tokenise for hours"
    assert words.count("threads left 0") == 2, "a thread that goes on while Python ends may abort it"
    assert [path.name for path in (folder / "two").iterdir()] == ["0"], "one of them writes"
    (two,) = (folder / "two" / "0").glob("ynat--*")
    return one.path, two


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_json(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def test_two_processes_lose_and_double_nothing(one_and_two, sample):
    guids = [example.guid for example in read_split(sample, "ynat", "dev")]
    for run in one_and_two:
        assert [line["guid"] for line in read_lines(run / "predictions" / "dev.jsonl")] == guids


def test_two_processes_answer_as_one(one_and_two):
    one, two = (read_lines(run / "predictions" / "dev.jsonl") for run in one_and_two)
    assert len({line["answer"] for line in one}) > 1, "the model should give more than one answer"
    assert [line["answer"] for line in one] == [line["answer"] for line in two]
    for mine, theirs in zip(one, two, strict=True):
        assert mine["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-3)


def test_two_processes_score_as_one(one_and_two):
    one, two = (read_json(run / "scores.json") for run in one_and_two)
    for split in ("report", "dev"):
        for mine, theirs in zip(one["scores"][split], two["scores"][split], strict=True):
            assert mine["value"] == pytest.approx(theirs["value"], abs=1e-3)
    losses = [[line["loss"] for line in read_lines(run / "log.jsonl")] for run in one_and_two]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_two_processes_count_their_pieces_together(one_and_two):
    one, two = (read_json(run / "environment.json") for run in one_and_two)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert two["data"] == one["data"]
    assert one_and_two[0].name == one_and_two[1].name
