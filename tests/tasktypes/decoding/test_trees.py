"""Trees over words: always one root, and never a better one among all that there are."""

from itertools import product

import numpy as np
import pytest

from danseo.tasktypes.decoding import FLOOR, find_best_tree


def is_tree(heads) -> bool:
    def reaches_root(word: int) -> bool:
        for _ in heads:
            word = heads[word - 1] if word else 0
        return word == 0

    return list(heads).count(0) == 1 and all(reaches_root(word) for word in range(1, len(heads) + 1))


def total(arcs, heads) -> float:
    return arcs[np.arange(len(arcs)), heads].sum()


@pytest.mark.parametrize("words", range(1, 7))
def test_no_tree_is_better(words: int) -> None:
    rng = np.random.default_rng(words)
    trees = np.array([heads for heads in product(range(words + 1), repeat=words) if is_tree(heads)])
    assert len(trees) == words ** (words - 1), "Cayley counts the trees with one root"
    for trial in range(200):
        arcs = rng.choice([0.1, 3, 100]) * rng.normal(size=(words, words + 1))
        arcs[:, 0] += rng.choice([-10, 0, 10])  # few wish to be the root, or all do
        if trial % 2:
            arcs = np.round(arcs)  # many trees are equally good
        found = find_best_tree(arcs)
        assert is_tree(found.tolist())
        assert total(arcs, found) == pytest.approx(arcs[np.arange(words), trees].sum(axis=1).max())


def test_cycles_inside_cycles_are_broken_at_the_cheapest_arcs() -> None:
    arcs = np.full((4, 5), -100.0)
    arcs[0, 2] = arcs[1, 1] = 10  # 1 and 2 prefer each other
    arcs[2, 1], arcs[1, 3] = 9, 9  # both of them and 3
    arcs[3, 3], arcs[2, 4] = 8, 8.5  # all of them and 4
    arcs[0, 0], arcs[3, 0] = 1, 2
    assert find_best_tree(arcs).tolist() == [2, 3, 4, 0]


@pytest.mark.parametrize("words", [0, 1, 40, 150])
def test_long_sentences_give_their_tree(words: int) -> None:
    rng = np.random.default_rng(words)
    order = rng.permutation(words)
    gold = np.zeros(words, dtype=int)
    for place, word in enumerate(order[1:], 1):
        gold[word] = order[rng.integers(place)] + 1
    arcs = rng.uniform(-3, 0, size=(words, words + 1))
    arcs[np.arange(words), gold] = 0.0
    assert find_best_tree(arcs).tolist() == gold.tolist(), "found by every word for itself"
    others = rng.choice(words, words // 5, replace=False)
    arcs[others, rng.integers(words + 1, size=len(others))] = 1.0  # some prefer another head, themselves, or the root
    found = find_best_tree(arcs)
    assert is_tree(found.tolist()) or not words
    assert total(arcs, found) >= total(arcs, gold)
    shifted = find_best_tree(arcs + rng.integers(-8, 8, size=(words, 1)))
    assert total(arcs, shifted) == pytest.approx(total(arcs, found)), "only differences between heads count"


def test_trees_in_half_precision_have_one_root():
    """The price of a second root is far beyond what half precision can hold."""
    arcs = np.full((9, 10), FLOOR, dtype=np.float16)
    arcs[:, 0] = -0.5
    arcs[1:, 1] = -1.0
    assert find_best_tree(arcs).tolist() == [0, *[1] * 8]
