"""danseo sweep from the command line: bad input, kills, interrupts, and several at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.runs.index import find_runs
from danseo.sweeps.sweep_file import read_sweep
from tests.sweeps.conftest import is_alive, wait_for

GRID = 'task = "ynat"\n[grid]\nmodel = ["majority"]\nseed = [1, 2]\n'


def read_owners(runs: Path) -> dict[str, int]:
    """Return the process that holds the lock of each run."""
    locks = [path for path in runs.glob(".locks/*--*") if not path.name.startswith(".")]
    return {path.name: owner["pid"] for path in locks if (owner := json.loads(path.read_text()))}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a sweep in the background, until the end of the test at most."""
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


def test_a_grid_runs_once(invoke, little, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    before = invoke("sweep", "grid.toml", "--data", little, "--dry-run", "--json").json
    assert [row["state"] for row in before["runs"]] == ["new"] * 2
    assert before["makespan_seconds"] > 0
    assert not (tmp_path / "runs").exists()
    first = invoke("sweep", "grid.toml", "--data", little, "--slots", 2, "--json")
    assert (first.code, first.json["done"], first.err) == (0, 2, "")
    scores = [Path(row["run"]) / "scores.json" for row in first.json["runs"]]
    times = [path.stat().st_mtime_ns for path in scores]
    again = invoke("sweep", "grid.toml", "--data", little)
    assert again.code == 0
    assert "status done" in again.out
    assert [path.stat().st_mtime_ns for path in scores] == times
    assert "0 of 2 runs to do: 0 s" in invoke("sweep", "grid.toml", "--data", little, "--dry-run").out


def test_failed_runs_have_their_error(invoke, little, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    planned = invoke("sweep", "grid.toml", "--data", little, "--dry-run", "--json").json["runs"]
    Path(planned[1]["run"]).mkdir(parents=True)
    (Path(planned[1]["run"]) / "predictions").write_text("in the way")
    result = invoke("sweep", "grid.toml", "--data", little, "--devices", "cpu,cpu")
    assert result.code == 3
    assert "dev.jsonl cannot be written:" in " ".join(result.out.split())
    assert "1 of 2 runs failed" in result.err.splitlines()[-1]
    assert sorted(record.status for record in find_runs(tmp_path / "runs")) == ["done", "failed"]


ENSEMBLE = """task = "ynat"
model = "majority"
[grid]
max_train_samples = [10, 20]
seed = [1, 2]
[ensemble]
by = "seed"
"""


def list_ensembles(runs: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in runs.glob("*--ensemble-*/scores.json")}


def test_a_sweep_ends_with_the_ensemble_of_each_seed(invoke, little, tmp_path):
    (tmp_path / "grid.toml").write_text(ENSEMBLE)
    planned = invoke("sweep", "grid.toml", "--data", little, "--dry-run")
    assert "4 of 4 runs to do, and 2 ensembles" in planned.out
    first = invoke("sweep", "grid.toml", "--data", little, "--slots", 2)
    assert first.code == 0
    made = list_ensembles(tmp_path / "runs")
    assert sorted(name.split("--")[2] for name in made) == ["s1", "s2"]
    lines = [" ".join(line.split()) for line in first.out.splitlines()]
    rows = [line.split() for line in lines if line.endswith(" OK")]
    assert [(row[0], row[1].split("-")[0]) for row in rows] == [
        (seed, model) for seed in "12" for model in ("majority", "majority", "ENSEMBLE")
    ]
    assert any(line.startswith("ENSEMBLE-prob of majority") for line in lines), "mean and std over seeds"
    (tmp_path / "runs" / min(made) / "scores.json").unlink()  # as if killed while it was made
    again = invoke("sweep", "grid.toml", "--data", little, "--json")
    assert (again.code, len(again.json["ensembles"]), again.json["ensemble_errors"]) == (0, 2, [])
    after = list_ensembles(tmp_path / "runs")
    assert after.keys() == made.keys()
    assert after[max(made)] == made[max(made)], "a finished one is not made again"


@pytest.mark.lengthy
def test_a_failed_member_leaves_its_ensemble_incomplete(invoke, little, tmp_path):
    (tmp_path / "grid.toml").write_text(ENSEMBLE + 'method = "vote"\n')
    planned = invoke("sweep", "grid.toml", "--data", little, "--dry-run", "--json").json["runs"]
    broken = next(Path(row["run"]) for row in planned if row["settings"] == {"max_train_samples": 10, "seed": 1})
    broken.mkdir(parents=True)
    (broken / "predictions").write_text("in the way")
    result = invoke("sweep", "grid.toml", "--data", little, "--slots", 2)
    assert result.code == 3
    assert "INCOMPLETE: majority failed" in " ".join(result.out.split())
    assert [name.split("--")[1:3] for name in list_ensembles(tmp_path / "runs")] == [["ensemble-vote", "s2"]]
    (broken / "predictions").unlink()
    again = invoke("sweep", "grid.toml", "--data", little, "--json")
    assert (again.code, len(again.json["ensembles"])) == (0, 2)


def test_an_ensemble_that_cannot_be_made_is_named(invoke, little, tmp_path):
    text = 'task = "ner"\n[grid]\nmodel = ["majority"]\nseed = [1, 2]\n[ensemble]\nby = "model"\nmethod = "prob"\n'
    (tmp_path / "grid.toml").write_text(text)
    result = invoke("sweep", "grid.toml", "--data", little)
    assert result.code == 3
    assert "1 ensemble failed" in result.err.splitlines()[-1]
    assert "use --method vote" in result.err.splitlines()[-1]


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
    '[grid]\ntask = ["ner"]\nmodel = ["linear"]\n': "the linear model supports",
    'recipe = "best"\n[grid]\nmodel = ["majority"]\n': "no recipe 'best'",
    '[grid]\nmodel = ["majority"]\nmetric_for_best_model = ["f1"]\n': "train.metric_for_best_model = f1: ynat has",
    "[[runs]]\nseed = 3\n": "no model given",
    '[resources]\ngpu = 1\n[grid]\nmodel = ["majority"]\n': "[resources]: unknown key 'gpu'; it has cpus",
    '[resources]\nmemory = 1e9\n[grid]\nmodel = ["majority"]\n': "memory = 1000000000.0 GiB per run, but this machine",
    '[grid]\nmodel = ["majority"]\nseed = [1]\nseeds = [2]\n': "seed and seeds are the same setting; write it once",
    'epochs = 1\n[train]\nepochs = 2\n[grid]\nmodel = ["majority"]\n': "epochs and train.epochs are the same setting",
    "[base]\nseed = 1\n[train]\nepochs = 1\n[base.train]\nepochs = 2\n": "train.epochs is in [base] and at the top",
    'base = 3\n[grid]\nmodel = ["majority"]\n': "base = 3: should be a table",
    '[[runs]]\nmodel = "majority"\nseed = 1\n[grid]\nseed = [2]\n': "seed is chosen in [grid] and in [[runs]]",
    '[gird]\nmodel = ["majority"]\n': "unknown table [gird]; did you mean [grid]?",
    '[[run]]\nmodel = "majority"\n': "unknown table [run]; did you mean [runs]?",
    '[grid]\nmodel = ["linaer"]\n': "no model named 'linaer'; did you mean 'linear'?",
    '[grid]\nmodel = ["bare"]\n': "model bare has no safetensors weights",
    '[grid]\ntask = ["ynat", "ner"]\nmodel = ["majority"]\n[ensemble]\n': "seed = 42: an ensemble over different tasks",
    '[grid]\nmodel = ["majority"]\n[ensemble]\n': "[ensemble] seed = 42: only one run",
    '[grid]\nmodel = ["majority"]\n[ensemble]\nby = "sed"\n': "unknown setting 'sed'",
    '[grid]\nmodel = ["majority"]\n[ensemble]\nmethod = "mean"\n': "[ensemble] method = 'mean': should be 'prob'",
    '[grid]\nmodel = ["majority"]\n[ensemble]\nmembers = ["linear"]\n': "[ensemble] members: no run has the model",
    "[ensemble]\n[search]\ntrials = 3\n[search.space]\nseed = [1]\n": "[ensemble] goes with [grid] or [[runs]]",
    "[search]\ntrials = 3\n": "[search.space] is empty",
    "[search]\ntrials = 3\n[search.space]\nmodel = {low = 1, high = 2}\n": "model is no number",
    "[search]\n[search.space]\nseed = [1]\n": "[search] needs trials",
    '[search]\ntrials = 2\nsampler = "best"\n[search.space]\nseed = [1]\n': "sampler = 'best': should be 'tpe'",
    '[search]\ntrials = 2\n[search.space]\nmetric_for_best_model = ["headline"]\n': "trials must agree in it",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_line(text, little, tmp_path, invoke):
    (tmp_path / "grid.toml").write_text(("" if "task =" in text else 'task = "ynat"\n') + text)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "bert"}')
    result = invoke("sweep", "grid.toml", "--data", little)
    assert result.code == 2
    assert BAD[text] in result.complaint
    assert result.complaint.count("grid.toml") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--devices", "cuda:7"], "device cuda:7 does not exist here"),
        (["--devices", "cpu", "--slots", "2"], "--devices and --slots exclude each other"),
        (["--ray-address", "127.0.0.1:1"], "--ray-address goes with --executor ray"),
        (["--executor", "ray", "--devices", "cpu"], "--devices is for this machine"),
        (["--executor", "ray", "--ray-address", "127.0.0.1:1"], "no server answers"),
        (["--executor", "ray", "--ray-address", "nonsense"], "should be host:port"),
        (["--runs", "grid.toml"], "--runs grid.toml is a file"),
        (["--runs", "/proc/none"], "--runs /proc/none cannot be written"),
        (["--data", "nowhere"], "ynat-v1.1_train.json"),
    ],
)
def test_bad_options_are_one_line(arguments, complaint, little, tmp_path, invoke):
    (tmp_path / "grid.toml").write_text(GRID)
    result = invoke("sweep", "grid.toml", "--data", little, *arguments)
    assert result.code == 2
    assert complaint in result.complaint
    assert not (tmp_path / "runs").exists()


