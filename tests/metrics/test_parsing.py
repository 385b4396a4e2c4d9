"""Dependency scores by hand and against scikit-learn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from danseo.metrics.parsing import WRONG_HEAD, attachment, head_macro_f1, merge_rare, relation_macro_f1
from danseo.tasks.klue.dp import COMMON

EDGES = st.tuples(st.integers(0, 6), st.sampled_from(["NP", "VP", "NP_SBJ", "X", "X_SBJ", "R"]))
TREES = st.lists(st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=6), min_size=1, max_size=5).map(
    lambda rows: tuple([[pair[side] for pair in row] for row in rows] for side in (0, 1))
)


def flatten(trees):
    return [edge for tree in trees for edge in tree]


def test_one_wrong_head_costs_a_whole_class():
    """The class WRONG has F1 0, so that one of two thousand words halves the score."""
    many = [((2, "NP"), (0, "NP"))] * 1000
    broken = [((1, "NP"), (0, "NP")), *many[1:]]
    assert relation_macro_f1(many, broken, COMMON).value() == pytest.approx(50, abs=0.02)


def test_the_official_uas_is_a_mean_over_head_positions():
    golds = [((2, "NP"), (0, "VP"))] * 9 + [((2, "NP"), (3, "NP"), (0, "VP"))]
    answers = [*golds[:9], ((2, "NP"), (2, "NP"), (0, "VP"))]
    assert attachment(golds, answers, labelled=False).value() == pytest.approx(100 * 20 / 21)
    assert head_macro_f1(golds, answers).value() == pytest.approx(100 * (1 + 20 / 21 + 0) / 3)


@settings(max_examples=50, deadline=None)
@given(TREES)
def test_the_official_forms_equal_scikit_learn(pair):
    golds, answers = pair
    heads = [[head for head, _ in flatten(trees)] for trees in pair]
    assert head_macro_f1(golds, answers).value() == pytest.approx(100 * f1_score(*heads, average="macro"))
    relations = [merge_rare([relation for _, relation in flatten(trees)], COMMON) for trees in pair]
    judged = [r if g == a else WRONG_HEAD for g, a, r in zip(*heads, relations[1], strict=True)]
    expected = 100 * f1_score(relations[0], judged, average="macro")
    assert relation_macro_f1(golds, answers, COMMON).value() == pytest.approx(expected)


@given(TREES)
def test_attachment_is_a_share_of_words(pair):
    words = list(zip(*map(flatten, pair), strict=True))
    heads, edges = (
        100 * sum(hits) / len(words) for hits in zip(*((g[0] == a[0], g == a) for g, a in words), strict=True)
    )
    assert attachment(*pair, labelled=False).value() == pytest.approx(heads)
    assert attachment(*pair, labelled=True).value() == pytest.approx(edges)
    rare = [[[(head, *merge_rare([name], COMMON)) for head, name in tree] for tree in trees] for trees in pair]
    merged = attachment(*pair, labelled=True, common=COMMON).value()
    assert merged == pytest.approx(attachment(*rare, labelled=True).value())
