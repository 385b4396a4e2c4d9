"""Label scores against scikit-learn, and their weighted forms against examples that are really repeated."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    auc,
    average_precision_score,
    f1_score,
    precision_recall_curve,
    precision_score,
    recall_score,
)

from danseo.metrics.classification import (
    Ranking,
    accuracy,
    label_macro_f1,
    make_curves,
    relation_micro_f1,
    relation_precision,
    relation_recall,
    set_counts,
)
from danseo.metrics.statistic import Counts, micro_f1_or_zero
from danseo.tasks.klue.re import LABELS

NAMES = ("no_relation", "a", "b", "c")
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=30)
METRICS = [accuracy, label_macro_f1, relation_micro_f1, relation_precision, relation_recall]


def make_ranking(seed: int, n: int = 60, labels: tuple[str, ...] = NAMES, steps: int = 6):
    """Golds and probabilities of a fair model, rounded so that many are tied."""
    rng = np.random.default_rng(seed)
    golds = [*labels, *rng.choice(labels, n - len(labels))]
    rows = rng.dirichlet(np.ones(len(labels)), n) + [[label == gold for label in labels] for gold in golds]
    rows = np.round(rows / 2 * steps) / steps
    return golds, [dict(zip(labels, map(float, row), strict=True)) for row in rows]


SETS = st.frozensets(st.sampled_from(NAMES))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(SETS, SETS), min_size=1, max_size=20))
def test_scores_of_several_labels_equal_scikit_learn(pairs):
    golds, answers = map(list, zip(*pairs, strict=True))
    counts = set_counts(golds, answers, NAMES)
    sides = [[[name in row for name in NAMES] for row in side] for side in (golds, answers)]
    there = [k for k, name in enumerate(NAMES) if any(name in g or name in a for g, a in pairs)]
    expected = 100 * f1_score(*sides, average="macro", labels=there) if there else math.nan
    assert counts.value() == pytest.approx(expected, nan_ok=True)
    pooled = Counts(counts.table, micro_f1_or_zero).value()
    assert pooled == pytest.approx(100 * f1_score(*sides, average="micro", zero_division=0.0))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=50, deadline=None)
@given(PAIRS)
def test_label_scores_equal_scikit_learn(pairs):
    golds, answers = map(list, zip(*pairs, strict=True))
    relations = {"labels": NAMES[1:], "average": "micro", "zero_division": 0.0}
    assert accuracy(golds, answers).value() == pytest.approx(100 * accuracy_score(golds, answers))
    assert label_macro_f1(golds, answers).value() == pytest.approx(100 * f1_score(golds, answers, average="macro"))
    assert relation_micro_f1(golds, answers).value() == pytest.approx(100 * f1_score(golds, answers, **relations))
    for own, other, side in ((relation_precision, precision_score, answers), (relation_recall, recall_score, golds)):
        expected = 100 * other(golds, answers, **relations) if set(side) != {"no_relation"} else math.nan
        assert own(golds, answers).value() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=40)
@given(PAIRS, st.randoms(use_true_random=False))
def test_weights_are_repetitions(metric, pairs, random):
    weights = np.array([random.randint(0, 3) for _ in pairs])
    weights[0] += 1
    golds, answers = map(list, zip(*pairs, strict=True))
    rows = np.repeat(np.arange(len(pairs)), weights)
    repeated = metric([golds[row] for row in rows], [answers[row] for row in rows]).value()
    assert metric(golds, answers).values(weights[None])[0] == pytest.approx(repeated, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("steps", [2, 6, 10**6])
@pytest.mark.parametrize("seed", range(8))
def test_areas_equal_scikit_learn(seed, steps):
    golds, probabilities = make_ranking(seed, steps=steps)
    trapezoids, averages = [], []
    for label in NAMES:
        is_gold, score = [gold == label for gold in golds], [row[label] for row in probabilities]
        precision, recall, _ = precision_recall_curve(is_gold, score)
        trapezoids.append(auc(recall, precision))
        averages.append(average_precision_score(is_gold, score))
    measured = make_curves(golds, probabilities, NAMES)
    assert Ranking(measured).value() == pytest.approx(100 * np.mean(trapezoids), abs=1e-9)
    assert Ranking(measured, trapezoid=False).value() == pytest.approx(100 * np.mean(averages), abs=1e-9)


@pytest.mark.parametrize("steps", [3, 10**6])
@pytest.mark.parametrize("seed", range(6))
def test_area_weights_are_repetitions(seed, steps):
    golds, probabilities = make_ranking(seed, steps=steps)
    weights = np.random.default_rng(seed).integers(0, 4, (5, len(golds)))
    for form in ({}, {"only_present": True}, {"only_present": True, "trapezoid": False}):
        statistic = Ranking(make_curves(golds, probabilities, NAMES), **form)
        expected = []
        for row in weights:
            chosen = np.repeat(np.arange(len(golds)), row)
            again = make_curves([golds[k] for k in chosen], [probabilities[k] for k in chosen], NAMES)
            expected.append(Ranking(again, **form).value())
        assert statistic.values(weights) == pytest.approx(np.array(expected), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("steps", [3, 10**6])
def test_areas_of_swapped_answers(steps):
    """Both systems are scored as if they had given each other's answers, whichever form asks first."""
    golds, mine = make_ranking(3, steps=steps)
    _, theirs = make_ranking(4, steps=steps)
    swap = np.random.default_rng(0).integers(0, 2, (20, len(golds))).astype(float)
    forms = ({}, {"only_present": True}, {"only_present": True, "trapezoid": False})
    first, second = make_curves(golds, mine, NAMES), make_curves(golds, theirs, NAMES)
    for form in forms:
        found = Ranking(first, **form).swap_answers(Ranking(second, **form), swap)
        for row, values in zip(swap, zip(*found, strict=True), strict=True):
            mixed = [
                [b if s else a for a, b, s in zip(*pair, row, strict=True)] for pair in ((mine, theirs), (theirs, mine))
            ]
            expected = [Ranking(make_curves(golds, answers, NAMES), **form).value() for answers in mixed]
            assert list(values) == pytest.approx(expected, abs=1e-9)


def test_areas_of_equal_probabilities():
    """A straight line from (0, 1) to (1, share of the label): 50 + 50/30, whatever the shares are."""
    golds = [*LABELS, *["no_relation"] * 70]
    measured = make_curves(golds, [dict.fromkeys(LABELS, 1 / 30)] * 100, LABELS)
    assert Ranking(measured).value() == pytest.approx(50 + 50 / 30)
    assert Ranking(measured, trapezoid=False).value() == pytest.approx(100 / 30)


def test_label_without_gold():
    golds, probabilities = ["a", "b"], [{"a": 0.9, "b": 0.1}, {"a": 0.2, "b": 0.8}]
    measured = make_curves(golds, probabilities, ("a", "b", "c"))
    assert math.isnan(Ranking(measured).value())
    assert "1 labels" in Ranking(measured).undefined_reason
    assert Ranking(measured, only_present=True).value() == 100


def test_scores_without_relations():
    golds = answers = ["no_relation", "no_relation"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert relation_micro_f1(golds, answers).value() == 0
        for statistic, why in (
            (relation_precision(golds, answers), "answered"),
            (relation_recall(golds, answers), "find"),
        ):
            assert math.isnan(statistic.value())
            assert why in statistic.undefined_reason