def test_a_folder_with_two_names_is_one_run(invoke, little, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"hidden_size": 32, "num_hidden_layers": 2}')
    (tmp_path / "tiny" / "model.safetensors").touch()
    (tmp_path / "grid.toml").write_text('task = "ynat"\n[grid]\nmodel = ["tiny", "./tiny/"]\n')
    assert len(invoke("sweep", "grid.toml", "--data", little, "--dry-run", "--json").json["runs"]) == 1


def test_a_directory_with_another_run_is_refused(invoke, little, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    planned = Path(invoke("sweep", "grid.toml", "--data", little, "--dry-run", "--json").json["runs"][0]["run"])
    planned.mkdir(parents=True)
    (planned / "config.toml").write_text('schema = 2\ntask = "ner"\nmodel = "majority"\n')
    result = invoke("sweep", "grid.toml", "--data", little)
    assert result.code == 2
    assert "holds another run (task = ner, not ynat)" in result.complaint
    assert not (tmp_path / "runs" / ".locks").exists()


@pytest.mark.lengthy
def test_two_sweeps_share_a_folder(start, little, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
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


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.lengthy), signal.SIGTERM])
def test_an_interrupt_leaves_no_child(start, sample, tmp_path, number):
    path, runs = tmp_path / "grid.toml", tmp_path / "runs"
    path.write_text('task = "nli"\nmodel = "linear"\n[grid]\nseed = [1, 2, 3, 4]\n')
    process = start(path, "--data", sample, "--runs", runs, "--slots", 2)
    workers = wait_for(lambda: len(found := read_owners(runs)) == 2 and found)
    process.send_signal(number)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "danseo: interrupted"
    assert not any(map(is_alive, workers.values()))
    assert not read_owners(runs), "the locks are released"


