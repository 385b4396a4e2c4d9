"""One config in, one run out: the story of a run on one screen."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config import RunConfig
from danseo.data import find
from danseo.display.escaping import say
from danseo.display.progress import TrainingProgress
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import content_sha256
from danseo.hub import pretrained
from danseo.models.floor import FLOORS, make_floor
from danseo.models.load import packages_of
from danseo.records import Prediction
from danseo.runs.directory import Run, folder_identity, run_path
from danseo.runs.environment import environment
from danseo.runs.locks import owned
from danseo.runs.naming import model_name
from danseo.runs.scores import finite, score_halves
from danseo.runs.standing import StandingFile
from danseo.tasks import get_task
from danseo.tasks.task import Task

if TYPE_CHECKING:
    from danseo.training.fit import Progress
    from danseo.training.loop import Step

OnScore = Callable[[int, float | None], None]
"""Called after every evaluation with the step and the score; it may raise to stop the training."""


@dataclass(frozen=True)
class Job:
    """All that a run starts from."""

    config: RunConfig
    task: Task
    train: Sequence[Any]
    dev: Sequence[Any]
    run: Run
    hashes: dict[str, str]
    device: str | None = None
    quiet: bool = False
    on_score: OnScore | None = None
    series: Path | None = None
    """The file in which the runs of a sweep agree on precision and attention."""
    model: str | None = None
    """What the folder of the model holds, as a hash."""
    started: float = 0.0
    force: bool = False
    """Whether what is there goes first, once all that the run starts from has proved good."""


def run_experiment(
    config: RunConfig,
    root: Path,
    runs: Path,
    *,
    device: str | None = None,
    quiet: bool = False,
    force: bool = False,
    on_score: OnScore | None = None,
    series: Path | None = None,
    wait: bool | None = True,
) -> Run:
    """Train, keep the best, predict, score; a finished run is returned, an unfinished one goes on.

    A run that another process has is waited for, or not; None says that the caller has its lock already.
    """
    started, task = time.perf_counter(), get_task(config.task)
    files = {split: find.require_file(task, split, root) for split in ("train", "dev")}
    hashes = {path.name: content_sha256(path) for path in files.values()}
    identity = identity_of(config, hashes)
    run = Run(run_path(runs, config, identity))
    if not force and _agreed(run.is_finished and not run.leftovers(), device):
        return run
    require(*packages_of(config.model, config.task))  # before anything is removed or read
    if config.model not in FLOORS:
        pretrained(config.model)
    with _owned(run, wait, quiet):
        if not force and _agreed(run.is_finished, device):  # or has been finished meanwhile
            return run
        train, dev = (task.read(files[split]) for split in ("train", "dev"))
        model = identity.get("model")
        train = train[: config.limit or None]
        job = Job(config, task, train, dev, run, hashes, device, quiet, on_score, series, model, started, force)
        try:
            run_floor(job) if config.model in FLOORS else run_encoder(job)
        except DanseoError as error:
            if not run.is_finished:  # an earlier run that --force has not removed yet has not failed
                run.fail(str(error))
            raise
    return run


@contextmanager
def _owned(run: Run, wait: bool | None, quiet: bool) -> Iterator[None]:
    """The run for this process, or for the first of several, which do not wait; leftovers of a kill go."""
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    note = (lambda line: None) if quiet else say
    with ExitStack() as stack:
        if wait is not None and _is_first():
            stack.enter_context(owned(run.path, wait=wait and is_alone, on_note=note))
        if _is_first():
            run.sweep_out()
        yield


def _is_first() -> bool:
    """Whether this is the one of several processes that writes."""
    return os.environ.get("RANK", "0") == "0"


def _agreed(is_so: bool, device: str | None) -> bool:
    """What the first of several processes finds, as others may not see its disk."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return is_so
    from danseo.training.workers import Workers

    return bool(Workers(device).agreed(is_so))


def identity_of(config: RunConfig, hashes: dict[str, str]) -> dict[str, str]:
    """What the run's results depend on besides its settings."""
    folder = Path(config.model)
    return {**hashes, **({"model": folder_identity(folder)} if folder.is_dir() else {})}


def run_floor(job: Job) -> None:
    """A run of a model that needs no encoder."""
    started = time.perf_counter()
    model = make_floor(job.config.model, job.task)
    start(job)
    model.fit(job.train, job.config.seed)
    predictions = model.predict(job.dev)
    model.save(job.run.path / "model")
    finish(job, predictions, environment(job.hashes, "cpu", time.perf_counter() - started), {})


def run_encoder(job: Job) -> None:
    """A run of a fine-tuned encoder."""
    from danseo.models.encoder.model import Encoder
    from danseo.training.workers import Workers

    workers = Workers(job.device)
    model = Encoder(job.config, job.task, workers)
    cost = model.prepare(job.train, job.dev)
    with TrainingProgress(job.run.path.name, quiet=job.quiet or not workers.is_first) as progress:
        if workers.is_first:
            start(job)
            job.run.write_json("preflight.json", cost.as_dict())
            progress.note(cost.line())
        workers.wait()
        standing = StandingFile(job.run.path) if workers.is_first else None
        on_step = partial(_stepped, job, progress, standing)
        fitted = model.fit(job.run, on_step, progress.note, job.series)
        kept = model.score_kept(job.run, fitted)
        predictions = model.predict_dev()
    if workers.is_first:
        model.save(job.run)
        model.save_probabilities(job.run)
        surroundings = environment(job.hashes, str(workers.device), fitted.seconds) | model.facts(fitted)
        best = {"monitor": model.monitor, "best_step": fitted.best_step, "steps": fitted.step}
        best |= {"select_score": finite(fitted.best), "select_loss": finite(model.select_loss())}
        best |= {"weights": kept} if kept else {}
        finish(job, predictions, surroundings, best | {"preflight": cost.as_dict()})
    workers.wait()


def start(job: Job) -> None:
    """The settings, and what the model and the data hold: an unfinished run is to be known as well."""
    if job.force:
        job.run.remove()
    job.run.start(job.config)
    job.run.write_json("environment.json", {"data": job.hashes, "model": model_facts(job)})


def _stepped(
    job: Job, progress: TrainingProgress, standing: StandingFile | None, step: "Step", fitted: "Progress"
) -> None:
    """Show a step; after an evaluation, which leaves no losses behind, pass its score on."""
    progress.step(step, fitted)
    if standing:
        standing.write(step.number, step.total, fitted.seconds)
    if job.on_score and not fitted.losses:
        job.on_score(step.number, job.run.read_log()[-1]["score"])


def finish(job: Job, predictions: Sequence[Prediction], surroundings: dict[str, Any], facts: dict[str, Any]) -> None:
    """Predictions, surroundings, and the scores last: their presence means the run is whole."""
    job.run.write_predictions("dev", predictions)
    scores = score_halves(job.task, job.dev, predictions, job.config.train.select_on)
    took = round(time.perf_counter() - job.started, 3)
    job.run.write_json("environment.json", surroundings | {"model": model_facts(job), "wall_seconds": took})
    job.run.write_json("scores.json", scores | facts)
    job.run.tidy()


def model_facts(job: Job) -> dict[str, str]:
    """What the model is called, and what its folder held: the same folder may hold another one tomorrow."""
    model = job.config.model
    return (
        {"name": model_name(str(Path(model).resolve())), "sha256": job.model}
        if job.model
        else {"name": model_name(model)}
    )
