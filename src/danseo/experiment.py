"""One config in, one run out: the story of a run on one screen."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data import find
from danseo.data.augmenting import augmented, made_counts
from danseo.data.folds import parted
from danseo.data.weights import known_weights
from danseo.display.escaping import say
from danseo.display.progress import TrainingProgress
from danseo.errors import DanseoError
from danseo.files import content_sha256
from danseo.hub import folder_of
from danseo.models.families import checked_family, family_of
from danseo.models.protocol import Family, Fitted
from danseo.predictions.evidence import packed_arrays
from danseo.runs.directory import Run, as_started, folder_identity, run_path
from danseo.runs.environment import environment
from danseo.runs.locks import owned_by_first
from danseo.runs.naming import model_name
from danseo.runs.scores import score_halves
from danseo.runs.standing import StandingFile
from danseo.tasks import get_task
from danseo.tasks.task import Task

OnScore = Callable[[int, float | None], None]
"""Called after every evaluation with the step and the score; it may raise to stop the training."""


@dataclass(frozen=True)
class Job:
    """All that a run starts from."""

    config: RunConfig
    task: Task
    family: Family
    run: Run
    hashes: dict[str, str]
    model: str | None = None
    """What the folder of the model holds, as a hash."""
    started: float = 0.0
    device: str | None = None
    quiet: bool = False
    force: bool = False
    """Whether what is there goes first, once all that the run starts from has proved good."""
    on_score: OnScore | None = None
    series: Path | None = None
    """The file in which the runs of a sweep agree on precision and attention."""
    train: Sequence[Any] = ()
    dev: Sequence[Any] = ()
    held: Sequence[Any] = ()
    """The fold that is left out: it stands in for dev wherever something is picked."""


def run_experiment(
    config: RunConfig, root: Path, runs: Path, *, device: str | None = None, quiet: bool = False, force: bool = False,
    on_score: OnScore | None = None, series: Path | None = None, wait: bool | None = True, family: Family | None = None,
) -> Run:  # fmt: skip
    """Train, keep the best, predict, score; a finished run is returned, an unfinished one goes on.

    A run that another process has is waited for, or not; None says that the caller has its lock already. A family
    with something of the caller's own stands in for that of the model's name.
    """
    job = planned(config, root, runs, family, force=force)
    job = replace(job, device=device, quiet=quiet, on_score=on_score, series=series)
    if not force and agreed(job.run.is_finished and not job.run.leftovers(), device):
        return job.run
    checked_family(job.config, job.task)  # before anything is removed or read
    with owned_by_first(job.run.path, wait=wait, on_note=(lambda line: None) if quiet else say):
        if is_first():
            job.run.sweep_out()
        if force or not agreed(job.run.is_finished, device):  # or has been finished meanwhile
            carry_out(loaded(job, root))
    return job.run


def planned(config: RunConfig, root: Path, runs: Path, family: Family | None, *, force: bool) -> Job:
    """The run of a config, by what its results depend on; an unfinished one goes on as it was started."""
    started, task = time.perf_counter(), get_task(config.task)
    hashes = find.data_hashes(task, root)
    identity = identity_of(config, hashes)
    config = config if force else as_started(runs, config, identity)
    run, chosen = Run(run_path(runs, config, identity)), family or family_of(config.model)
    task = replace(task, halves=config.train.halves)
    return Job(config, task, chosen, run, hashes, identity.get("model"), started, force=force)


def loaded(job: Job, root: Path) -> Job:
    """The job with its examples."""
    config, (train, dev) = job.config, (find.load(job.task, split, root) for split in ("train", "dev"))
    check_weights(config, train)
    train = train[: config.limit or None]
    train, held = parted(job.task, train, config.folds, config.fold) if config.folds else (train, [])
    train = augmented(job.task, train, config.train.augment, config.seed)  # behind the folds: it follows its origin
    return replace(job, train=train, dev=dev, held=held)


def carry_out(job: Job) -> None:
    """Make the model, fit it, and write what came out; the reason of a failure stays in the run."""
    try:
        model = job.family.make(picking_config(job), job.task, job.device)
        with RunEvents(job) as events:
            fitted = model.fit(job.train, job.held or job.dev, events)
        answers_of_fold = fitted.answers if job.held else None
        fitted = replace(fitted, answers=model.predict(job.dev)) if job.held else fitted
        if is_first():
            if answers_of_fold is not None:
                job.run.write_predictions("fold", answers_of_fold)
            model.save(job.run.path / "model")
            finish(job, fitted)
        agreed(True, job.device)  # nobody leaves before all is written
    except DanseoError as error:
        if not job.run.is_finished:  # an earlier run that --force has not removed yet has not failed
            job.run.fail(str(error))
        raise


def picking_config(job: Job) -> RunConfig:
    """The settings that the model sees: a fold that is left out picks as a whole."""
    config = job.config
    return replace(config, train=replace(config.train, select_on="dev")) if job.held else config


def labels_left_out(job: Job) -> str | None:
    """In words, the labels that a limit leaves without examples: files may be sorted by them."""
    if not job.config.limit or job.task.kind != "classify" or job.config.kind == "prompt":
        return None
    there, asked = {example.gold for example in job.train}, {example.gold for example in job.dev}
    missing = [label for label in job.task.labels if label in asked - there]
    if not missing:
        return None
    named = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
    return f"limit = {job.config.limit}: {len(missing)} of {len(asked)} labels in dev have no example there ({named})"


class RunEvents:
    """A fitting as its run directory, the terminal, and whoever watches from another process see it."""

    def __init__(self, job: Job) -> None:
        self.job, self.run, self.series = job, job.run, job.series
        self.progress = TrainingProgress(job.run.path.name, quiet=job.quiet or not is_first())
        self.standing = StandingFile(job.run.path) if is_first() else None

    def __enter__(self) -> "RunEvents":
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def begin(self) -> None:
        """Write the settings, and what the model and the data hold: an unfinished run is to be known as well."""
        job = self.job
        if is_first():
            if job.force:
                job.run.remove()
            job.run.start(job.config, job.task)
            job.run.write_json("environment.json", {"data": job.hashes, "model": model_facts(job)})
        if line := labels_left_out(job):
            self.note(line)

    def note(self, line: str) -> None:
        self.progress.note(line)

    def step(self, step: Any, progress: Any) -> None:
        self.progress.step(step, progress)
        self._stand(step, progress)

    def evaluated(self, step: Any, progress: Any, score: float | None) -> None:
        self.progress.evaluated(step, progress, score)
        self._stand(step, progress)
        if self.job.on_score:
            self.job.on_score(step.number, score)

    def _stand(self, step: Any, progress: Any) -> None:
        if self.standing:
            self.standing.write(step.number, step.total, progress.seconds)


def finish(job: Job, fitted: Fitted) -> None:
    """Predictions, evidence, surroundings, and the scores last: their presence means the run is whole."""
    answers = fitted.answers
    if answers.evidence is not None:
        job.run.write_bytes("predictions/dev.npz", packed_arrays(answers.evidence))
    job.run.write_predictions("dev", answers)
    scores = score_halves(job.task, job.dev, answers, "fold" if job.held else job.config.train.select_on)
    surroundings = environment(job.hashes, fitted.device, fitted.seconds) | dict(fitted.surroundings)
    surroundings |= {"family": job.family.name, "model": model_facts(job)}
    surroundings |= {"made_examples": made} if (made := made_counts(job.train)) else {}
    took = round(time.perf_counter() - job.started, 3)
    job.run.write_json("environment.json", surroundings | {"wall_seconds": took})
    job.run.write_json("scores.json", scores | dict(fitted.facts))
    job.run.tidy()


def check_weights(config: RunConfig, train: Sequence[Any]) -> None:
    """Refuse weights of examples that are not there."""
    if config.train.example_weights:
        known_weights(Path(config.train.example_weights), [example.guid for example in train])


def identity_of(config: RunConfig, hashes: dict[str, str]) -> dict[str, str]:
    """What the run's results depend on besides its settings."""
    folder = folder_of(family_of(config.model).location(config.model))
    own, weights = get_task(config.task).own, config.train.example_weights
    return {
        **hashes,
        **({"train.example_weights": content_sha256(Path(weights))} if weights else {}),  # wherever the file is
        **({"model": folder_identity(folder)} if folder else {}),
        **({"task": own.identity} if own else {}),
    }


def model_facts(job: Job) -> dict[str, str]:
    """What the model is called, and what its folder held: the same folder may hold another one tomorrow."""
    model = job.config.model
    if not job.model:
        return {"name": model_name(model)}
    location = job.family.location(model)
    folder = str(Path(location).resolve())
    return {"name": model_name(model.removesuffix(location) + folder), "sha256": job.model}


def is_first() -> bool:
    """Whether this is the one of several processes that writes."""
    return os.environ.get("RANK", "0") == "0"


def agreed(is_so: bool, device: str | None) -> bool:
    """What the first of several processes finds, as others may not see its disk."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return is_so
    from danseo.training.workers import Workers

    return bool(Workers(device).agreed(is_so))
