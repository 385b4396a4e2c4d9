"""Without the optional packages: light commands work, and every other one names the extra; none contacts a machine.

The environments are real ones: of this installation, only what the extras ask for.
"""

import json
import os
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from danseo.cli import cli
from danseo.config.run import RunConfig
from danseo.data.prediction_file import write_predictions
from danseo.errors import MissingExtra
from danseo.experiment import run_experiment
from danseo.extras import PACKAGES, find_extra, is_installed, require
from danseo.scoring.score import baseline
from danseo.tasks import TASKS
from tests.conftest import ROOT, Result
from tests.connections import read_attempts, watch_connections
from tests.tiny import read_split

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]


def needed(requirements: list[str]) -> set[str]:
    """The distributions that the requirements come to, with all that those need."""
    found: set[str] = set()
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        new = ({""} | requirement.extras) if name not in found else requirement.extras
        found.add(name)
        waiting += [(text, extra) for extra in new for text in distribution(name).requires or ()]
    return found


def make_environment(folder: Path, *extras: str, source: bool = True) -> Path:
    """The Python of a virtual environment with some extras, and danseo from this checkout unless source=False."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in needed(PROJECT["dependencies"] + [each for extra in extras for each in OPTIONAL[extra]]):
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(distribution(name).locate_file(top))
    if source:
        (site / "danseo.pth").write_text(str(ROOT / "src"))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment whose processes report where they connect to."""
    folder = tmp_path_factory.mktemp("light")
    python = make_environment(folder / "venv")
    watch_connections(next(folder.glob("venv/lib/python*/site-packages")), folder)
    return python


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A folder with all that the commands are called with."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "sample").symlink_to(sample)
    (folder / "encoder").mkdir()
    (folder / "encoder" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "encoder" / "model.safetensors").write_bytes(b"")
    for seed in (1, 2):  # as if an encoder had been trained: nothing here gets as far as its weights
        run = run_experiment(RunConfig(task="ynat", model="majority", seed=seed), sample, folder).path
        config = run / "config.toml"
        config.write_text(config.read_text().replace('"majority"', '"encoder"'))
        run.rename(folder / f"run{seed}")
    tagged = read_split(sample, "ner", "dev")
    write_predictions(folder / "ner.jsonl", baseline("oracle", TASKS["ner"], tagged))
    (folder / "lines.txt").write_text("새 공장 착공\n")
    (folder / "text.txt").write_text("서울에 비가 왔다. 서울은 넓다.\n")
    (folder / "grid.toml").write_text('[base]\ntask = "ynat"\nmodel = "encoder"\n[grid]\nseed = [1, 2]\n')
    (folder / "space.toml").write_text("learning_rate = [1e-4, 1e-3]\n")
    return folder


DRIVER = """
import io, json, os, sys
from danseo.cli import main

results = {}
for command in json.load(sys.stdin):
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    before, os.environ["COMMAND"] = {name for name in os.listdir() if name != "cache"}, command
    try:
        main(command.split())
    except SystemExit as end:
        left = sorted({name for name in os.listdir() if name != "cache"} - before)
        results[command] = [end.code or 0, sys.stdout.getvalue(), sys.stderr.getvalue(), left]
print(json.dumps(results), file=sys.__stdout__)
"""


