"""Any number of labels of several members as one: averages of their chances, or a vote on each."""

import numpy as np

from danseo.data.halves import in_half
from danseo.ensembling.blend import Array, Blended, shares, trusted
from danseo.errors import DanseoError
from danseo.predictions.thresholds import label_threshold
from danseo.records import Prediction
from danseo.runs.answers import Members

_LEAST = 1e-7  # what a chance of 0 or 1 counts as where logarithms are averaged


class Several:
    """From which chance on a label is answered is settled anew for the whole, on the select half."""

    threshold: float | None = None
    """What was settled last; None for votes."""

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method, self.labels = members, method, members.task.labels
        self.votes = np.array([[[n in p.answer for n in self.labels] for p in m.predictions] for m in members.listed])
        lacking = [m for m in members.listed if any(p.probabilities is None for p in m.predictions)]
        if lacking and method != "vote":
            raise DanseoError(
                f"{lacking[0].path}: not all predictions have probabilities, which --method {method} needs; "
                "use --method vote"
            )
        rows = [
            [[(p.probabilities or {}).get(n, 0.0) for n in self.labels] for p in m.predictions] for m in members.listed
        ]
        self.tables = self.votes.astype(float) if lacking else np.array(rows, dtype=float)
        self.select = in_half(members.task, members.examples, "select")
        self.golds = np.array([[n in members.examples[position].gold for n in self.labels] for position in self.select])

    def __call__(self, weights: Array) -> Blended:
        if self.method == "vote":
            counted = np.tensordot(shares(trusted(weights, self.members)), self.votes.astype(float), axes=1)
            return self._answers(counted > 0.5, np.tensordot(shares(weights), self.tables, axes=1)), None
        table = self._averaged(shares(weights))
        self.threshold = 0.5
        if self.select:
            self.threshold = label_threshold(table[self.select], self.golds, self.members.task.headline)
        return self._answers(table > self.threshold, table), None

    def _averaged(self, weights: Array) -> Array:
        """The mean of the chances, or that of their logits."""
        if self.method == "prob":
            return np.tensordot(weights, self.tables, axes=1)
        kept = np.clip(self.tables, _LEAST, 1 - _LEAST)
        table: Array = 1 / (1 + np.exp(-np.tensordot(weights, np.log(kept) - np.log1p(-kept), axes=1)))
        return table

    def _answers(self, chosen: Array, table: Array) -> list[Prediction]:
        guids = [prediction.guid for prediction in self.members.listed[0].predictions]
        return [
            Prediction(
                guid,
                tuple(label for label, is_in in zip(self.labels, row, strict=True) if is_in),
                dict(zip(self.labels, chances, strict=True)),
            )
            for guid, row, chances in zip(guids, chosen.tolist(), table.tolist(), strict=True)
        ]
