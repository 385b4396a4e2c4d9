"""What every blend needs: how members are weighed, and which kind of task is blended how."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from danseo.errors import DanseoError
from danseo.records import Prediction
from danseo.runs.answers import Members

Array = npt.NDArray[Any]
Blended = tuple[list[Prediction], list[Any] | None]
"""Answers, and what to keep beside them."""
Blend = Callable[[Array], Blended]
"""Weights of the members in, answers out."""

METHODS = ("prob", "logprob", "logit", "vote")
_TRUST = 1e-6  # small enough to decide between equals only


def trusted(weights: Array, members: Members) -> Array:
    """Weights for votes: between equals the member that is better on the select half wins."""
    scores = np.nan_to_num(np.array([member.select_score for member in members.listed]))
    votes: Array = weights * (1 + _TRUST * scores)
    return votes


def shares(weights: Array) -> Array:
    """Weights that sum to 1."""
    normal: Array = weights / weights.sum()
    return normal


def default_method(members: Members) -> str:
    """prob, but for dialogue states, of which runs keep nothing but the answers."""
    return "vote" if members.task.kind == "track" else "prob"


def make_blend(members: Members, method: str) -> Blend:
    """The blend of the members by a method, ready to be asked with weights."""
    from danseo.ensembling.labels import Labels
    from danseo.ensembling.numbers import Numbers
    from danseo.ensembling.several import Several
    from danseo.ensembling.slots import Slots
    from danseo.ensembling.spans import Spans
    from danseo.ensembling.tags import Tags
    from danseo.ensembling.trees import Trees

    kinds: dict[str, Callable[[Members, str], Blend]] = {
        "classify": Labels,
        "labels": Several,
        "score": Numbers,
        "tag": Tags,
        "parse": Trees,
        "answer": Spans,
        "track": Slots,
    }
    return kinds[members.task.kind](members, method)


def require_kept(members: Members, method: str, what: str) -> list[list[Any]]:
    """What every member kept, or one line that names who lacks it."""
    for member in members.listed:
        if member.kept is None:
            where = f"{member.path}/predictions/dev.npz" if member.record else str(member.path)
            raise DanseoError(f"{where}: no {what}, which --method {method} needs; use --method vote")
    return [member.kept for member in members.listed if member.kept is not None]