def run_commands(python: Path, folder: Path, *commands: str) -> dict[str, tuple[Result, list[str]]]:
    """Run commands in one process of another environment; return how each ended, and the files that it left."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "DANSEO_DATA")}
    variables |= {"DANSEO_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [str(python), "-c", DRIVER],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env=variables,
        timeout=300,
        cwd=folder,
    )
    assert ended.returncode == 0, ended.stderr
    return {
        command: (Result(subprocess.CompletedProcess([], *found)), left)
        for command, (*found, left) in json.loads(ended.stdout).items()
    }


WORKS = (
    "--help",
    "tasks",
    "settings",
    "settings ner --recipe official",
    "configs",
    "doctor --data sample",
    "docs",
    "completion bash",
    "data check --data sample",
    "data stats nli --data sample --json",
    "data sample kept",
    "data describe sample/ynat-v1.1/ynat-v1.1_train.json --out made/topics.toml",
    "score ynat sample/ynat-v1.1/ynat-v1.1_dev.json run1/predictions/dev.jsonl --details",
    "compare ynat sample/ynat-v1.1/ynat-v1.1_dev.json run1/predictions/dev.jsonl run2/predictions/dev.jsonl",
    "compare run1 run2 --data sample",
    "runs . --group model,task",
    "published ner --model klue/roberta-base",
    "eval run1 --data sample",
    "ensemble run1 run2 --data sample --runs kept",
    "train ynat -m majority --data sample --runs kept",
    "prompt ynat -m server:x --url http://127.0.0.1:1/v1 --data sample --dry-run",
    "sweep grid.toml --data sample --runs kept --dry-run",
    "pretrain --settings",
    "coref --settings",
    "export",
    "export run1 --to bundle --out made/run1.zip",
    "leaderboard made/run1.zip --data sample --out made/site",
    "report run1 run2 --data sample --out made/report.html",
)
NEEDS = {
    "demo": "train",
    "board runs": "board",
    "train ynat -m encoder --data sample --runs made": "train",
    "train dp -m encoder --data sample --runs made --json": "train",
    "train ynat -m encoder --recipe official --data sample --runs made": "train",
    "train ynat -m linear --data sample --runs made": "train",
    "prompt ynat -m llm:encoder --data sample --runs made": "train,llm",
    "train ynat -m llm:encoder --data sample --runs made": "train,llm",
    "predict run1 lines.txt": "train",
    "predict run1": "train",
    "stress run1 --data sample": "train",
    "distill run1 -m encoder --data sample --runs made": "train",
    "export run1 --to onnx --out made": "train,onnx",
    "serve run1": "serve",
    "eval run1 --data sample --split train": "train",
    "mine ynat -m linear --data sample --runs made --out made": "train",
    "soup run1 run2 --data sample --runs made": "train",
    "score ner sample/klue-ner-v1.1/klue-ner-v1.1_dev.tsv ner.jsonl --tokenizer encoder": "train",
    "probe encoder": "train,ko",
    "pretrain --text text.txt --out made": "train",
    "pretrain --text text.txt --out made --probe-items sample": "train,ko",
    "pretrain --text text.txt --out made --set mask.whole_word=morpheme": "train,ko",
    "coref encoder --text text.txt --out made": "train,ko",
    "data probes --text text.txt --out made": "ko",
    "sweep grid.toml --data sample --runs made": "train",
    "reproduce encoder --tasks ynat --data sample --runs made": "train",
    "sweep grid.toml --data sample --runs made --executor ray": "sweep",
    "tune train ynat -m encoder --data sample --runs made --space space.toml": "sweep,train",
    "tune pretrain --text text.txt --space space.toml --probe-items sample": "sweep,train,ko",
    "tune coref encoder --text text.txt --space space.toml --probe-items sample": "sweep,train,ko",
}
NO_EXTRA = {"data get"}  # its own tests


def names_of(command: click.Command, before: str = "") -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from names_of(inner, f"{before}{name} ") if hasattr(inner, "commands") else (f"{before}{name}",)


def test_every_command_is_tried_without_the_extras() -> None:
    tried = {*WORKS, *NEEDS}
    for name in {*names_of(cli)} - NO_EXTRA:
        assert any(f"{command} ".startswith(f"{name} ") for command in tried), name


def test_light_commands_work_without_any_extra(light: Path, work: Path) -> None:
    for command, (result, _) in run_commands(light, work, *WORKS).items():
        assert result.code == 0, (command, result.err)
        assert result.out, command
    assert read_attempts(light.parents[2]) == []


def assert_extra_is_named(result: Result, command: str, extras: str) -> None:
    assert result.code == 2, command
    assert result.complaint.endswith(f"not installed; run: pip install 'danseo[{extras}]'"), command


def test_other_commands_name_the_extra_and_leave_nothing(light: Path, work: Path) -> None:
    for command, (result, left) in run_commands(light, work, *NEEDS).items():
        assert_extra_is_named(result, command, NEEDS[command])
        assert (result.out, left) == ("", []), command
    assert read_attempts(light.parents[2]) == []


def test_the_doctor_knows_what_is_there(light: Path, work: Path) -> None:
    ((result, _),) = run_commands(light, work, "doctor --data sample --json").values()
    rows = {name: (version, note) for name, version, note in result.json["tables"][0]["rows"]}
    for package in {package for packages in PACKAGES.values() for package in packages}:
        extra = find_extra(package)
        version, note = rows[package]
        assert (version is None, note) == (bool(extra), f"not installed; pip install 'danseo[{extra}]'" * bool(extra))


@pytest.mark.lengthy
def test_with_torch_only_the_missing_extra_is_named(tmp_path: Path, work: Path) -> None:
    missing = {command: extras.replace("train,", "").replace(",train", "") for command, extras in NEEDS.items()}
    missing = {command: extras for command, extras in missing.items() if extras != "train"}
    for command, (result, _) in run_commands(make_environment(tmp_path / "venv", "train"), work, *missing).items():
        assert_extra_is_named(result, command, missing[command])


def test_a_lost_base_package_is_named_too(tmp_path: Path, work: Path) -> None:
    python = make_environment(tmp_path / "venv")
    next(python.parents[1].glob("lib/*/site-packages/scipy")).unlink()
    ((result, _),) = run_commands(python, work, "runs . --group task").values()
    assert result.complaint == "danseo: scipy is not installed; run: pip install danseo"


def test_the_extras_are_those_of_the_project() -> None:
    listed = {extra: [Requirement(text).name for text in texts] for extra, texts in OPTIONAL.items() if extra != "dev"}
    listed[""] = [Requirement(text).name for text in PROJECT["dependencies"]]
    assert {extra: sorted(names) for extra, names in listed.items()} == {e: sorted(p) for e, p in PACKAGES.items()}


def test_several_missing_packages_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_installed("scikit-learn")
    monkeypatch.setattr("danseo.extras.is_installed", lambda package: package == "torch")
    require("torch")
    with pytest.raises(MissingExtra) as caught:
        require("torch", "tokenizers", "optuna", "ray")
    assert str(caught.value) == ("tokenizers, optuna and ray are not installed; run: pip install 'danseo[train,sweep]'")
