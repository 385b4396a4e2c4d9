"""Damaged runs: whatever a file of a run turns into, the command says one line and other runs are still listed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "transformers", "sklearn"):
    pytest.importorskip(needed)

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.inference.evaluation import evaluate_run  # noqa: E402
from danseo.inference.predict import predict_lines  # noqa: E402
from danseo.runs.index import find_runs  # noqa: E402
from danseo.runs.schemas import ENVIRONMENT, SCORES, matches_schema  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.tables.choose import TableChoice, choose_tables  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402

from .damage import JSON_DAMAGES, ODD_FILES, as_folder, as_nothing, as_pipe, damaged, put_in_place  # noqa: E402
from .mutations import write_zip  # noqa: E402
from .test_fuzz import shorten  # noqa: E402
from .tiny import quick_config, tiny_encoder  # noqa: E402


@pytest.fixture(scope="module")
def small(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with a few dev examples, as hundreds of commands read them."""
    folder = tmp_path_factory.mktemp("small")
    for task in (TASKS["ynat"], TASKS["mrc"]):
        shutil.copytree(sample / task.folder, folder / task.folder)
        dev = folder / task.folder / task.file("dev")
        dev.write_bytes(shorten(task, dev))
    return folder


@pytest.fixture(scope="module")
def runs(sample: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each family."""
    folder = tmp_path_factory.mktemp("damaged")
    encoder = tiny_encoder(folder / "tiny", sample)
    quick = {"max_train_samples": 16, "evals_per_epoch": 1, "epochs": 0.5}
    wanted = {"majority": ("ynat", "majority"), "linear": ("ynat", "linear"), "encoder": ("mrc", encoder)}
    configs = {name: quick_config(task, model, **quick) for name, (task, model) in wanted.items()}
    return {name: run_experiment(config, small, folder / "runs", quiet=True).path for name, config in configs.items()}


def listed(folder: Path) -> int:
    """How many runs `danseo runs` shows, in all its cells."""
    records = find_runs(folder)
    for table in choose_tables(records, TableChoice()):
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
        if name.startswith(("model", "config", "compute")):
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
    "encoder": ["model/danseo.json", "model/config.json", "predictions/dev.npz", "compute.json"],
}


@pytest.mark.parametrize(
    ("family", "name", "odd"),
    [
        pytest.param(family, name, odd, id=f"{name}-{odd.__name__}")
        for family, names in FILES.items()
        for number, name in enumerate(names)
        for odd in (ODD_FILES if number == 0 else (as_pipe, as_folder, as_nothing))
    ],
)
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
    [("majority", "model/majority.json", 25), ("majority", "scores.json", 25), ("majority", "environment.json", 20),
     ("linear", "model/linear.json", 10), ("encoder", "model/danseo.json", 20),
     ("encoder", "compute.json", 20)],
)  # fmt: skip
def test_corrupted_json_of_runs(runs, small, tmp_path, family, name, count):
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
        assert matches_schema(Run(path).read_json("scores.json"), SCORES)
        assert matches_schema(Run(path).read_json("environment.json"), ENVIRONMENT)
    assert matches_schema(scores(), SCORES)


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
    assert not matches_schema(odd, SCORES)


def test_arrays_that_state_a_false_size(runs, small, tmp_path):
    """A header of 100 bytes that announces 745 GiB."""
    copy = shutil.copytree(runs["linear"], tmp_path / "runs" / runs["linear"].name)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }\n"
    array = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    (copy / "model" / "linear.npz").write_bytes(write_zip({"weights.npy": array, "bias.npy": array}))
    assert "linear.npz" in used(copy, small, tmp_path, "model/linear.npz")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_that_cannot_read_unknown_text(runs, small, tmp_path, name):
    copy = shutil.copytree(runs["encoder"], tmp_path / "runs" / runs["encoder"].name)
    path = copy / "model" / name
    tokenizer = json.loads(path.read_bytes())
    (tokenizer if "unk_token" in tokenizer else tokenizer["model"])["unk_token"] = None
    path.write_text(json.dumps(tokenizer).replace('"unk_token": null', '"unk_token": "nothing"'), "utf-8")
    assert str(copy) in used(copy, small, tmp_path, f"model/{name}")


def test_half_a_surrogate_pair_makes_one_corrupted_run(runs, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(runs["majority"], tmp_path / name)
    path = tmp_path / "one" / "environment.json"
    environment = json.loads(path.read_bytes())
    environment["data"] = dict.fromkeys(environment["data"], "\ud800")
    path.write_text(json.dumps(environment), "utf-8")
    assert listed(tmp_path) == 2
    assert {record.run.path.name: record.status for record in find_runs(tmp_path)} == {
        "one": "corrupted",
        "two": "done",
    }
