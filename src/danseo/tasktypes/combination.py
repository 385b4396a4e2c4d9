"""What combiners of all task types share: members, their weights, and votes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from danseo.errors import DanseoError
from danseo.records import Prediction
from danseo.tasktypes.decoding import Array

_TIE_BREAK = 1e-6  # small enough to decide only between equal votes
Combined = tuple[list[Prediction], list[Any] | None]
"""Predictions, and the rows that `TaskType.pack_arrays` packs."""


class Member(Protocol):
    """The predictions of one run or file."""

    @property
    def path(self) -> Path: ...
    @property
    def record(self) -> Any: ...
    @property
    def predictions(self) -> list[Prediction]: ...
    @property
    def rows(self) -> list[Any] | None:
        """The scores of each example, which ensembles combine (TaskType.unpack_arrays)."""
        ...

    @property
    def select_score(self) -> float: ...
    @property
    def token_starts(self) -> list[Any] | None: ...


class Members(Protocol):
    """The members of an ensemble."""

    @property
    def task(self) -> Any: ...
    @property
    def examples(self) -> list[Any]: ...
    @property
    def members(self) -> Sequence[Member]: ...
    @property
    def select_positions(self) -> list[int]:
        """The positions of the examples of the select split."""
        ...


class Combiner(ABC):
    """Combines the predictions of members; calling it with the members' weights returns the result."""

    threshold: float | None = None
    """The decision threshold that the last call fitted on the select split; without such examples, the given one."""
    token_starts: list[Array] | None = None

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method, self.labels = members, method, members.task.labels
        self.guids = [prediction.guid for prediction in members.members[0].predictions]

    @abstractmethod
    def __call__(self, weights: Array) -> Combined:
        """Return the combined predictions."""

    def predict_unconstrained(self, weights: Array) -> list[Prediction] | None:
        """Return predictions without constrained decoding; None if the task type has no constraints."""
        return None

    def weight_votes(self, weights: Array) -> Array:
        """Return weights for votes: a tie is won by the member with the higher score on the select split."""
        scores = np.nan_to_num(np.array([member.select_score for member in self.members.members]))
        votes: Array = weights * (1 + _TIE_BREAK * scores)
        return votes

    def require_rows(self, what: str) -> list[list[Any]]:
        """Return the rows of every member, or raise a DanseoError that names the first member without them."""
        for member in self.members.members:
            if member.rows is None:
                where = f"{member.path}/predictions/dev.npz" if member.record else str(member.path)
                raise DanseoError(f"{where}: no {what}, which --method {self.method} needs; use --method vote")
        return [member.rows for member in self.members.members if member.rows is not None]

    def read_probabilities(self) -> Array | None:
        """Return members x examples x labels; None if a member lacks probabilities and the method is vote."""
        for member in self.members.members:
            if any(prediction.probabilities is None for prediction in member.predictions):
                if self.method == "vote":
                    return None
                raise DanseoError(
                    f"{member.path}: not all predictions have probabilities, which --method {self.method} needs; "
                    "use --method vote"
                )
        return np.array([label_table(m.predictions, self.labels) for m in self.members.members], dtype=float)


def normalize_weights(weights: Array) -> Array:
    """Return weights that sum to 1."""
    normal: Array = weights / weights.sum()
    return normal


def label_table(predictions: Sequence[Prediction], labels: Sequence[str]) -> list[list[float]]:
    """Return the probabilities of the labels, one row per prediction."""
    return [[(p.probabilities or {}).get(label, 0.0) for label in labels] for p in predictions]


def count_votes(votes: Sequence[Array], weights: Array, labels: int) -> Array:
    """Return the summed weights of the members that vote for each label, one row per decision."""
    table = np.zeros((len(votes[0]), labels))
    for weight, positions in zip(weights, votes, strict=True):
        table[np.arange(len(positions)), positions] += weight
    return table
