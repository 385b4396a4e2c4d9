"""Decoded tags are legal, and the best of all legal ones."""

import time
from itertools import product

import numpy as np
import pytest

from danseo.tasks.klue.ner import LABELS
from danseo.tasktypes import decoding
from danseo.tasktypes.decoding import compute_character_probabilities, decode_texts, find_owners

SMALL = ("B-LC", "I-LC", "O")
FIVE = ("B-LC", "I-LC", "B-PS", "I-PS", "O")


def decode_characters(rows, covered, labels=LABELS):
    return decode_texts(["가" * len(each) for each in rows], rows, covered, labels)


def softmax(logits):
    exponents = np.exp(np.array(logits, dtype=float))
    return exponents / exponents.sum(axis=1, keepdims=True)


def certain(tags, labels=LABELS):
    """Return probability 1 for these tags; None is a space."""
    return np.array([[float(tag == label) for label in labels] for tag in tags])


def test_tokens_expand_to_characters():
    """서울시는 2021년 뷁어: the spaces belong to no token."""
    offsets = np.array([[0, 3], [3, 4], [5, 9], [9, 10], [11, 13]])
    table, covered, _ = compute_character_probabilities(
        certain(["B-LC", "O", "B-DT", "I-DT", "O"]), offsets, 13, LABELS
    )
    assert np.flatnonzero(~covered).tolist() == [4, 10]
    assert not table[~covered].any()
    expected = ["B-LC", "I-LC", "I-LC", "O", "O", "B-DT", "I-DT", "I-DT", "I-DT", "I-DT", "O", "O", "O"]
    assert decode_characters([table], [covered]) == [tuple(expected)]


def test_character_belongs_to_the_first_token_that_starts_there():
    owners, firsts = find_owners(np.array([[0, 0], [0, 1], [0, 2], [1, 3], [1, 2], [0, 0]]), 4)
    assert owners.tolist() == [1, 3, 3, -1]
    assert firsts.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (["B-PS", None, "I-PS"], ["B-PS", "I-PS", "I-PS"]),
        (["B-PS", None, "O"], ["B-PS", "O", "O"]),
        (["B-PS", None, "B-PS"], ["B-PS", "O", "B-PS"]),
        (["B-PS", None, None, "I-PS", None], ["B-PS", "I-PS", "I-PS", "I-PS", "O"]),
        ([None, "O", None], ["O", "O", "O"]),
    ],
)
def test_spaces_follow_their_neighbours(known, expected):
    covered = np.array([tag is not None for tag in known])
    assert decode_characters([certain(known)], [covered]) == [tuple(expected)]


def test_inside_without_begin_is_corrected():
    rows = np.zeros((2, 13))
    rows[0, LABELS.index("O")] = 1
    rows[1, [LABELS.index("I-PS"), LABELS.index("B-PS"), LABELS.index("O")]] = 0.6, 0.3, 0.1
    assert decode_characters([rows], [np.ones(2, dtype=bool)]) == [("O", "B-PS")]
    rows[1, [LABELS.index("B-PS"), LABELS.index("O")]] = 0.2, 0.2
    assert decode_characters([rows], [np.ones(2, dtype=bool)]) == [("O", "O")]  # between equals O wins


def legal(tags, covered):
    before = "O"
    for tag, known in zip(tags, covered, strict=True):
        if (tag[0] == "I" and before[1:] != tag[1:]) or (tag[0] == "B" and not known):
            return False
        before = tag
    return True


def score_path(tags, rows, covered):
    return sum(np.log(row[FIVE.index(tag)]) for tag, row, known in zip(tags, rows, covered, strict=True) if known)


def test_the_path_is_the_best_of_all_legal_ones():
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.full(5, 0.5), size=rng.integers(1, 6)) + 1e-9 for _ in range(60)]
    covered = [rng.random(len(r)) < 0.8 for r in rows]
    for tags, r, known in zip(decode_characters(rows, covered, FIVE), rows, covered, strict=True):
        assert legal(tags, known)
        best = max(score_path(path, r, known) for path in product(FIVE, repeat=len(r)) if legal(path, known))
        assert score_path(tags, r, known) == pytest.approx(best)


