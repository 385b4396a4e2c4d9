"""The Optuna study behind `danseo sweep` with [search] and `danseo tune`: its storage, its trials, and how they end."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from danseo.display.table import Table, as_typed
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.runs.lock import Owner, RunLocks, lock_folder
from danseo.sweeps.search_space import Space, format_choice


def is_database(storage: str) -> bool:
    """Return whether a storage is the URL of a database; otherwise it is a file."""
    return "://" in storage


def record_owner(trial: Any, storage: str, until: ExitStack) -> None:
    """Sign a trial; beside a file a lock beats for the process, a database has its own heartbeat."""
    if not is_database(storage):
        until.enter_context(lock_folder(_lock_path(trial.study.study_name, trial.number, storage)))
    trial.set_user_attr("owner", asdict(Owner.me()))


def is_dead(study: Any, trial: Any, storage: str) -> bool:
    """Return whether the owner of a trial is gone: known at once on this machine, elsewhere by its lock."""
    owner = Owner(**trial.user_attrs["owner"])
    if is_database(storage) or owner.host == Owner.me().host:
        return owner.is_dead()
    path = _lock_path(study.study_name, trial.number, storage)
    return not RunLocks(path.parent).is_held(path.name)


def _lock_path(study: str, number: int, storage: str) -> Path:
    return Path(storage).with_name(f"{study}.trial-{number + 1}")


Sampler = Literal["tpe", "random", "qmc"]
Pruner = Literal["none", "median", "halving", "hyperband"]
_PAUSES = (0.2, 1.0, 3.0)  # seconds before another attempt to open a storage
_SECONDS_TO_SIGN = 40  # a trial that no process has signed after so long was cut off


@dataclass(frozen=True)
class StudySpec:
    """A study: where it is kept, which trials may share it, and how it chooses."""

    name: str
    storage: str
    """A database URL, or a file."""
    identity: str
    """What all trials agree in; a study of the same name with another identity is refused."""
    refusal: str
    """The error message for that."""
    storage_option: str
    """How the user named the storage, for error messages."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    seed: int = 0
    startup: int = 10
    """Number of random trials before the sampler learns and the median pruner prunes."""
    heartbeat: tuple[int, int] | None = None
    """Seconds between two heartbeats in a database, and of silence after which a trial is run again."""


