"""Sharded training on two processes: the results of one process, and checkpoints for any number of them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.cli import main  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.registry import configure_run  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from tests.models.llm.test_prompt_command import small  # noqa: E402, F401
from tests.tiny import QUICK  # noqa: E402

pytestmark = pytest.mark.lengthy

# 41 examples in batches of 8: in the last batch a process has no example; parts of 64 tokens: their numbers differ.
ENCODER = {**QUICK, "max_train_samples": 41, "epochs": 3, "learning_rate": 2e-3, "evals_per_epoch": 1}
ENCODER |= {"ema_decay": 0.5, "max_batch_tokens": 64, "precision": "fp32"}
LLM = {"train.precision": "fp32", "num_threads": 1, "batch_size": 8, "epochs": 2, "learning_rate": 5e-3}
LLM |= {"max_length": 4000, "evals_per_epoch": 1, "prompt.mode": "likelihood", "max_train_samples": 20}
LLM |= {"gradient_checkpointing": True, "llm.lora_dropout": 0.0}

# Stops like a kill after the evaluation whose number is in STOP, and reports how many weights a process stores.
SCRIPT = """
import os, sys
from danseo.cli import main
from danseo.runs.events import RunEvents
from danseo.training import trainer
from danseo.training.sharding import Shards
report, left = RunEvents.report_evaluation, int(os.environ["STOP"])
def stop(self, *given):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return report(self, *given)
RunEvents.report_evaluation = stop
divide = Shards._divide
def count(self, dtype):
    whole = sum(weight.numel() for weight in self.network.parameters())
    divide(self, dtype)
    parts = [weight.to_local() for weight in self.network.parameters()]
    print("share", sum(part.numel() for part in parts) / whole, {str(part.dtype) for part in parts}, file=sys.stderr)
Shards._divide = count
main(sys.argv[1:])
"""


TORCHRUN = ["torch.distributed.run", "--nproc-per-node", "--master-addr=127.0.0.1", "--master-port"]
ACCELERATE = ["accelerate.commands.launch", "--num_processes", "--multi_gpu", "--main_process_port"]


def launch(
    folder: Path, processes: int, command: list, stop: int = 0, launcher: list[str] = TORCHRUN
) -> tuple[int, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = folder / "script.py"
    script.write_text(SCRIPT, "utf-8")
    module, count, more, port_option = launcher
    line = ["-m", module, f"{count}={processes}", more, f"{port_option}={port}"]
    ended = subprocess.run(
        [sys.executable, *line, str(script), *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "STOP": str(stop)},
    )
    return ended.returncode, ended.stdout


def list_arguments(settings: dict) -> list[str]:
    return [
        f"--set={key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    ]


def assert_same_run(found: Path, expected: Path) -> None:
    logs = [Run(path).read_log() for path in (found, expected)]
    assert [line["loss"] for line in logs[0]] == pytest.approx([line["loss"] for line in logs[1]], rel=2e-3)
    answers = [(path / "predictions" / "dev.jsonl").read_text("utf-8").splitlines() for path in (found, expected)]
    same = sum(json.loads(a)["answer"] == json.loads(b)["answer"] for a, b in zip(*answers, strict=True))
    assert same >= 0.98 * len(answers[0])


def test_two_processes_learn_as_one_and_resume_in_any_number(sample, bert, tmp_path):
    one = run_experiment(
        configure_run("ynat", str(bert), "default", ENCODER), sample, tmp_path / "one", device="cpu", quiet=True
    )
    runs = tmp_path / "two"
    command = ["train", "ynat", "-m", bert, "--data", sample, "--runs", runs, "--device", "cpu"]
    command += list_arguments({**ENCODER, "train.sharding": "full"})
    code, words = launch(tmp_path, 2, command, stop=2)
    assert code != 0, words
    shares = [float(line.split()[1]) for line in words.splitlines() if line.startswith("share")]
    assert len(shares) == 2, words
    assert sum(shares) == pytest.approx(1)
    assert max(shares) < 0.6
    (made,) = runs.glob("ynat--*")
    assert made.name == one.path.name, "sharding changes no result, so it is the same run"
    parts = [path.name for path in (made / "checkpoint").glob("shard-*.safetensors")]
    assert len(parts) == 2
    assert not list((made / "checkpoint").glob(".metadata")), "no pickle"
    code, words = launch(tmp_path, 3, command, stop=2)  # resumes the second epoch, and ends in the third
    assert code != 0, words
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in command])
    assert not ended.value.code
    assert_same_run(made, one.path)
    assert len(Run(made).read_log()) == 3


def test_accelerate_divides_the_weights_as_torchrun_does(sample, bert, tmp_path):
    settings = {**QUICK, "max_train_samples": 24, "precision": "fp32", "train.sharding": "full"}
    command = ["train", "ynat", "-m", bert, "--data", sample, "--runs", tmp_path / "runs", "--device", "cpu"]
    code, words = launch(tmp_path, 2, [*command, *list_arguments(settings)], launcher=ACCELERATE)
    assert code == 0, words
    shares = [float(line.split()[1]) for line in words.splitlines() if line.startswith("share")]
    assert (len(shares), sum(shares)) == (2, pytest.approx(1)), words
    (run,) = (tmp_path / "runs").glob("ynat--*")
    assert json.loads((run / "environment.json").read_text("utf-8"))["processes"] == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("more", "tolerance"),
    [
        ({"llm.lora_rank": 0}, 2e-3),
        ({"llm.lora_rank": 4}, 2e-3),
        ({"llm.lora_rank": 0, "train.precision": "bf16"}, 5e-2),
    ],
)
def test_language_models_learn_as_on_one_process(small, tmp_path, more, tolerance):  # noqa: F811
    config = configure_run("ynat", f"llm:{small / 'tiny'}", "llm", {**LLM, **more})
    one = run_experiment(config, small / "data", tmp_path / "one", device="cpu", quiet=True)
    command = ["train", "ynat", "-m", f"llm:{small / 'tiny'}", "--data", small / "data", "--runs", tmp_path / "two"]
    command += ["--device", "cpu", *list_arguments({**LLM, **more, "train.sharding": "full"})]
    code, words = launch(tmp_path, 2, command)
    assert code == 0, words
    assert words.count("{'torch.float32'}") == 2, "master weights are in float32"
    (made,) = (tmp_path / "two").glob("ynat--*")
    logs = [Run(path).read_log() for path in (made, one.path)]
    assert [line["loss"] for line in logs[0]] == pytest.approx([line["loss"] for line in logs[1]], rel=tolerance)
    assert (
        (made / "model" / ("adapter_model" if more["llm.lora_rank"] else "model")).with_suffix(".safetensors").is_file()
    )
    scores = [Run(path).read_json("scores.json")["select_loss"] for path in (made, one.path)]
    assert scores[0] == pytest.approx(scores[1], rel=max(tolerance, 1e-2))
