"""The documented commands for several processes, without --device, on CPUs: one training, one run directory."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from danseo.errors import DanseoError
from danseo.launcher import is_first_process, process_rank, world_size
from danseo.training.distributed import Workers
from tests.tiny import QUICK

LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "PORT"],
    "accelerate": [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--main_process_port", "PORT"),
    ],
    "accelerate --cpu": [sys.executable, "-m", "accelerate.commands.launch", "--cpu"],
}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(folder: Path) -> dict[str, str]:
    """Without any GPU."""
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DANSEO_CACHE": str(folder / "cache")}
    return {**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""}


def train_command(bert: Path, sample: Path, folder: Path) -> list[str]:
    settings = [f"--set={key}={value}" for key, value in {**QUICK, "max_train_samples": 40}.items()]
    return [
        "train",
        "ynat",
        "-m",
        str(bert),
        "--data",
        str(sample),
        "--runs",
        str(folder / "runs"),
        "--json",
        *settings,
    ]


def check_run(folder: Path, processes: int) -> None:
    (run,) = (folder / "runs").glob("ynat--*")
    assert (run / "scores.json").is_file()
    assert not (run / "error.txt").exists()
    assert json.loads((run / "environment.json").read_text("utf-8"))["processes"] == processes
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text("utf-8").splitlines()] == [2, 5]


@pytest.mark.lengthy
@pytest.mark.parametrize(("launcher", "processes"), [("torchrun", 2), ("accelerate", 2), ("accelerate --cpu", 1)])
def test_a_launcher_makes_one_training(launcher, processes, sample, bert, tmp_path):
    line = [part.replace("PORT", str(free_port())) for part in LAUNCHERS[launcher]]
    line += ["-m", "danseo", *train_command(bert, sample, tmp_path)]
    ended = subprocess.run(line, env=environment(tmp_path), capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["scores"], "one process prints"
    check_run(tmp_path, processes)


@pytest.mark.nightly
@pytest.mark.lengthy
def test_processes_of_an_mpi_launcher_make_one_training(sample, bert, tmp_path):
    """As `accelerate launch --cpu --mpirun_hostfile` starts them."""
    common = {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "danseo", *train_command(bert, sample, tmp_path)],
            env=environment(tmp_path)
            | common
            | {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], printed
    assert json.loads(printed[0][0])["scores"]
    assert printed[1][0] == ""
    check_run(tmp_path, 2)


def test_rank_and_number_come_from_one_place(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    assert (process_rank(), world_size(), is_first_process()) == (0, 1, True)
    monkeypatch.setenv("PMI_RANK", "1")  # tasks of a cluster that know nothing of each other
    monkeypatch.setenv("PMI_SIZE", "4")
    assert (process_rank(), world_size()) == (0, 1)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert (process_rank(), world_size(), is_first_process()) == (1, 4, False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (process_rank(), world_size()) == (0, 2)


def test_processes_that_cannot_join_are_refused(monkeypatch):
    """They would all write the same folder."""
    Workers("cpu")  # this process is alone, whatever the environment comes to say
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(DanseoError, match="torchrun"):
        Workers("cpu")
