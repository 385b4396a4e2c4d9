"""Number scores against scipy and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from danseo.metrics.regression import pearson, threshold_f1

SCORES = st.lists(st.tuples(*[st.floats(0, 5).map(lambda x: round(x, 3))] * 2), min_size=3, max_size=30)


@given(SCORES)
def test_pearson_equals_scipy(pairs):
    golds, answers = zip(*pairs, strict=True)
    assume(len(set(golds)) > 1 and len(set(answers)) > 1)
    assert pearson(golds, answers).value() == pytest.approx(100 * pearsonr(golds, answers)[0], abs=1e-7)


@given(SCORES)
def test_threshold_f1_equals_scikit_learn(pairs):
    golds, answers = (np.array(side) >= 3 for side in zip(*pairs, strict=True))
    value = threshold_f1(*zip(*pairs, strict=True)).value()
    assert value == pytest.approx(100 * f1_score(golds, answers, zero_division=0.0))


@pytest.mark.parametrize("scale", [1e-300, 1e-13, 1.0, 1e12, 1e307])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_scale_and_shift_change_nothing(scale, shift):
    golds, answers = [0.0, 1.5, 3.0, 4.5, 5.0], np.array([0.3, 1.0, 3.5, 3.0, 4.9])
    expected = pearson(golds, list(answers)).value()
    assert pearson(golds, list((answers + shift) * scale)).value() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 2.7, 1e20])
def test_a_constant_has_no_correlation(constant):
    assert math.isnan(pearson([0.0, 1.0, 2.0], [constant] * 3).value())
    assert math.isnan(pearson([constant] * 3, [0.0, 1.0, 2.0]).value())


@settings(max_examples=50)
@given(SCORES, st.randoms(use_true_random=False))
def test_weights_are_repetitions(pairs, random):
    golds, answers = map(list, zip(*pairs, strict=True))
    weights = np.array([random.randint(0, 3) for _ in pairs])
    weights[:2] += 1
    rows = np.repeat(np.arange(len(pairs)), weights)
    chosen = [golds[row] for row in rows], [answers[row] for row in rows]
    assert threshold_f1(golds, answers).values(weights[None])[0] == pytest.approx(threshold_f1(*chosen).value())
    assume(all(np.ptp(side) > 0.01 for side in chosen))
    assert pearson(golds, answers).values(weights[None])[0] == pytest.approx(pearson(*chosen).value(), abs=1e-6)


def test_a_resample_of_one_example_is_undefined():
    """Rounding must not make a correlation out of three times the same pair."""
    golds, answers = [0.1, 1.7, 3.3, 4.9], [0.7, 1.1, 4.3, 3.9]
    assert np.isnan(pearson(golds, answers).values(3.0 * np.eye(4))).all()
