"""Damaged runs: whatever a file of a run turns into, the command says one line and other runs are still listed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "transformers", "sklearn"):
    pytest.importorskip(needed)

from danseo.errors import DanseoError  # noqa: E402
from danseo.evaluate import evaluate_run  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.predict.stream import predict_lines  # noqa: E402
from danseo.runs.directory import Run  # noqa: E402
from danseo.runs.index import find_runs  # noqa: E402
from danseo.runs.layouts.choose import Choice, chosen_tables  # noqa: E402
from danseo.runs.shapes import ENVIRONMENT, SCORES, has_shape  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402

from .damage import JSON_DAMAGES, ODD_FILES, damaged, put_in_place  # noqa: E402
from .test_fuzz import shortened  # noqa: E402
from .tiny import quick_config, tiny_encoder  # noqa: E402


@pytest.fixture(scope="module")
def small(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with a few dev examples, as hundreds of commands read them."""
    folder = tmp_path_factory.mktemp("small")
    for task in (TASKS["ynat"], TASKS["mrc"]):
        shutil.copytree(sample / task.folder, folder / task.folder)
        dev = folder / task.folder / task.file("dev")
        dev.write_bytes(shortened(task, dev))
    return folder


@pytest.fixture(scope="module")
def runs(sample: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each family."""
    folder = tmp_path_factory.mktemp("damaged")
    encoder = tiny_encoder(folder / "tiny", sample)
    quick = {"limit": 16, "evaluations": 1, "epochs": 0.5}
    wanted = {"majority": ("ynat", "majority"), "linear": ("ynat", "linear"), "encoder": ("mrc", encoder)}
    configs = {name: quick_config(task, model, **quick) for name, (task, model) in wanted.items()}
    return {name: run_experiment(config, small, folder / "runs", quiet=True).path for name, config in configs.items()}


def listed(folder: Path) -> int:
    """How many runs `danseo runs` shows, in all its cells."""
    records = find_runs(folder)
    for table in chosen_tables(records, Choice()):
        table.cells()
    return len(records)


def used(run: Path, data: Path, folder: Path, name: str) -> str:
    """What reading all of a run comes to: nothing, or one line."""
    (folder / "lines.txt").write_text("서울에 비가 왔다.\n")
    question = {"context": "서울에 비가 왔다.", "question": "어디에?"}
    (folder / "lines.jsonl").write_text(json.dumps(question, ensure_ascii=False) + "\n")
    lines = folder / ("lines.jsonl" if run.name.startswith("mrc") else "lines.txt")
    said = ""
    try:
        if name.startswith(("model", "config", "gear")):
            predict_lines(run, str(lines), folder / "answers.jsonl", device="cpu")
        else:
            evaluate_run(run, "dev", None, str(data), device="cpu")
    except DanseoError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 1500
    return said


FILES = {
    "majority": ["config.toml", "scores.json", "environment.json", "model/majority.json"],
    "linear": ["model/linear.json", "model/linear.npz"],
    "encoder": ["model/danseo.json", "model/config.json", "predictions/dev.npz", "gear.json"],
}


@pytest.mark.parametrize("odd", ODD_FILES, ids=lambda odd: odd.__name__)
@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in FILES.items() for name in names])
def test_odd_things_in_the_place_of_files(runs, small, tmp_path, family, name, odd):
    copy = shutil.copytree(runs[family], tmp_path / "runs" / runs[family].name)
    shutil.copytree(runs["majority"], tmp_path / "runs" / "another")
    put_in_place(copy / name, odd)
    assert listed(tmp_path / "runs") == (1 if name == "config.toml" and odd.__name__ == "as_nothing" else 2)
    said = used(copy, small, tmp_path, name)
    if name.startswith("model/"):
        assert str(copy) in said, "a model without one of its files answers nothing"


@pytest.mark.parametrize(
    ("family", "name", "count"),
    [("majority", "model/majority.json", 40), ("majority", "scores.json", 40), ("majority", "environment.json", 20),
     ("linear", "model/linear.json", 10), ("encoder", "model/danseo.json", 20),
     ("encoder", "gear.json", 20)],
)  # fmt: skip
def test_damaged_json_of_runs(runs, small, tmp_path, family, name, count):
    copy = shutil.copytree(runs[family], tmp_path / "runs" / runs[family].name)
    content, refused = (copy / name).read_bytes(), 0
    for number in range(count):
        (copy / name).write_bytes(damaged(content, JSON_DAMAGES, f"run {family} {name}", number)[0])
        assert listed(tmp_path / "runs") == 1
        if name != "scores.json":
            refused += bool(used(copy, small, tmp_path, name))
    assert refused > count / 4 or name == "scores.json"


def scores(**changes: Any) -> dict[str, Any]:
    score = {"id": "a", "value": 1.0, "interval": [0.5, 1.5], "n": 3}
    whole = {"headline": "a", "selected_on": "select", "reported_on": "report", "scores": {"report": [score]}}
    return {**whole, **changes}


def test_what_danseo_writes_has_its_shape(runs):
    for path in runs.values():
        assert has_shape(Run(path).read_json("scores.json"), SCORES)
        assert has_shape(Run(path).read_json("environment.json"), ENVIRONMENT)
    assert has_shape(scores(), SCORES)


@pytest.mark.parametrize(
    "odd",
    [
        [],
        {},
        scores(headline=None),
        scores(scores=[]),
        scores(scores={"report": {}}),
        scores(scores={"report": [{"id": "a", "value": "high"}]}),
        scores(scores={"report": [{"id": "a", "value": 10**400}]}),
        scores(scores={"report": [{"id": "a", "value": 1.0, "interval": 3}]}),
        scores(ensemble={"members": [{"run": 1}]}),
        scores(select_score=[]),
    ],
)
def test_odd_scores(odd):
    assert not has_shape(odd, SCORES)


def test_a_damaged_run_is_one_row(runs, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(runs["majority"], tmp_path / name)
    (tmp_path / "one" / "scores.json").write_text(json.dumps(scores(scores={"report": [3]})))
    found = {record.run.path.name: (record.status, record.note) for record in find_runs(tmp_path)}
    assert found == {"one": ("damaged", "scores.json is not what danseo writes"), "two": ("done", "")}
