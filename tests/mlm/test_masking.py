import numpy as np
import pytest

from danseo.mlm.masking import (
    BEGINS,
    CONTINUES,
    SPECIAL,
    Vocabulary,
    choose_positions,
    compute_mask_share,
    make_step_generator,
    mask_text,
)

VOCABULARY = Vocabulary(mask=4, ordinary=np.arange(5, 1000))


def rng(step: int = 0) -> np.random.Generator:
    return make_step_generator(42, step, 7)


@pytest.mark.parametrize(
    ("minimum", "maximum", "mean", "longest", "share"),
    [
        (0.118, 0.36, 768, 1536, 0.239),
        (0.118, 0.36, 1536, 1536, 0.36),
        (0.118, 0.36, 3000, 1536, 0.36),
        (0.136, 0.475, 1024, 2048, 0.3055),
        (0.1, 0.25, 128, 512, 0.1375),
        (0.15, None, 10, 512, 0.15),
    ],
)
def test_share_grows_with_the_mean_length(minimum, maximum, mean, longest, share):
    assert compute_mask_share(minimum, maximum, mean, longest) == pytest.approx(share)


def test_share_is_exact_and_never_a_special_token():
    marks = np.array([SPECIAL, *[BEGINS] * 98, SPECIAL])
    for step in range(20):
        positions = choose_positions(marks, 0.15, rng(step), whole=False)
        assert len(positions) == len(set(positions)) == 15
        assert 0 not in positions
        assert 99 not in positions
        assert list(positions) == sorted(positions)


def test_words_are_masked_completely():
    sizes = np.array([1, 3, 2, 1, 4, 2, 5, 1, 2, 3] * 4)
    marks = np.concatenate([[SPECIAL], *([BEGINS, *[CONTINUES] * (size - 1)] for size in sizes), [SPECIAL]])
    words = np.cumsum(marks == BEGINS)
    for step in range(30):
        positions = choose_positions(marks, 0.2, rng(step), whole=True)
        assert (marks[positions] != SPECIAL).all()
        for word in set(words[positions]):
            whole = np.flatnonzero((words == word) & (marks != SPECIAL))
            assert set(whole) <= set(positions)
        assert 0.2 * sizes.sum() - 1 <= len(positions) < 0.2 * sizes.sum() + 5


def test_masks_are_80_10_10():
    ids = np.random.default_rng(0).integers(5, 1000, 40000)
    marks = np.full(len(ids), BEGINS)
    masked = mask_text(ids, marks, 0.5, VOCABULARY, rng())
    tokens = masked.ids[masked.positions]
    assert (masked.labels == ids[masked.positions]).all()
    assert (tokens == 4).mean() == pytest.approx(0.8, abs=0.01)
    assert (tokens == masked.labels).mean() == pytest.approx(0.1, abs=0.01)
    others = tokens[(tokens != 4) & (tokens != masked.labels)]
    assert len(others) / len(tokens) == pytest.approx(0.1, abs=0.01)
    assert set(others) <= set(VOCABULARY.ordinary)
    untouched = np.setdiff1d(np.arange(len(ids)), masked.positions)
    assert (masked.ids[untouched] == ids[untouched]).all()


def test_masks_depend_only_on_step_and_record():
    ids, marks = np.arange(5, 205), np.full(200, BEGINS)

    def gaps(step: int, record: int) -> list[int]:
        return mask_text(ids, marks, 0.15, VOCABULARY, make_step_generator(42, step, record)).positions.tolist()

    assert gaps(3, 9) == gaps(3, 9)
    assert len({tuple(gaps(step, record)) for step in range(5) for record in range(5)}) == 25
