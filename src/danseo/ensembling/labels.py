"""Labels of several members as one: averages of probabilities, or votes."""

import numpy as np

from danseo.ensembling.blend import Array, Blended, shares, trusted
from danseo.errors import DanseoError
from danseo.records import Prediction
from danseo.runs.answers import Member, Members

SMALLEST = 1e-7  # what a probability of 0 counts as at most: it may come from a file with six decimals
_DECIDES = 1e-9  # the answers themselves decide between probabilities that somebody's rounding made equal


class Labels:
    """ynat, nli, re. Averages of logits and of log probabilities are the same once they are normalised."""

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method, self.labels = members, method, members.task.labels
        self.positions = {label: position for position, label in enumerate(self.labels)}
        self.votes = np.array([[self.positions[p.answer] for p in m.predictions] for m in members.listed])
        lacking = [m for m in members.listed if any(p.probabilities is None for p in m.predictions)]
        if lacking and method != "vote":
            raise DanseoError(
                f"{lacking[0].path}: not all predictions have probabilities, which --method {method} needs; "
                "use --method vote"
            )
        self.tables = None if lacking else np.array([self._table(member) for member in members.listed])

    def _table(self, member: Member) -> Array:
        rows = [[(p.probabilities or {}).get(label, 0.0) for label in self.labels] for p in member.predictions]
        return np.array(rows, dtype=float)

    def __call__(self, weights: Array) -> Blended:
        votes = self._counted(trusted(shares(weights), self.members))
        if self.tables is None:
            probabilities = votes / votes.sum(axis=1, keepdims=True)
        else:
            probabilities = self._averaged(shares(weights))
        decisive = votes if self.method == "vote" else probabilities + _DECIDES * votes
        best = decisive.argmax(axis=1)
        guids = [prediction.guid for prediction in self.members.listed[0].predictions]
        rows = zip(guids, best.tolist(), probabilities.tolist(), strict=True)
        named = [Prediction(g, self.labels[k], dict(zip(self.labels, row, strict=True))) for g, k, row in rows]
        return named, None

    def _counted(self, weights: Array) -> Array:
        table = np.zeros((self.votes.shape[1], len(self.labels)))
        for weight, positions in zip(weights, self.votes, strict=True):
            table[np.arange(len(positions)), positions] += weight
        return table

    def _averaged(self, weights: Array) -> Array:
        """The mean of probabilities; for logs, the mean of logs, normalised. Votes rank by the plain mean."""
        assert self.tables is not None
        if self.method in ("prob", "vote"):
            return np.tensordot(weights, self.tables, axes=1)
        least = np.where(self.tables > 0, self.tables, SMALLEST).min(axis=(1, 2), keepdims=True)
        table = np.exp(np.tensordot(weights, np.log(np.maximum(self.tables, least)), axes=1))
        normal: Array = table / table.sum(axis=1, keepdims=True)
        return normal
