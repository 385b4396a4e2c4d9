import numpy as np
import pytest

pytest.importorskip("sklearn")

from danseo.mlm.initialization import compute_cooccurrence_vectors

SPECIAL, VOCABULARY, WIDTH = (0, 1), 40, 8


def two_topics() -> np.ndarray:
    """Sentences of ten tokens, of 2 to 19 or of 20 to 37, with a special token at each end."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(2, 20, 10) + 18 * (row % 2) for row in range(2000)]
    return np.concatenate([[0, *row, 1] for row in rows])


def test_neighbours_have_similar_vectors():
    vectors = compute_cooccurrence_vectors(two_topics(), SPECIAL, VOCABULARY, WIDTH, seed=3)
    nearness = vectors @ vectors.T
    assert vectors.shape == (VOCABULARY, WIDTH)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors[2:38], axis=1), 1, atol=1e-5)
    assert nearness[2:20, 2:20].mean() > nearness[2:20, 20:38].mean() + 0.3
