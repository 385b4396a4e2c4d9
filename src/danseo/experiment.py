"""One config in, one run out: the story of a run on one screen."""

import time
from dataclasses import replace
from pathlib import Path

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.augmentation import count_augmented
from danseo.display.escaping import say
from danseo.display.progress import Waiting
from danseo.errors import DanseoError, PartlyDone
from danseo.launcher import is_first_process
from danseo.models.base import Family, TrainResult
from danseo.models.registry import check_family, get_family
from danseo.models.run_plan import RunPlan, plan_run
from danseo.runs.events import OnScore, OnStart, RunEvents
from danseo.runs.lock import lock_folder_on_first_process
from danseo.runs.provenance import collect_environment
from danseo.runs.scores import score_splits
from danseo.runs.store import Run
from danseo.runs.training_data import RunData, describe_missing_labels, load_run_data
from danseo.training.processes import join_processes


def run_experiment(
    config: RunConfig, root: Path, runs: Path, *, device: str | None = None, quiet: bool = False, force: bool = False,
    on_score: OnScore | None = None, on_start: OnStart | None = None, series: Path | None = None,
    wait: bool | None = True, family: Family | None = None,
) -> Run:  # fmt: skip
    """Train, predict and score a run; return a finished run at once, and resume an unfinished one.

    If another process has the run, wait for it or fail; wait=None means that the caller has the lock already.
    A given family replaces the one of the model's name.
    """
    is_quiet = quiet or not is_first_process()
    with Waiting("reading the settings and the data", quiet=is_quiet):
        plan = plan_run(config, root, runs, family or get_family(config.model))
    run = plan.run
    if not force and broadcast_flag(run.is_finished and not run.find_partial_files(), device):
        return run
    with Waiting(f"checking {config.model}", quiet=is_quiet):
        check_family(config, plan.task, plan.family)  # before anything is removed or read
    with lock_folder_on_first_process(run.path, wait=wait, on_note=(lambda line: None) if quiet else say):
        if is_first_process():
            run.remove_partial_files()
        if force or not broadcast_flag(run.is_finished, device):  # another process may have finished it meanwhile
            with Waiting("reading the data", quiet=is_quiet):
                data = load_run_data(config, plan.task, root)
            events = RunEvents(run, series, on_score, on_start, quiet=is_quiet)
            train_and_score(plan, data, events, device, force=force)
    return run


def train_and_score(plan: RunPlan, data: RunData, events: RunEvents, device: str | None, *, force: bool) -> None:
    """Create a model, train it, predict dev and write the results; write the reason of a failure to the run.

    An error before start_run(), such as an unknown model, changes nothing in the directory of an earlier run.
    """
    config, run, is_started = plan.config, plan.run, False
    model_config = update_config(config, {"train.select_on": "dev"}) if data.fold else config  # the fold selects
    try:
        with events:
            events.work_on(f"loading {config.model}")
            model = plan.family.create(model_config, plan.task, device)
            model.prepare_data(data.train, data.eval_set, events)
            is_started = True
            start_run(plan, data, events, force=force)
            result = model.fit(data.train, data.eval_set, events)
            if data.fold:
                if is_first_process():
                    run.write_predictions("fold", result.answers)
                events.work_on(f"predicting {len(data.dev):,} dev examples")
                result = replace(result, answers=model.predict(data.dev))
            if is_first_process():
                events.work_on("saving the model")
                model.save(run.path / "model")
                events.work_on(f"scoring {len(data.dev):,} dev predictions")
                write_results(plan, data, result)
        broadcast_flag(True, device)  # all processes wait until rank 0 has written the results
    except DanseoError as error:
        if is_started and not run.is_finished and not isinstance(error, PartlyDone):
            run.fail(str(error))
        raise


def start_run(plan: RunPlan, data: RunData, events: RunEvents, *, force: bool) -> None:
    """Create the run directory, or empty it with force; write the settings and the hashes of the data."""
    if is_first_process():
        if force:
            plan.run.remove()
        plan.run.start(plan.config, plan.task)
        plan.run.write_json("environment.json", {"data": plan.hashes, "model": plan.model})
        if events.on_start:
            events.on_start(plan.run)
    if note := describe_missing_labels(plan.config, plan.task, data):
        events.note(note)


def write_results(plan: RunPlan, data: RunData, result: TrainResult) -> None:
    """Write predictions, environment and scores; the scores last, because a run with scores is finished."""
    run, selected_on = plan.run, "fold" if data.fold else plan.config.train.select_on
    run.write_predictions("dev", result.answers, result.answers.evidence)
    scores = score_splits(plan.task, data.dev, result.answers, selected_on)
    facts = collect_environment(plan.hashes, result.device, result.seconds) | dict(result.environment)
    facts |= {"family": plan.family.name, "model": plan.model}
    facts |= {"made_examples": counts} if (counts := count_augmented(data.train)) else {}
    run.write_json("environment.json", facts | {"wall_seconds": round(time.perf_counter() - plan.started, 3)})
    run.write_json("scores.json", scores | dict(result.facts))
    run.remove_checkpoints()


def broadcast_flag(value: bool, device: str | None) -> bool:
    """Return the value of rank 0; other nodes may not see its disk."""
    return bool(join_processes(device).broadcast(value))
