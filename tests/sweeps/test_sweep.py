"""danseo sweep from the command line: bad input, kills, interrupts, and several at once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.runs.index import find_runs
from danseo.sweeps.space import read_sweep
from tests.sweeps.test_local import is_alive

GRID = 'task = "ynat"\n[grid]\nmodel = ["majority"]\nseed = [1, 2, 3]\n'


def wait_for(condition: Callable[[], object], seconds: float = 600) -> object:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it never happens"
        time.sleep(0.01)
    return found


def owners(runs: Path) -> dict[str, int]:
    """Run -> the process that has it now."""
    found = {}
    for folder in runs.glob(".locks/*--*"):
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        content = json.loads((folder / str(numbers[-1])).read_text()) if numbers else None
        if content:
            found[folder.name] = content["pid"]
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a sweep in the background; whatever is still there at the end of the test is ended."""
    started = []

    def run(*arguments: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "danseo", "sweep", *map(str, arguments)]
        variables = {**os.environ, "DANSEO_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


# What it does when all goes well


def test_a_grid_runs_once_and_is_then_done(danseo, little, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    before = danseo("sweep", path, "--data", little, "--dry-run", "--json")
    assert [row["state"] for row in before.json["runs"]] == ["new"] * 3
    assert before.json["makespan_seconds"] > 0
    assert not (tmp_path / "runs").exists(), "a dry run leaves nothing"
    first = danseo("sweep", path, "--data", little, "--slots", 2, "--json")
    assert (first.code, first.json["done"], first.err) == (0, 3, "")
    stamps = {row["run"]: (Path(row["run"]) / "scores.json").stat().st_mtime_ns for row in first.json["runs"]}
    again = danseo("sweep", path, "--data", little)
    assert again.code == 0
    assert "status done" in again.out
    assert {run: (Path(run) / "scores.json").stat().st_mtime_ns for run in stamps} == stamps
    after = danseo("sweep", path, "--data", little, "--dry-run")
    assert "0 of 3 runs to do: 0 s on 1 slot (from finished runs of the same task and model)" in after.out


def test_failed_runs_are_shown_with_their_error(danseo, little, tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(GRID)
    planned = danseo("sweep", path, "--data", little, "--dry-run", "--json").json["runs"]
    Path(planned[1]["run"]).mkdir(parents=True)
    (Path(planned[1]["run"]) / "predictions").write_text("in the way")
    result = danseo("sweep", path, "--data", little, "--devices", "cpu,cpu")
    assert result.code == 3
    assert "failed:" in result.out
    assert "dev.jsonl cannot be written:" in " ".join(result.out.split())
    assert result.err.strip().splitlines()[-1] == "danseo: 1 of 3 runs failed; the same command tries them again"
    assert sorted(record.status for record in find_runs(tmp_path / "runs")) == ["done", "done", "failed"]


# Bad input: one line, exit 2, before anything starts

BAD = {
    "lerning_rate = 1e-5\n": "grid.toml: unknown setting 'lerning_rate'; did you mean train.learning_rate?",
    "[grid]\n": "[grid] is empty",
    "[grid]\nseed = []\n": "[grid] seed = []: should be a list with at least one value",
    "[grid]\nseed = 3\n": "[grid] seed = 3: should be a list",
    '[grid]\nseed = ["a"]\n': "seed = 'a': should be int",
    "seed = 1\n": "nothing to choose; add a [grid]",
    "[grid]\nseed = [1\n": "not valid TOML",
    '[grid]\nmodel = ["./nowhere"]\n': "model ./nowhere: no such folder",
    '[grid]\ntask = ["ynat", "ymat"]\nmodel = ["majority"]\n': "did you mean 'ynat'",
    '[grid]\ntask = ["ner"]\nmodel = ["linear"]\n': "the linear model knows",
    'recipe = "best"\n[grid]\nmodel = ["majority"]\n': "no recipe 'best'",
    '[grid]\nmodel = ["majority"]\nmonitor = ["f1"]\n': "train.monitor = f1: ynat has",
    "[[runs]]\nseed = 3\n": "no model given",
    '[resources]\ngpu = 1\n[grid]\nmodel = ["majority"]\n': "[resources]: unknown key 'gpu'; it has cpus",
    '[resources]\nmemory = 1e9\n[grid]\nmodel = ["majority"]\n': "memory = 1000000000.0 GiB per run, but this machine",
    '[grid]\nmodel = ["majority"]\nseed = [1]\nseeds = [2]\n': "seed and seeds are the same setting; write it once",
    'epochs = 1\n[train]\nepochs = 2\n[grid]\nmodel = ["majority"]\n': "epochs and train.epochs are the same setting",
    "[base]\nseed = 1\n[train]\nepochs = 1\n[base.train]\nepochs = 2\n": "train.epochs stands in [base] and at the top",
    'base = 3\n[grid]\nmodel = ["majority"]\n': "base = 3: should be a table",
    '[[runs]]\nmodel = "majority"\nseed = 1\n[grid]\nseed = [2]\n': "seed is chosen in [grid] and in [[runs]]",
    '[gird]\nmodel = ["majority"]\n': "unknown table [gird]; did you mean [grid]?",
    '[[run]]\nmodel = "majority"\n': "unknown table [run]; did you mean [runs]?",
    '[grid]\nmodel = ["linaer"]\n': "no model named 'linaer'; did you mean 'linear'?",
    '[grid]\nmodel = ["bare"]\n': "model bare has no safetensors weights",
    "[search]\ntrials = 3\n": "[search.space] is empty",
    "[search]\ntrials = 3\n[search.space]\nmodel = {low = 1, high = 2}\n": "model is no number",
    "[search]\n[search.space]\nseed = [1]\n": "[search] needs trials",
    '[search]\ntrials = 2\nsampler = "best"\n[search.space]\nseed = [1]\n': "should be one of tpe, random, qmc",
    '[search]\ntrials = 2\n[search.space]\nmonitor = ["headline"]\n': "trials must agree in it to be compared",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_line(text, little, tmp_path, capsys, monkeypatch):
    from danseo.cli import main

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "grid.toml"
    path.write_text(("" if "task =" in text else 'task = "ynat"\n') + text)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(path), "--data", str(little)])
    complaint = capsys.readouterr().err.strip()
    assert ended.value.code == 2
    assert BAD[text] in complaint, complaint
    assert len(complaint.splitlines()) == 1
    assert complaint.count("grid.toml") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--devices", "cuda:7"], "danseo: device cuda:7 does not exist here; there is"),
        (["--devices", "cpu", "--slots", "2"], "--devices and --slots exclude each other"),
        (["--ray-address", "127.0.0.1:1"], "--ray-address goes with --executor ray"),
        (["--executor", "ray", "--devices", "cpu"], "--devices is for this machine"),
        (["--executor", "ray", "--ray-address", "127.0.0.1:1"], "nothing answers there"),
        (["--executor", "ray", "--ray-address", "nonsense"], "should be host:port"),
        (["--runs", "grid.toml"], "--runs grid.toml is a file"),
        (["--runs", "/proc/none"], "--runs /proc/none cannot be written"),
        (["--data", "nowhere"], "danseo: ynat: ynat-v1.1/ynat-v1.1_train.json"),
    ],
)
def test_bad_options_are_one_line(arguments, complaint, little, tmp_path, capsys, monkeypatch):
    from danseo.cli import main

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(path), "--data", str(little), *arguments])
    said = capsys.readouterr().err.strip()
    assert (ended.value.code, len(said.splitlines())) == (2, 1)
    assert complaint in said
    assert time.monotonic() - began < 20
    assert not (tmp_path / "runs").exists()


