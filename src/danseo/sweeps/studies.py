"""Optuna studies in a storage that several processes may open at the same moment."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from danseo.errors import DanseoError
from danseo.extras import require

_PAUSES = (0.2, 1.0, 3.0)  # seconds before another try


def load_optuna() -> Any:
    require("optuna")
    import optuna

    return optuna


def trial_number(trial: Any) -> int:
    """The number that a trial is shown under everywhere: the first one is 1."""
    return int(trial.number) + 1


def database(url: str, **options: Any) -> Any:
    """A storage in a database; SQLite waits for other processes instead of giving up."""
    waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None
    return load_optuna().storages.RDBStorage(url, engine_kwargs=waiting, **options)


def opened(storage: Callable[[], Any], option: str, name: str, pruner: Any) -> Any:
    """The study of that name, made or gone on with; `option` says in errors where the storage was named."""
    optuna = load_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    for pause in (*_PAUSES, None):
        try:
            return optuna.create_study(
                storage=storage(), study_name=name, direction="maximize", load_if_exists=True, pruner=pruner
            )
        except Exception as error:  # databases have many ways to say no
            raced = "already exists" in str(error) or type(error).__name__ == "IntegrityError"
            if pause is None or not raced:
                reason = " ".join(str(error).split())[:200]
                raise DanseoError(f"{option} cannot be used: {reason}") from None
            time.sleep(pause)  # another process is just making the tables
    raise AssertionError("unreachable")
