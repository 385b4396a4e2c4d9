"""Score a run again: from its saved predictions, or by asking its model about other examples."""

from pathlib import Path

from danseo.baselines import NAMES, baseline
from danseo.data import data_root, require_file
from danseo.details import details as detail_tables
from danseo.errors import DanseoError
from danseo.models.load import load_model
from danseo.predictions import read_predictions
from danseo.reading import content_sha256
from danseo.runs.directory import Run
from danseo.scoresheet import ScoreSheet
from danseo.scoring import score
from danseo.tasks import get_task


def open_run(path: Path) -> Run:
    """A run directory that exists."""
    if not (path / "config.toml").is_file():
        raise DanseoError(f"{path} is not a run directory (no config.toml); `danseo runs` lists them")
    return Run(path)


def evaluate_run(
    path: Path, split: str, file: Path | None, data_dir: str | None, *, details: bool = False, device: str | None = None
) -> ScoreSheet:
    """The score sheet of a run on a split or file."""
    run = open_run(path)
    task = get_task(run.config.task)
    gold = file or require_file(task, split, data_root(data_dir))
    examples = task.read(gold)
    saved = run.predictions_path("dev")
    skip: list[str] = []
    if saved.is_file() and content_sha256(gold) == _dev_hash(run):
        skip = [] if _has_probabilities(saved) else list(task.needs_probabilities)
        predictions = read_predictions(saved, task, examples, skip=skip)
        source = saved
    else:
        predictions = load_model(run, device).predict(examples)
        skip = [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)
        source = run.path / "model"
    floors = {name: score(task, examples, baseline(name, task, examples), rounds=0, skip=skip) for name in NAMES}
    return ScoreSheet(
        task,
        gold,
        source,
        examples=len(examples),
        n=len(examples),
        scores=score(task, examples, predictions, skip=skip),
        baselines={name: {s.id: s.value for s in values} for name, values in floors.items()},
        details=detail_tables(task, examples, predictions) if details else [],
    )


def _dev_hash(run: Run) -> str | None:
    """The hash of the dev file that the saved predictions answer."""
    if not (run.path / "environment.json").is_file():
        return None
    hashes: dict[str, str] = run.read_json("environment.json")["data"]
    return next((sha for name, sha in hashes.items() if "dev" in name or "validation" in name), None)


def _has_probabilities(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return '"probabilities"' in file.readline()
