"""A study: trials of a target in a storage that several processes may share; the same command goes on."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.display.progress import clock_time
from danseo.errors import DanseoError
from danseo.search.signing import is_dead, sign
from danseo.search.space import Space, read_space_file, sample, shown
from danseo.search.storage import begun_earlier, default_storage
from danseo.search.study import Pruner, Sampler, Study, load_optuna, open_study, trial_number
from danseo.tuning.targets import Outcome, Target, told

_HEARTBEAT, _GRACE = 10, 40  # seconds; a trial whose process has been silent for the second is tried again
_PAUSE = 0.5  # seconds between two looks at a trial that nobody has signed


@dataclass(frozen=True)
class TuneOptions:
    """How to search."""

    space: Path
    trials: int = 20
    storage: str = ""
    """A database URL or a file; nothing is a file beside the runs."""
    name: str = ""
    seed: int = 0
    pruner: Pruner = "median"
    startup: int = 4
    """Trials at random before the sampler learns, and before the median prunes."""
    heartbeat: tuple[int, int] = (_HEARTBEAT, _GRACE)
    sampler: Sampler = "tpe"


def tune(target: Target, options: TuneOptions, on_note: Callable[[str], None] = lambda line: None) -> Any:
    """Run trials until the study has as many as it should; the study comes back."""
    space = read_space_file(options.space, type(target.config))
    asked = asked_for(target, options, space)
    study, optuna = open_study(asked), load_optuna()
    while True:
        optuna.storages.fail_stale_trials(study)
        is_clear = _retry_the_dead(study, asked.storage, options.heartbeat[1])
        if counted(study) >= options.trials:
            if is_clear:
                return study
            time.sleep(_PAUSE)
            continue
        _try_one(
            study,
            asked.storage,
            partial(_objective, target=target, space=space, trials=options.trials, on_note=on_note),
        )


def _try_one(study: Any, storage: str, objective: Callable[[Any], float]) -> None:
    """One trial, signed until the study has heard how it ended."""
    with ExitStack() as until:

        def signed(trial: Any) -> float:
            sign(trial, storage, until)
            return objective(trial)

        study.optimize(signed, n_trials=1, catch=(DanseoError,))


def _retry_the_dead(study: Any, storage: str, grace: float) -> bool:
    """Queue trials again whose process was killed on this machine; whether the process of every other one is known.

    A trial that was cut off before its process could sign has no heartbeat either: after the grace it counts as dead.
    """
    states, is_clear = load_optuna().trial.TrialState, True
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        is_signed = "owner" in trial.user_attrs
        age = (datetime.now() - trial.datetime_start).total_seconds()
        if not is_signed and age <= grace:
            is_clear = False
        elif not is_signed or is_dead(study, trial, storage):
            study.tell(trial.number, state=states.FAIL, skip_if_finished=True)
            study.enqueue_trial(trial.params)
    return is_clear


def counted(study: Any) -> int:
    """Trials that count: finished, pruned, failed by their settings, or running; not those that were cut off."""
    states = load_optuna().trial.TrialState
    trials = study.get_trials(deepcopy=False)
    return sum(
        trial.state in (states.COMPLETE, states.PRUNED, states.RUNNING)
        or (trial.state == states.FAIL and "error" in trial.user_attrs)
        for trial in trials
    )


def _objective(trial: Any, target: Target, space: Space, trials: int, on_note: Callable[[str], None]) -> float:
    settings, name = sample(trial, space), f"trial {trial_number(trial)}"
    chosen = ", ".join(f"{key.rsplit('.', 1)[-1]} {shown(value)}" for key, value in settings.items())
    on_note(f"{name} ({counted(trial.study)} of {trials}): {chosen}")

    def heard(step: int, value: float) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise load_optuna().TrialPruned(f"pruned at step {step} with {value:.4g}")

    try:
        outcome: Outcome = target.run(settings, heard)
    except DanseoError as error:
        trial.set_user_attr("error", str(error))
        on_note(f"{name} failed: {error}")
        raise
    except load_optuna().TrialPruned as pruned:
        on_note(f"{name} {pruned}")
        raise
    except KeyboardInterrupt:
        trial.study.enqueue_trial(trial.params)  # the next start goes on with it
        raise
    trial.set_user_attr("outcome", {"step": outcome.step, "folder": outcome.folder})
    on_note(f"{name}: {target.metric} {outcome.value:.4g}{_ahead(trial, trials)}")
    return outcome.value


def _ahead(trial: Any, trials: int) -> str:
    """What is left to do, and how long that takes at the pace of this process."""
    left = trials - counted(trial.study)
    ended = [each.duration.total_seconds() for each in trial.study.get_trials(deepcopy=False) if each.duration]
    own = (datetime.now() - trial.datetime_start).total_seconds()
    return f"; {left} to go, ETA {clock_time(left * mean([*ended, own]))}" if left > 0 else ""


def asked_for(target: Target, options: TuneOptions, space: Space) -> Study:
    """The study of a target; one of other settings has another name, or is refused."""
    about = {
        "command": target.command,
        "metric": target.metric,
        "base": told(target.config),
        "space": {name: repr(entry) for name, entry in space.items()},
        **target.identity(),
    }
    fingerprint = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:8]
    name = options.name or f"{target.command}-{fingerprint}"
    storage = options.storage or begun_earlier(name) or default_storage(target.home, name)
    return Study(
        name,
        storage,
        fingerprint,
        f"the study {name!r} is about other settings, data or another space; choose another --study",
        f"--storage {storage}",
        options.sampler,
        options.pruner,
        options.seed,
        options.startup,
        _heartbeat(*options.heartbeat),
    )


def _heartbeat(interval: int, grace: int) -> dict[str, Any]:
    """A trial whose process has been silent for the grace is tried again."""
    retry = load_optuna().storages.RetryHeartbeatStaleTrialCallback()
    return {"heartbeat_interval": interval, "grace_period": grace, "heartbeat_stale_trial_callback": retry}


def best_of(study: Any) -> Any:
    """The best finished trial."""
    states = load_optuna().trial.TrialState
    if not study.get_trials(deepcopy=False, states=(states.COMPLETE,)):
        failed = [t.user_attrs["error"] for t in study.get_trials(deepcopy=False) if "error" in t.user_attrs]
        raise DanseoError(f"no trial finished; the last one failed: {failed[-1]}" if failed else "no trial finished")
    return study.best_trial


def report_once(study: Any, target: Target, trial: Any) -> Mapping[str, Any]:
    """The held-back scores of the best trial; computed once per best trial and kept in the study."""
    known = study.user_attrs.get("report")
    if known is None or known["trial"] != trial_number(trial):
        known = {"trial": trial_number(trial), **target.report(trial.user_attrs["outcome"])}
        study.set_user_attr("report", known)
    found: Mapping[str, Any] = known
    return found
