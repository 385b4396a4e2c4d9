"""Tags of several members as one, on characters, so that their tokenizers may differ."""

import numpy as np

from danseo.ensembling.blend import Array, Blended, require_kept, shares, trusted
from danseo.predictions.viterbi import decode_texts
from danseo.records import Prediction
from danseo.runs.answers import Members

SMALLEST = 6e-8  # the smallest number of half precision


class Tags:
    """ner: distributions of characters are averaged over the members that have one there, then decoded legally."""

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method, self.labels = members, method, members.task.labels
        self.guids = [p.guid for p in members.listed[0].predictions]
        self.texts = [example.text for example in members.examples]
        self.ends = np.cumsum([*map(len, self.texts)])[:-1]
        if method == "vote":
            positions = {label: position for position, label in enumerate(self.labels)}
            self.votes = [np.array([positions[t] for p in m.predictions for t in p.answer]) for m in members.listed]
        else:
            rows = require_kept(members, method, "character probabilities")
            self.tables = [np.concatenate(listed).astype(np.float32) for listed in rows]
            self.voting: list[Array] = [np.asarray(table.any(axis=1)) for table in self.tables]

    def __call__(self, weights: Array) -> Blended:
        table, covered = self._blended(weights)
        rows = np.split(table, self.ends)
        tags = decode_texts(self.texts, rows, np.split(covered, self.ends), self.labels)
        return [Prediction(g, t) for g, t in zip(self.guids, tags, strict=True)], [r.astype(np.float16) for r in rows]

    def plain(self, weights: Array) -> list[Prediction]:
        """The likeliest tag of each character for itself, legal or not: what constrained decoding is worth."""
        table, covered = self._blended(weights)
        best = np.where(covered, table.argmax(axis=1), self.labels.index("O"))
        rows = np.split(np.array(self.labels, dtype=object)[best], self.ends)
        return [Prediction(guid, tuple(tags)) for guid, tags in zip(self.guids, rows, strict=True)]

    def _blended(self, weights: Array) -> tuple[Array, Array]:
        """The distribution of every character, and which characters have one."""
        if self.method == "vote":
            return self._counted(trusted(shares(weights), self.members))
        mix = average if self.method == "prob" else geometric
        return mix(self.tables, self.voting, shares(weights))

    def _counted(self, weights: Array) -> tuple[Array, Array]:
        table = np.zeros((len(self.votes[0]), len(self.labels)))
        for weight, positions in zip(weights, self.votes, strict=True):
            table[np.arange(len(positions)), positions] += weight
        return table / weights.sum(), np.ones(len(table), dtype=bool)


def average(tables: list[Array], voting: list[Array], weights: Array) -> tuple[Array, Array]:
    """Mean distributions of characters, and which characters have one; who knows nothing of one has no vote there."""
    columns = list(zip(weights, tables, voting, strict=True))
    mass = sum(weight * votes for weight, _, votes in columns)
    total = sum(weight * table.astype(np.float64) for weight, table, _ in columns)
    return total / np.where(mass > 0, mass, 1)[:, None], mass > 0


def geometric(tables: list[Array], voting: list[Array], weights: Array) -> tuple[Array, Array]:
    """Normalised geometric means: what averaging logits comes to. What all rule out stays ruled out."""
    columns = [(w, t, v) for w, t, v in zip(weights, tables, voting, strict=True) if w > 0]
    mass = sum(weight * votes for weight, _, votes in columns)
    logs = sum(weight * votes[:, None] * np.log(np.maximum(table, SMALLEST)) for weight, table, votes in columns)
    possible = np.any([table > 0 for _, table, _ in columns], axis=0)
    means = np.where(possible, np.exp(logs / np.where(mass > 0, mass, 1)[:, None]), 0)
    total = means.sum(axis=1, keepdims=True)
    return means / np.where(total > 0, total, 1), mass > 0