def test_a_folder_named_in_two_ways_is_one_run(danseo, little, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"hidden_size": 32, "num_hidden_layers": 2}')
    (tmp_path / "tiny" / "model.safetensors").touch()
    path = tmp_path / "grid.toml"
    path.write_text('task = "ynat"\n[grid]\nmodel = ["tiny", "./tiny/"]\n')
    assert len(danseo("sweep", path, "--data", little, "--dry-run", "--json").json["runs"]) == 1


def test_a_directory_with_another_run_is_refused(danseo, little, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1]\n')
    planned = danseo("sweep", path, "--data", little, "--dry-run", "--json").json["runs"][0]["run"]
    Path(planned).mkdir(parents=True)
    (Path(planned) / "config.toml").write_text('task = "ner"\nmodel = "majority"\n')
    result = danseo("sweep", path, "--data", little)
    assert result.code == 2
    assert "holds another run (task = ner, not ynat); move it away" in result.complaint
    assert not (tmp_path / "runs" / ".locks").exists()


# Kills, interrupts, company


def test_two_sweeps_on_one_folder_do_each_run_once(start, little, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID.replace("[1, 2, 3]", "[1, 2, 3, 4, 5]"))
    runs = tmp_path / "runs"
    both = [start(path, "--data", little, "--runs", runs) for _ in range(2)]
    outputs = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    events = [json.loads(line) for line in (runs / "grid.sweep.jsonl").read_text().splitlines()]
    for record in find_runs(runs):
        own = [event for event in events if event["run"] == record.run.path.name]
        begun = sum(event["state"] == "running" for event in own)
        endings = [event["ending"] for event in own if "ending" in event]
        assert (begun, endings.count("done")) == (len(endings), 1), own
        assert {"done", "held", "found"} >= set(endings)


