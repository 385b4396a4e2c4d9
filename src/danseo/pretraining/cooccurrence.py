"""Where pieces stand before any training: near those that keep the same company in the text."""

from collections.abc import Collection
from typing import Any

import numpy as np

_WINDOW = 5  # pieces to each side; the farther, the less they count
_MOST = 20_000_000  # pieces that are counted; more change little
_SMOOTHING = 0.75  # of the neighbours' frequencies, else rare ones are worth too much


def cooccurrence_vectors(ids: Any, special: Collection[int], vocabulary: int, width: int, seed: int) -> Any:
    """A row of unit length per piece: the strongest directions of the positive mutual information of neighbours."""
    from sklearn.utils.extmath import randomized_svd

    left, strengths, _ = randomized_svd(
        mutual_information(ids, special, vocabulary), width, n_iter=2, random_state=seed
    )
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.standard_normal((width, width)))[0]  # no column matters more than another
    vectors = left * np.sqrt(strengths) @ turned
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    chance = rng.standard_normal((vocabulary, width)) / np.sqrt(width)  # of pieces that the text does not have
    return np.where(lengths > 1e-6, vectors / np.maximum(lengths, 1e-6), chance).astype(np.float32)


def mutual_information(ids: Any, special: Collection[int], vocabulary: int) -> Any:
    """Sparse and symmetric: how much more often two pieces stand near each other than by chance; 0 where not more."""
    counts = _neighbours(np.asarray(ids[:_MOST], dtype=np.int64), special, vocabulary)
    counts = (counts + counts.T).tocoo()
    totals = np.asarray(counts.sum(axis=1)).ravel()
    chances = totals**_SMOOTHING / (totals**_SMOOTHING).sum()
    found = np.log(counts.data / (totals[counts.row] * chances[counts.col]))
    counts.data = np.maximum(found, 0).astype(np.float32)
    return counts.tocsr()


def _neighbours(ids: Any, special: Collection[int], vocabulary: int) -> Any:
    """How often a piece stands before another, weighted by how near; special pieces are no company."""
    from scipy.sparse import csr_array

    total = csr_array((vocabulary, vocabulary), dtype=np.float32)
    for distance in range(1, _WINDOW + 1):
        pairs, counts = np.unique(ids[:-distance] * vocabulary + ids[distance:], return_counts=True)
        positions = np.stack([pairs // vocabulary, pairs % vocabulary])
        counted = ~np.isin(positions, list(special)).any(axis=0)
        entries = (counts[counted] / distance).astype(np.float32), tuple(positions[:, counted])
        total = total + csr_array(entries, shape=total.shape)
    return total
