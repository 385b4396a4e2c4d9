"""The statistics, checked by hand and by simulation: error rates must be what they claim."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from danseo.metrics.classification import label_macro_f1
from danseo.metrics.statistic import Counts, mean
from danseo.stats import (
    bootstrap,
    bootstrap_weights,
    clusters_of,
    generator,
    holm,
    interval,
    mcnemar_p,
    permutation_p,
    tie_groups,
)

TRIALS = 400


def simulate(trial: int, n: int, gap: float) -> tuple[Counts, Counts]:
    """Two systems that are right on the same easy examples; b is better than a by the gap, in shares."""
    rng = generator(trial)
    ease = rng.beta(2, 1, n)
    right_a = rng.random(n) < ease * (1 - gap * 1.5)  # the mean of ease is 2/3
    return mean(right_a), mean(rng.random(n) < ease)


def resampling(trial: int) -> np.random.Generator:
    """A source of randomness that shares nothing with the one the data came from."""
    return generator(1_000_000 + trial)


def test_equal_systems_are_called_different_in_five_of_a_hundred_trials():
    clusters = clusters_of(None, 400)
    p_values = []
    for trial in range(TRIALS):
        a, b = simulate(trial, 400, gap=0)
        p_values.append(permutation_p({"accuracy": a}, {"accuracy": b}, clusters, rounds=400, rng=resampling(trial)))
    rate = np.mean([p["accuracy"] < 0.05 for p in p_values])
    assert 0.03 <= rate <= 0.07


@pytest.mark.parametrize("gap", [0.0, 0.06])
def test_intervals_of_a_difference_cover_the_truth(gap):
    clusters = clusters_of(None, 400)
    covered = 0
    for trial in range(TRIALS):
        a, b = simulate(trial, 400, gap)
        values = bootstrap({"a": a, "b": b}, clusters, rounds=600, rng=resampling(trial))
        low, high = interval(values["b"] - values["a"], b.value() - a.value())
        covered += low <= 100 * gap <= high
    assert 0.93 <= covered / TRIALS <= 0.97


def test_intervals_of_macro_f1_cover_the_truth():
    labels = np.array(["가", "나", "다"])

    def draw(rng, n):
        gold = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        return labels[gold], labels[np.where(rng.random(n) < 0.8, gold, rng.choice(3, n))]

    truth = label_macro_f1(*(side.tolist() for side in draw(resampling(-1), 400_000))).value()
    covered = 0
    for trial in range(TRIALS):
        f1 = label_macro_f1(*(side.tolist() for side in draw(generator(trial), 1000)))
        values = bootstrap({"f1": f1}, clusters_of(None, 1000), rounds=600, rng=resampling(trial))
        low, high = interval(values["f1"], f1.value())
        covered += low <= truth <= high
    assert 0.93 <= covered / TRIALS <= 0.97


def test_clustered_examples_need_clustered_resampling():
    """Turns of a dialogue share their fate: with clusters the interval covers, without it is far too short."""
    covered = {"clusters": 0, "single": 0}
    for trial in range(TRIALS):
        rng = generator(trial)
        dialogues = np.repeat(np.arange(80), 6)
        hits = mean((rng.random(80) < 0.6)[dialogues] ^ (rng.random(480) < 0.05))
        truth = 100 * (0.6 * 0.95 + 0.4 * 0.05)
        for name, clusters in (("clusters", dialogues), ("single", np.arange(480))):
            values = bootstrap({"hits": hits}, clusters, rounds=500, rng=resampling(trial))
            low, high = interval(values["hits"], hits.value())
            covered[name] += low <= truth <= high
    assert 0.92 <= covered["clusters"] / TRIALS <= 0.97
    assert covered["single"] / TRIALS < 0.7


def test_weights_draw_whole_clusters():
    clusters = clusters_of(["x", "x", "y", "z", "z"], 5)
    weights = np.concatenate(list(bootstrap_weights(clusters, 50, generator(0))))
    assert weights.shape == (50, 5)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()


def test_one_resample_is_what_it_says():
    values = mean([1, 0, 0, 1]).values(np.array([[2.0, 0, 1, 1], [0, 4, 0, 0]]))
    assert values == pytest.approx([75, 0])


def test_identical_systems_have_p_one_and_no_difference():
    a = mean([1, 0, 1, 1, 0])
    p = permutation_p({"m": a}, {"m": a}, np.arange(5), rounds=200, rng=generator(0))["m"]
    assert p == 1
    assert mcnemar_p(a, a, np.arange(5)) == 1


def test_mcnemar_counts_only_the_examples_where_the_systems_differ():
    a, b = mean([1] * 8 + [0] * 2 + [1] * 5), mean([0] * 8 + [1] * 2 + [1] * 5)
    assert mcnemar_p(a, b, np.arange(15)) == pytest.approx(binomtest(8, 10).pvalue)
    assert mcnemar_p(a, b, np.repeat(np.arange(5), 3)) is None, "turns of one dialogue are not independent"
    assert mcnemar_p(mean([0.5, 1.0]), mean([0.5, 0.0]), np.arange(2)) is None, "not a share of hits"


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    corrected = holm([math.nan, 0.02])
    assert math.isnan(corrected[0])
    assert corrected[1] == pytest.approx(0.02)


def test_tie_groups_share_a_letter_exactly_when_tied():
    tied = {frozenset("ab"), frozenset("bc")}
    groups = tie_groups(["a", "b", "c", "d"], tied)
    assert groups == {"a": "a", "b": "ab", "c": "b", "d": "c"}
    for x in groups:
        for y in groups:
            if x != y:
                assert bool(set(groups[x]) & set(groups[y])) == (frozenset((x, y)) in tied)


def test_undefined_scores_have_no_interval():
    low, high = interval(np.full(10, math.nan), math.nan)
    assert math.isnan(low)
    assert math.isnan(high)
    assert interval(np.full(10, 100.0), 100.0) == (100.0, 100.0)
