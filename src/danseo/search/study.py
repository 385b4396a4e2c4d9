"""Optuna studies in a storage that several processes may open at the same moment; the same search goes on."""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

from danseo.errors import DanseoError
from danseo.extras import require
from danseo.search.storage import open_storage

Sampler = Literal["tpe", "random", "qmc"]
Pruner = Literal["none", "median", "halving", "hyperband"]
_PAUSES = (0.2, 1.0, 3.0)  # seconds before another try


@dataclass(frozen=True)
class Study:
    """A search as it is asked for: where it is kept, what it is about, and how it chooses."""

    name: str
    storage: str
    """A database URL, or a file."""
    identity: str
    """What all of its trials agree in; a study of that name about something else is refused."""
    refusal: str
    """What to say then."""
    option: str
    """Where the storage was named."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    seed: int = 0
    startup: int = 10
    """Trials at random before the sampler learns, and before the median prunes."""
    heartbeat: dict[str, Any] = field(default_factory=dict)
    """How a database learns that the process of a trial is gone."""


def load_optuna() -> Any:
    """Optuna, quiet: what it says of trials is said in words of ours."""
    require("optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def trial_number(trial: Any) -> int:
    """The number that a trial is shown under everywhere: the first one is 1."""
    return int(trial.number) + 1


def open_study(asked: Study) -> Any:
    """The study in its storage, made or gone on with."""
    study = _opened(asked)
    known = study.user_attrs.get("danseo")
    if known not in (None, asked.identity):
        raise DanseoError(asked.refusal)
    if known is None:
        study.set_user_attr("danseo", asked.identity)
    # The same seed again would choose the same points again, so it moves with the trials that are there.
    study.sampler = _sampler(asked, asked.seed + len(study.get_trials(deepcopy=False)))
    return study


def _sampler(asked: Study, seed: int) -> Any:
    samplers = load_optuna().samplers
    if asked.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if asked.sampler == "qmc":
        return samplers.QMCSampler(seed=seed, scramble=True)
    return samplers.TPESampler(seed=seed, n_startup_trials=asked.startup, constant_liar=True)


def _pruner(asked: Study) -> Any:
    pruners = load_optuna().pruners
    if asked.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=asked.startup)
    if asked.pruner == "halving":
        return pruners.SuccessiveHalvingPruner()
    return pruners.HyperbandPruner() if asked.pruner == "hyperband" else pruners.NopPruner()


def _opened(asked: Study) -> Any:
    optuna = load_optuna()
    facts = {"study_name": asked.name, "direction": "maximize", "pruner": _pruner(asked)}
    for pause in (*_PAUSES, None):
        try:
            storage = open_storage(asked.storage, asked.heartbeat)
            return optuna.create_study(storage=storage, load_if_exists=True, **facts)
        except Exception as error:  # databases have many ways to say no
            raced = "already exists" in str(error) or type(error).__name__ == "IntegrityError"
            if pause is None or not raced:
                reason = " ".join(str(error).split())[:200]
                raise DanseoError(f"{asked.option} cannot be used: {reason}") from None
            time.sleep(pause)  # another process is just making the tables
    raise AssertionError("unreachable")
