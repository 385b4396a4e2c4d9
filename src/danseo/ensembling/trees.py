"""Trees of several members as one: the best tree over averaged scores of heads, or over votes for them."""

import numpy as np

from danseo.ensembling.blend import Array, Blended, require_kept, shares, trusted
from danseo.predictions.trees import FLOOR, best_tree
from danseo.records import Prediction
from danseo.runs.answers import Members

Tree = tuple[Array, Array]
"""Log probabilities of heads, and the best relation for each, as numbers."""


class Trees:
    """dp: relations are voted on by the members, each as much as it believes in the head."""

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method, self.labels = members, method, members.task.labels
        self.guids = [p.guid for p in members.listed[0].predictions]
        if method == "vote":
            positions = {label: position for position, label in enumerate(self.labels)}
            answers = [[[(h, positions[r]) for h, r in p.answer] for p in m.predictions] for m in members.listed]
            self.answers = [[np.array(tree).reshape(-1, 2) for tree in listed] for listed in answers]
        else:
            self.kept: list[list[Tree]] = require_kept(members, method, "scores of heads")

    def __call__(self, weights: Array) -> Blended:
        if self.method == "vote":
            votes = trusted(shares(weights), self.members)
            found = [voted(trees, votes) for trees in zip(*self.answers, strict=True)]
            return self._named(found), None
        blended = [self._averaged(trees, shares(weights)) for trees in zip(*self.kept, strict=True)]
        kept = [(arcs.astype(np.float16), relations) for arcs, relations in blended]
        heads = [best_tree(arcs) for arcs, _ in kept]
        chosen = [np.stack([h, r[np.arange(len(h)), h]], 1) for h, (_, r) in zip(heads, kept, strict=True)]
        return self._named(chosen), kept

    def _named(self, trees: list[Array]) -> list[Prediction]:
        pairs = zip(self.guids, trees, strict=True)
        return [Prediction(g, tuple((h, self.labels[r]) for h, r in tree.tolist())) for g, tree in pairs]

    def _averaged(self, trees: tuple[Tree, ...], weights: Array) -> Tree:
        arcs = np.stack([arcs.astype(np.float64) for arcs, _ in trees])
        relations = np.stack([relations for _, relations in trees])
        if self.method == "prob":
            with np.errstate(divide="ignore"):
                logs = np.logaddexp.reduce(arcs + np.log(weights)[:, None, None], axis=0)
        else:
            logs = np.tensordot(weights, arcs, axes=1)
        return np.maximum(logs, FLOOR), likeliest(relations, weights[:, None, None] * np.exp(arcs), len(self.labels))


def likeliest(relations: Array, weights: Array, labels: int) -> Array:
    """The relation with the most weight for every word and head; who gives a head no chance still has a little say."""
    counts = np.zeros((*relations.shape[1:], labels))
    rows, columns = np.indices(relations.shape[1:])
    share = weights.sum(axis=(1, 2), keepdims=True)
    for member, weight in zip(relations, weights + 1e-12 * (share > 0), strict=True):
        counts[rows, columns, member] += weight
    best: Array = counts.argmax(axis=-1)
    return best


def voted(trees: tuple[Array, ...], weights: Array) -> Array:
    """Heads of the tree with the most votes, each with the relation that those who voted for it like best."""
    words = len(trees[0])
    arcs, rows = np.zeros((words, words + 1)), np.arange(words)
    for tree, weight in zip(trees, weights, strict=True):
        arcs[rows, tree[:, 0]] += weight
    heads = best_tree(arcs)
    return np.array([(head, _relation(position, head, trees, weights)) for position, head in enumerate(heads.tolist())])


def _relation(position: int, head: int, trees: tuple[Array, ...], weights: Array) -> int:
    """The relation with the most votes among those with this head; among all where nobody has it."""
    votes: dict[int, float] = {}
    agreeing = [bool(tree[position, 0] == head) and weight > 0 for tree, weight in zip(trees, weights, strict=True)]
    for tree, weight, agrees in zip(trees, weights.tolist(), agreeing, strict=True):
        if agrees or not any(agreeing):
            relation = int(tree[position, 1])
            votes[relation] = votes.get(relation, 0.0) + weight
    return max(votes, key=lambda relation: (votes[relation], -relation))