def test_sentences_are_decoded_independently():
    rng = np.random.default_rng(1)
    rows = [rng.dirichlet(np.ones(13), size=n) for n in (3, 0, 9, 1, 9, 4)]
    covered = [rng.random(len(r)) < 0.8 for r in rows]
    alone = [decode_characters([r], [known])[0] if len(r) else () for r, known in zip(rows, covered, strict=True)]
    assert decode_characters(rows, covered) == alone
    assert decode_characters([], []) == []


@pytest.mark.parametrize("types", [1, 6, 70])
@pytest.mark.parametrize("concentration", [0.02, 0.3])
def test_quick_states_equal_searched_ones(types, concentration):
    """Rounded to halves, so that equals occur; with 70 types there are more states than a byte counts."""
    rng = np.random.default_rng(types)
    lengths = rng.integers(0, 15, size=400)
    rows = rng.dirichlet(np.full(1 + 2 * types, concentration), size=lengths.sum()).astype(np.float16)
    covered = rng.random(len(rows)) < 0.75
    evidence = decoding._compute_evidence(rows, covered)
    found = decoding._find_best_paths(evidence, lengths)
    np.testing.assert_array_equal(found, decoding._search_paths(evidence, lengths[lengths > 0]))


def test_thousands_of_sentences_decode_at_once():
    rng = np.random.default_rng(2)
    rows = [rng.random((n, 13), dtype=np.float32) for n in rng.integers(10, 105, size=4000)]
    covered = [np.ones(len(r), dtype=bool) for r in rows]
    start = time.process_time()
    decode_characters(rows, covered)
    assert time.process_time() - start < 1.5


def test_a_token_counts_once_however_long_it_is():
    """Three syllables that are rather O, before one that is rather inside: 0.4 × 0.75 is more than 0.6 × 0.25."""
    tokens, offsets = np.array([[0.4, 0, 0.6], [0, 0.75, 0.25]]), np.array([[0, 3], [3, 4]])
    table, covered, starts = compute_character_probabilities(tokens, offsets, 4, SMALL)
    assert starts.tolist() == [True, False, False, True]
    assert decode_texts(["서울시청"], [table], [covered], SMALL, [starts]) == [("B-LC", "I-LC", "I-LC", "I-LC")]
    assert decode_texts(["서울시청"], [table], [covered], SMALL) == [("O", "O", "O", "O")]  # 0.4³ × 0.75 is less


def legal_paths(count, labels):
    for path in product(labels, repeat=count):
        if all(tag[0] != "I" or before[1:] == tag[1:] for before, tag in zip(("O", *path), path, strict=False)):
            yield path


def test_tokens_are_decoded_as_trying_every_path_would():
    rng = np.random.default_rng(0)
    for _ in range(60):
        sizes = rng.integers(1, 4, 4)
        ends = np.cumsum(sizes)
        tokens = softmax(2 * rng.normal(size=(4, 5)))
        offsets = np.stack([ends - sizes, ends], axis=1)
        table, covered, starts = compute_character_probabilities(tokens, offsets, int(ends[-1]), FIVE)
        (found,) = decode_texts(["가" * int(ends[-1])], [table], [covered], FIVE, [starts])
        score = {
            p: sum(np.log(row[FIVE.index(t)]) for row, t in zip(tokens, p, strict=True)) for p in legal_paths(4, FIVE)
        }
        best = max(score, key=score.__getitem__)
        assert [found[start] for start, _ in offsets] == list(best)
        inside = {tag: tag.replace("B-", "I-") for tag in FIVE}
        later = [inside[tag] for tag, size in zip(best, sizes, strict=True) for _ in range(size - 1)]
        assert [tag for tag, start in zip(found, starts, strict=True) if not start] == later
