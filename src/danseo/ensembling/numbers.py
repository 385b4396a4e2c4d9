"""Numbers of several members as one: their mean, or the weighted median as a vote."""

import numpy as np

from danseo.ensembling.blend import Array, Blended, shares
from danseo.records import Prediction
from danseo.runs.answers import Members


class Numbers:
    """sts: the mean whatever the method, but for vote."""

    def __init__(self, members: Members, method: str) -> None:
        self.method, self.guids = method, [p.guid for p in members.listed[0].predictions]
        self.table = np.array([[float(p.answer) for p in m.predictions] for m in members.listed])

    def __call__(self, weights: Array) -> Blended:
        normal = shares(weights)
        numbers = median(self.table, normal) if self.method == "vote" else normal @ self.table
        return [Prediction(g, round(n, 6)) for g, n in zip(self.guids, numbers.tolist(), strict=True)], None


def median(table: Array, weights: Array) -> Array:
    """The weighted median of every column: half of the weight lies on either side; between two, their middle."""
    order = table.argsort(axis=0, kind="stable")
    sorted_, before = np.take_along_axis(table, order, axis=0), np.cumsum(weights[order], axis=0)
    columns = np.arange(table.shape[1])
    low = sorted_[(before < 0.5 - 1e-9).sum(axis=0), columns]
    high = sorted_[np.minimum((before < 0.5 + 1e-9).sum(axis=0), len(table) - 1), columns]
    middle: Array = (low + high) / 2
    return middle
