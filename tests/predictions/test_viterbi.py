import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest

from danseo.predictions import viterbi
from danseo.predictions.viterbi import character_probabilities, decode_characters, owners_of
from danseo.tasks.ner import LABELS

SMALL = ("B-LC", "I-LC", "O")
FIVE = ("B-LC", "I-LC", "B-PS", "I-PS", "O")


def softmax(logits):
    exponents = np.exp(np.array(logits, dtype=float))
    return exponents / exponents.sum(axis=1, keepdims=True)


def certain(tags, labels=LABELS):
    """Distributions that know these tags; None is a space."""
    return np.array([[float(tag == label) for label in labels] for tag in tags])


def test_two_tokenizers_average_on_characters():
    first, _ = character_probabilities(softmax([[2, 0, 0], [0, 0, 2]]), np.array([[0, 2], [2, 3]]), 3, SMALL)
    second, _ = character_probabilities(softmax([[1, 0, 0.5]]), np.array([[0, 3]]), 3, SMALL)
    mean = (first + second) / 2
    expected = [[0.646733, 0.146415, 0.206851], [0.0, 0.793149, 0.206851], [0.053253, 0.399656, 0.547091]]
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    assert decode_characters([mean], [np.ones(3, dtype=bool)], SMALL) == [("B-LC", "I-LC", "O")]


def test_pieces_expand_to_characters():
    """서울시는 2021년 뷁어: the spaces belong to no piece."""
    offsets = np.array([[0, 3], [3, 4], [5, 9], [9, 10], [11, 13]])
    table, covered = character_probabilities(certain(["B-LC", "O", "B-DT", "I-DT", "O"]), offsets, 13)
    assert np.flatnonzero(~covered).tolist() == [4, 10]
    assert not table[~covered].any()
    expected = ["B-LC", "I-LC", "I-LC", "O", "O", "B-DT", "I-DT", "I-DT", "I-DT", "I-DT", "O", "O", "O"]
    assert decode_characters([table], [covered]) == [tuple(expected)]


def test_a_character_belongs_to_the_first_piece_that_starts_there():
    owners, firsts = owners_of(np.array([[0, 0], [0, 1], [0, 2], [1, 3], [1, 2], [0, 0]]), 4)
    assert owners.tolist() == [1, 3, 3, -1]
    assert firsts.tolist() == [True, True, False, False]


def test_without_pieces_everything_is_outside():
    table, covered = character_probabilities(np.zeros((0, 13)), np.zeros((0, 2), dtype=int), 2)
    assert decode_characters([table], [covered]) == [("O", "O")]


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


def test_an_inside_without_beginning_is_mended():
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


def value(tags, rows, covered):
    return sum(np.log(row[FIVE.index(tag)]) for tag, row, known in zip(tags, rows, covered, strict=True) if known)


def test_the_path_is_the_best_of_all_legal_ones():
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.full(5, 0.5), size=rng.integers(1, 6)) + 1e-9 for _ in range(60)]
    covered = [rng.random(len(r)) < 0.8 for r in rows]
    for tags, r, known in zip(decode_characters(rows, covered, FIVE), rows, covered, strict=True):
        assert legal(tags, known)
        best = max(value(path, r, known) for path in product(FIVE, repeat=len(r)) if legal(path, known))
        assert value(tags, r, known) == pytest.approx(best)


def test_sentences_do_not_depend_on_their_company():
    rng = np.random.default_rng(1)
    rows = [rng.dirichlet(np.ones(13), size=n) for n in (3, 0, 9, 1, 9, 4)]
    covered = [rng.random(len(r)) < 0.8 for r in rows]
    alone = [decode_characters([r], [known])[0] if len(r) else () for r, known in zip(rows, covered, strict=True)]
    assert decode_characters(rows, covered) == alone
    assert decode_characters([], []) == []


@pytest.mark.parametrize("types", [1, 6, 70])
@pytest.mark.parametrize("sure", [0.02, 0.3])
def test_what_is_not_searched_is_what_a_search_finds(types, sure):
    """Rounded to halves, so that equals occur; with 70 types there are more states than a byte counts."""
    rng = np.random.default_rng(types)
    lengths = rng.integers(0, 15, size=400)
    rows = rng.dirichlet(np.full(1 + 2 * types, sure), size=lengths.sum()).astype(np.float16)
    evidence = viterbi._evidence(rows, rng.random(len(rows)) < 0.75)
    found = viterbi._best_paths(evidence, lengths)
    np.testing.assert_array_equal(found, viterbi._searched(evidence, lengths[lengths > 0]))


def test_a_space_at_the_end_does_not_join_what_the_next_sentence_begins_with():
    first, second = certain(["B-PS", None]), certain(["I-PS", "O"])
    covered = [np.array([True, False]), np.ones(2, dtype=bool)]
    assert decode_characters([first, second], covered)[0] == ("B-PS", "O")


def test_sure_sentences_are_not_searched(monkeypatch):
    monkeypatch.setattr(viterbi, "_searched", None)
    rows = certain(["O", "B-PS", None, "I-PS", "O", "B-LC", "B-LC"]) * 0.9 + 0.01
    covered = np.array([True, True, False, True, True, True, True])
    expected = ("O", "B-PS", "I-PS", "I-PS", "O", "B-LC", "B-LC")
    assert decode_characters([rows], [covered]) == [expected]


def test_thousands_of_sentences_decode_at_once():
    rng = np.random.default_rng(2)
    rows = [rng.random((n, 13), dtype=np.float32) for n in rng.integers(10, 105, size=4000)]
    covered = [np.ones(len(r), dtype=bool) for r in rows]
    start = time.process_time()
    decode_characters(rows, covered)
    assert time.process_time() - start < 1.5


def test_no_torch_is_needed():
    code = "import sys, danseo.predictions.viterbi; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
