import numpy as np
import pytest

pytest.importorskip("sklearn")

from danseo.pretraining.cooccurrence import cooccurrence_vectors, mutual_information

SPECIAL, VOCABULARY, WIDTH = (0, 1), 40, 8
UNSEEN = VOCABULARY - 1


def two_topics() -> np.ndarray:
    """Sentences of ten pieces, of 2 to 19 or of 20 to 37, with a special piece at each end."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(2, 20, 10) + 18 * (row % 2) for row in range(2000)]
    return np.concatenate([[0, *row, 1] for row in rows])


def test_pieces_of_the_same_company_start_near_each_other():
    vectors = cooccurrence_vectors(two_topics(), SPECIAL, VOCABULARY, WIDTH, seed=3)
    nearness = vectors @ vectors.T
    assert vectors.shape == (VOCABULARY, WIDTH)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors[2:38], axis=1), 1, atol=1e-5)
    assert nearness[2:20, 2:20].mean() > nearness[2:20, 20:38].mean() + 0.3


def test_the_same_text_gives_the_same_rows_and_unseen_pieces_get_some():
    first, again = (cooccurrence_vectors(two_topics(), SPECIAL, VOCABULARY, WIDTH, seed=3) for _ in range(2))
    assert np.array_equal(first, again)
    for row in (*SPECIAL, UNSEEN):
        assert 0.3 < np.linalg.norm(first[row]) < 3


def test_mutual_information_is_never_negative_and_blind_to_special_pieces():
    found = mutual_information(two_topics(), SPECIAL, VOCABULARY).toarray()
    assert found.min() >= 0
    assert not found[list(SPECIAL)].any()
    assert not found[:, list(SPECIAL)].any()
    assert found[2:20, 2:20].mean() > 2 * found[2:20, 20:38].mean()  # which meet only across the end of a sentence