NO_LINKS = """
import os

def refuse(*arguments, **options):
    raise PermissionError(1, "Operation not permitted")

os.link = refuse
"""


def test_a_sweep_works_without_hard_links(danseo, little, tmp_path):
    """As on exFAT and some network file systems; Python reads the module in every process of the sweep."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(NO_LINKS)
    (tmp_path / "grid.toml").write_text('task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1]\n')
    result = danseo("sweep", "grid.toml", "--data", little, PYTHONPATH=str(tmp_path / "lib"))
    assert result.code == 0, result.err
    assert len(list((tmp_path / "runs").glob("*/scores.json"))) == 1


ENCODER = """
task = "ner"
model = {model}
precision = "fp32"
attn_implementation = "eager"
epochs = 5
batch_size = 8
learning_rate = 2e-3
swa_start_epoch = 2
num_threads = 1
[grid]
seed = [1]
"""


def read_predictions(runs: Path) -> dict[str, bytes]:
    return {path.parts[-3]: path.read_bytes() for path in runs.glob("*/predictions/dev.jsonl")}


@pytest.mark.lengthy
def test_killed_workers_and_sweeps_resume(start, little, sample, tmp_path):
    pytest.importorskip("torch")
    from tests.tiny import tiny_encoder

    model = tiny_encoder(tmp_path / "tiny", sample, layers=1, dropout=0.1)
    path, whole, cut = tmp_path / "encoder.toml", tmp_path / "whole", tmp_path / "cut"
    path.write_text(ENCODER.format(model=json.dumps(str(model))))
    (config,) = read_sweep(path).configs()
    name = run_experiment(config, little, whole, device="cpu", quiet=True).path.name

    def has_reached(lines: int) -> bool:
        log = cut / name / "log.jsonl"
        return (cut / name / "checkpoint").exists() and log.read_bytes().count(b"\n") >= lines

    process = start(path, "--data", little, "--runs", cut, "--retries", 1)
    wait_for(lambda: has_reached(2))
    first = read_owners(cut)[name]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: read_owners(cut).get(name, first) != first and has_reached(5))
    second = read_owners(cut)[name]
    process.kill()
    wait_for(lambda: not is_alive(second), 20)
    assert "retry: killed (signal 9)" in process.communicate()[1]
    assert not read_predictions(cut), "it was cut short twice"

    again = start(path, "--data", little, "--runs", cut, "--json")
    out, err = again.communicate(timeout=600)
    assert (again.returncode, json.loads(out)["done"]) == (0, 1), err
    assert read_predictions(cut) == read_predictions(whole)
    assert (cut / name / "log.jsonl").read_bytes() == (whole / name / "log.jsonl").read_bytes()
    assert not (cut / name / "error.txt").exists()