def load_optuna() -> Any:
    """Import Optuna and silence its log; danseo reports trials itself."""
    require("optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def trial_number(trial: Any) -> int:
    """Return the number of a trial as users see it; the first one is 1."""
    return int(trial.number) + 1


def prune_reason(trial: Any, step: int, value: float | None) -> str:
    """Return why the pruner stops a trial at this step; "" if the trial continues."""
    score = "" if value is None else f" with {value:.4g}"
    return f"pruned at step {step}{score}" if trial.should_prune() else ""


class OptunaStudy:
    """An open study; several processes may have it open at the same time, and each gives out trials."""

    def __init__(self, spec: StudySpec, n_trials: int) -> None:
        self.spec, self.n_trials = spec, n_trials
        self.study = open_study(spec)
        self._states = load_optuna().trial.TrialState

    def trials(self, *states: str) -> list[Any]:
        """Return the trials in these states (RUNNING, COMPLETE, …), or all of them."""
        return list(self.study.get_trials(deepcopy=False, states=[self._states[name] for name in states] or None))

    def count(self, below: int | None = None) -> int:
        """Count trials, all or those with a smaller number: failed ones too, but not those that were cut off."""
        return sum(_is_counted(trial) for trial in self.trials() if below is None or trial.number < below)

    @property
    def is_full(self) -> bool:
        """Whether no trial is left to start."""
        return self.count() >= self.n_trials

    # Trials that run in other processes, each under the lock of its run

    def ask(self) -> Any:
        """Return a new trial, or None if all have been taken."""
        if self.is_full:
            return None
        trial = self.study.ask()
        if self.count(below=trial.number) >= self.n_trials:  # another process took the last one meanwhile
            self.tell(trial.number)
            return None
        return trial

    def adopt(self, space: Space) -> list[Any]:
        """Return the trials that run, or that a killed process left; the locks of their runs tell which."""
        optuna, found = load_optuna(), []
        for trial in self.trials("RUNNING"):
            if trial.params.keys() >= space.keys():
                found.append(optuna.trial.Trial(self.study, trial._trial_id))
            else:  # killed between asking and choosing
                self.tell(trial.number)
        return found

    def tell(self, number: int, value: float | None = None, *, is_pruned: bool = False) -> None:
        """Record how a trial ended, unless another process has: its value, or pruned, or failed."""
        state = None if value is not None else self._states.PRUNED if is_pruned else self._states.FAIL
        self.study.tell(number, value, state=state, skip_if_finished=True)

    # Trials that run in this process, which owns them

    def run_trial(self, objective: Callable[[Any], float]) -> None:
        """Run one trial here; its owner is recorded until the study knows how it ended."""
        with ExitStack() as until_told:

            def run_owned(trial: Any) -> float:
                record_owner(trial, self.spec.storage, until_told)
                return objective(trial)

            self.study.optimize(run_owned, n_trials=1, catch=(DanseoError,))

    def retry_dead(self) -> bool:
        """Queue the trials of dead processes again; return whether the owner of every running trial is known."""
        load_optuna().storages.fail_stale_trials(self.study)
        grace = self.spec.heartbeat[1] if self.spec.heartbeat else _SECONDS_TO_SIGN
        is_clear = True
        for trial in self.trials("RUNNING"):
            is_signed = "owner" in trial.user_attrs
            age = (datetime.now() - trial.datetime_start).total_seconds()
            if not is_signed and age <= grace:
                is_clear = False
            elif not is_signed or is_dead(self.study, trial, self.spec.storage):
                self.tell(trial.number)
                self.study.enqueue_trial(trial.params)
        return is_clear

    # Results

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per trial, in the order of their numbers."""
        return [_row(trial) for trial in self.trials()]


def _is_counted(trial: Any) -> bool:
    """Return whether a trial counts: a failed one only if its run began, as otherwise its process was killed."""
    is_begun = bool(trial.user_attrs.keys() & {"error", "run"})
    return trial.state.name in ("COMPLETE", "PRUNED", "RUNNING") or (trial.state.name == "FAIL" and is_begun)


def _row(trial: Any) -> dict[str, Any]:
    ended, reported = trial.datetime_complete, trial.intermediate_values
    return {
        "trial": trial_number(trial),
        "state": trial.state.name.lower(),
        "value": trial.value if trial.value is not None or not reported else reported[max(reported)],
        "seconds": (ended - trial.datetime_start).total_seconds() if ended and trial.datetime_start else None,
        **trial.params,
        "error": trial.user_attrs.get("error"),
    }


def trial_table(title: str, rows: Sequence[dict[str, Any]], names: Sequence[str], note: str) -> Table:
    """Return the trials as a table, the best first; names are the searched settings."""
    cells: list[tuple[object, ...]] = [
        (
            as_typed(row["trial"]),
            row["state"],
            row["value"],
            *(format_choice(row.get(name)) for name in names),
            row["seconds"],
            row["error"],
        )
        for row in sorted(rows, key=lambda row: (row["state"] != "complete", -(row["value"] or 0)))
    ]
    columns = ("trial", "state", "value", *(name.rsplit(".", 1)[-1] for name in names), "seconds", "error")
    return Table(title, columns, cells, note, keys=1)


# Opening


def default_storage(folder: Path, name: str) -> str:
    """Return the file of a study among its runs."""
    return str(folder / f"{name}.study")


def open_study(spec: StudySpec) -> Any:
    """Create the study in its storage, or open it if it exists."""
    study = _create_or_load(spec)
    known = study.user_attrs.get("danseo")
    if known not in (None, spec.identity):
        raise DanseoError(spec.refusal)
    if known is None:
        study.set_user_attr("danseo", spec.identity)
    # The same seed would choose the same points again, so it moves with the number of trials.
    study.sampler = _make_sampler(spec, spec.seed + len(study.get_trials(deepcopy=False)))
    return study


def _make_sampler(spec: StudySpec, seed: int) -> Any:
    samplers = load_optuna().samplers
    if spec.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if spec.sampler == "qmc":
        return samplers.QMCSampler(seed=seed, scramble=True)
    return samplers.TPESampler(seed=seed, n_startup_trials=spec.startup, constant_liar=True)


def _make_pruner(spec: StudySpec) -> Any:
    pruners = load_optuna().pruners
    if spec.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=spec.startup)
    if spec.pruner == "halving":
        return pruners.SuccessiveHalvingPruner()
    return pruners.HyperbandPruner() if spec.pruner == "hyperband" else pruners.NopPruner()


def _create_or_load(spec: StudySpec) -> Any:
    optuna = load_optuna()
    options = {"study_name": spec.name, "direction": "maximize", "pruner": _make_pruner(spec)}
    for pause in (*_PAUSES, None):
        try:
            storage = open_storage(spec.storage, spec.heartbeat)
            return optuna.create_study(storage=storage, load_if_exists=True, **options)
        except Exception as error:  # every database has its own exceptions
            raced = "already exists" in str(error) or type(error).__name__ == "IntegrityError"
            if pause is None or not raced:
                reason = " ".join(str(error).split())[:200]
                raise DanseoError(f"{spec.storage_option} cannot be used: {reason}") from None
            time.sleep(pause)  # another process is just creating the tables
    raise AssertionError("unreachable")


def open_storage(storage: str, heartbeat: tuple[int, int] | None = None) -> Any:
    """Open a database, or a file to which all processes append; SQLite waits for other processes."""
    from optuna.storages import JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    if is_database(storage):
        options: dict[str, Any] = {}
        if storage.startswith("sqlite"):
            options["engine_kwargs"] = {"connect_args": {"timeout": 60}}
        if heartbeat:
            options |= {"heartbeat_interval": heartbeat[0], "grace_period": heartbeat[1]}
            options["heartbeat_stale_trial_callback"] = RetryHeartbeatStaleTrialCallback()
        return RDBStorage(storage, **options)
    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    lock = JournalFileSymlinkLock(storage)
    backend = JournalFileBackend(storage, lock)
    lock.acquire()
    try:
        _remove_partial_line(Path(storage))
    finally:
        lock.release()
    return JournalStorage(backend)


def _remove_partial_line(path: Path) -> None:
    """Remove a last line that a killed process did not finish: what is appended to it could never be read."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