def test_an_interrupt_leaves_no_child(start, sample, tmp_path):
    path, runs = tmp_path / "grid.toml", tmp_path / "runs"
    path.write_text('task = "nli"\nmodel = "linear"\n[grid]\nseed = [1, 2, 3, 4]\n')
    process = start(path, "--data", sample, "--runs", runs, "--slots", 2)
    workers = wait_for(lambda: len(found := owners(runs)) == 2 and found)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "danseo: interrupted"
    assert not any(map(is_alive, workers.values()))
    assert not owners(runs), "the locks are released"


ENCODER = """
task = "ner"
model = {model}
precision = "fp32"
attention = "eager"
epochs = 5
batch_size = 8
learning_rate = 2e-3
swa_start = 2
threads = 1
[grid]
seed = [1]
"""


def predictions(runs: Path) -> dict[str, bytes]:
    return {path.parts[-3]: path.read_bytes() for path in runs.glob("*/predictions/dev.jsonl")}


@pytest.mark.lengthy
def test_killed_workers_and_killed_sweeps_go_on_where_they_were(start, little, sample, tmp_path):
    pytest.importorskip("torch")
    from tests.tiny import tiny_encoder

    model = tiny_encoder(tmp_path / "tiny", sample, layers=1, dropout=0.1)
    path, whole, cut = tmp_path / "encoder.toml", tmp_path / "whole", tmp_path / "cut"
    path.write_text(ENCODER.format(model=json.dumps(str(model))))
    (config,) = read_sweep(path).configs()
    name = run_experiment(config, little, whole, device="cpu", quiet=True).path.name

    def has_got_to(lines: int) -> bool:
        log = cut / name / "log.jsonl"
        return (cut / name / "checkpoint").exists() and log.read_bytes().count(b"\n") >= lines

    process = start(path, "--data", little, "--runs", cut, "--retries", 1)
    wait_for(lambda: has_got_to(2))
    first = owners(cut)[name]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: owners(cut).get(name, first) != first and has_got_to(5))
    second = owners(cut)[name]
    process.kill()
    wait_for(lambda: not is_alive(second), 20)
    assert "retry: killed (signal 9)" in process.communicate()[1]
    assert not predictions(cut), "it was cut short twice"

    again = start(path, "--data", little, "--runs", cut, "--json")
    out, err = again.communicate(timeout=600)
    assert (again.returncode, json.loads(out)["done"]) == (0, 1), err
    assert predictions(cut) == predictions(whole)
    assert (cut / name / "log.jsonl").read_bytes() == (whole / name / "log.jsonl").read_bytes()
    assert not (cut / name / "error.txt").exists()
