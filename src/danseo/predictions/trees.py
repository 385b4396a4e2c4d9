"""The best tree over the words of a sentence: what parsers end with, and ensembles of them; needs no torch."""

from typing import Any

import numpy as np

from danseo.extras import require

FLOOR = -1e4  # the lowest log probability kept, so that half precision holds it


def best_tree(arcs: Any) -> Any:
    """The heads of the best tree with exactly one root; arcs are words x (root and words)."""
    require("ufal.chu-liu-edmonds")
    from ufal.chu_liu_edmonds import chu_liu_edmonds

    arcs, words = np.asarray(arcs, dtype=np.float64), len(arcs)  # half precision has no room for the price of a root
    scores = np.full((words + 1, words + 1), np.nan)
    scores[1:] = arcs
    scores[1:, 0] -= (words + 1) * (
        arcs.max(initial=0.0) - arcs.min(initial=0.0) + 1.0
    )  # a second root costs more than any tree can win
    np.fill_diagonal(scores, np.nan)
    return np.array(chu_liu_edmonds(scores)[0][1:], dtype=np.int64)
