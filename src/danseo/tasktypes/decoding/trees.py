"""Dependency trees: the best tree from scores of heads, for parsers and ensembles; needs no torch."""

from typing import Any

import numpy as np

FLOOR = -1e4  # the lowest log probability kept, so that half precision holds it


def find_best_tree(arcs: Any) -> Any:
    """Return the heads of the best tree with exactly one root; arcs are words x (root and words)."""
    arcs, words = np.asarray(arcs, dtype=np.float64), len(arcs)  # the penalty of a root exceeds half precision
    scores = np.full((words + 1, words + 1), -np.inf)
    scores[1:] = arcs
    np.fill_diagonal(scores, -np.inf)
    heads = _find_best_heads(scores)
    if (heads[1:] == 0).sum() > 1:  # again, with a penalty on roots: a second one costs more than any tree can gain
        scores[1:, 0] -= (words + 1) * (arcs.max() - arcs.min() + 1.0)
        heads = _find_best_heads(scores)
    return heads[1:]


def _find_best_heads(scores: Any) -> Any:
    """Return the heads of the best tree below node 0, by Chu-Liu/Edmonds; scores are nodes x heads."""
    heads = _greedy_heads(scores)
    contractions = []
    while len(cycle := _find_cycle(heads)):  # it becomes one node, the last
        outside = np.ones(len(scores), dtype=bool)
        outside[cycle] = False
        others = np.flatnonzero(outside)
        entering = scores[np.ix_(cycle, others)] - scores[cycle, heads[cycle]][:, None]  # each breaks the cycle there
        leaving = scores[np.ix_(others, cycle)]
        contractions.append((heads, others, cycle[entering.argmax(axis=0)], cycle[leaving.argmax(axis=1)]))
        contracted = np.full((len(others) + 1, len(others) + 1), -np.inf)
        contracted[:-1, :-1] = scores[np.ix_(others, others)]
        contracted[-1, :-1] = entering.max(axis=0)
        contracted[:-1, -1] = leaving.max(axis=1)
        scores = contracted
        heads = _greedy_heads(scores)
    for inner, others, entered, left in reversed(contractions):
        outer, head = heads[:-1], heads[-1]
        inner[others] = np.where(outer == len(others), left, others[np.minimum(outer, len(others) - 1)])
        inner[entered[head]] = others[head]
        heads = inner
    return heads


def _greedy_heads(scores: Any) -> Any:
    """Return the best head of every node, chosen without regard to the others; node 0 keeps itself."""
    heads = scores.argmax(axis=1)
    heads[0] = 0
    return heads


def _find_cycle(heads: Any) -> Any:
    """Return the nodes of one cycle; none if node 0 is above all nodes."""
    reached = heads
    for _ in range(len(heads).bit_length()):
        reached = reached[reached]  # after more steps than there are nodes: node 0, or a node of a cycle
    cycle: list[Any] = []
    node = reached.max()
    while node and (not cycle or node != cycle[0]):
        cycle.append(node)
        node = heads[node]
    return np.array(cycle, dtype=np.int64)
