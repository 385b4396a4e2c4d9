"""The statistics, checked by hand and by simulation: error rates must be what they claim."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

from danseo.metrics.classification import label_macro_f1, relation_precision
from danseo.metrics.statistic import Counts, mean
from danseo.metrics.tagging import Tagged, entity_counts
from danseo.scoring.resampling import (
    bootstrap,
    correct_holm,
    difference_interval,
    draw_weights,
    group_ties,
    interval,
    mcnemar_p,
    number_clusters,
    permutation_p,
    permute_answers,
    unseen_share,
)

TRIALS = 400


def simulate(trial: int, n: int, gap: float) -> tuple[Counts, Counts]:
    """Two systems that are right on the same easy examples; b is better than a by the gap, in shares."""
    rng = np.random.default_rng(trial)
    ease = rng.beta(2, 1, n)
    right_a = rng.random(n) < ease * (1 - gap * 1.5)  # the mean of ease is 2/3
    return mean(right_a), mean(rng.random(n) < ease)


def make_rng(trial: int) -> np.random.Generator:
    """A source of randomness that shares nothing with the one the data came from."""
    return np.random.default_rng(1_000_000 + trial)


def compare_pair(a, b, clusters, rounds: int, rng: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """The p value of a difference and its interval."""
    permuted, value = permute_answers({"m": a}, {"m": b}, clusters, rounds=rounds, rng=rng)["m"], b.value() - a.value()
    return permutation_p(permuted, value), difference_interval(permuted, value, [a, b], clusters)


@pytest.mark.parametrize("n", [3, 8, 30, 200])
@pytest.mark.parametrize("gap", [0.0, 0.15])
def test_p_and_interval_agree(n, gap):
    """An interval leaves 0 out exactly where p is below 5 %, also where differences move in few steps."""
    below = 0
    for trial in range(150):
        a, b = simulate(trial, n, gap)
        p, (low, high) = compare_pair(a, b, np.arange(n), 300, make_rng(trial))
        assert (p < 0.05) == (not low <= 0 <= high), (trial, p, low, high)
        assert low <= b.value() - a.value() <= high
        below += p < 0.05
    assert below or n < 10


def test_false_positive_rate_is_five_percent():
    clusters = number_clusters(None, 400)
    p_values = []
    for trial in range(TRIALS):
        a, b = simulate(trial, 400, gap=0)
        p_values.append(compare_pair(a, b, clusters, 400, make_rng(trial))[0])
    rate = np.mean([p < 0.05 for p in p_values])
    assert 0.03 <= rate <= 0.07


@pytest.mark.parametrize("gap", [0.0, 0.06])
def test_intervals_of_a_difference_cover_the_truth(gap):
    clusters = number_clusters(None, 400)
    covered = 0
    for trial in range(TRIALS):
        a, b = simulate(trial, 400, gap)
        _, (low, high) = compare_pair(a, b, clusters, 600, make_rng(trial))
        covered += low <= 100 * gap <= high
    assert 0.93 <= covered / TRIALS <= 0.97


def test_intervals_of_macro_f1_cover_the_truth():
    labels = np.array(["가", "나", "다"])

    def draw(rng, n):
        gold = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        return labels[gold], labels[np.where(rng.random(n) < 0.8, gold, rng.choice(3, n))]

    truth = label_macro_f1(*(side.tolist() for side in draw(make_rng(-1), 400_000))).value()
    covered = 0
    for trial in range(TRIALS):
        f1 = label_macro_f1(*(side.tolist() for side in draw(np.random.default_rng(trial), 1000)))
        clusters = number_clusters(None, 1000)
        values = bootstrap({"f1": f1}, clusters, rounds=600, rng=make_rng(trial))
        low, high = interval(values["f1"], f1.value(), [f1], clusters)
        covered += low <= truth <= high
    assert 0.93 <= covered / TRIALS <= 0.97


def test_clustered_examples_need_clustered_resampling():
    """Turns of a dialogue share their fate: with clusters the interval covers, without it is far too short."""
    covered = {"clusters": 0, "single": 0}
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        dialogues = np.repeat(np.arange(80), 6)
        hits = mean((rng.random(80) < 0.6)[dialogues] ^ (rng.random(480) < 0.05))
        truth = 100 * (0.6 * 0.95 + 0.4 * 0.05)
        for name, clusters in (("clusters", dialogues), ("single", np.arange(480))):
            values = bootstrap({"hits": hits}, clusters, rounds=500, rng=make_rng(trial))
            low, high = interval(values["hits"], hits.value(), [hits], clusters)
            covered[name] += low <= truth <= high
    assert 0.92 <= covered["clusters"] / TRIALS <= 0.97
    assert covered["single"] / TRIALS < 0.7


def test_weights_draw_whole_clusters():
    clusters = number_clusters(["x", "x", "y", "z", "z"], 5)
    weights = np.concatenate(list(draw_weights(clusters, 50, np.random.default_rng(0))))
    assert weights.shape == (50, 5)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()


def test_mcnemar_counts_only_the_examples_where_the_systems_differ():
    a, b = mean([1] * 8 + [0] * 2 + [1] * 5), mean([0] * 8 + [1] * 2 + [1] * 5)
    assert mcnemar_p(a, b, np.arange(15)) == pytest.approx(binomtest(8, 10).pvalue)
    assert mcnemar_p(a, b, np.repeat(np.arange(5), 3)) is None, "turns of one dialogue are not independent"
    assert mcnemar_p(mean([0.5, 1.0]), mean([0.5, 0.0]), np.arange(2)) is None, "not a share of hits"


def test_holm_steps_down():
    assert correct_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    corrected = correct_holm([math.nan, 0.02])
    assert math.isnan(corrected[0])
    assert corrected[1] == pytest.approx(0.02)


def shares_a_letter(a: str, b: str, many: bool) -> bool:
    return bool(set(a.split() if many else a) & set(b.split() if many else b))


class CountedTies(set):
    """Ties that count their lookups."""

    times = 0

    def __contains__(self, tie: object) -> bool:
        self.times += 1
        return super().__contains__(tie)


TIES = {
    "all": lambda i, j: True,
    "none": lambda i, j: False,
    "near": lambda i, j: abs(i - j) < 30,
    "all but partners": lambda i, j: i // 2 != j // 2,  # 2^100 largest sets of tied systems
    "odd with even": lambda i, j: i % 2 != j % 2,
    "any": lambda i, j: (i * j * 7919 + i + j) % 97 < 60,
}


@pytest.mark.parametrize("ties", TIES)
def test_letters_of_two_hundred_systems(ties):
    """Listing all sets of tied systems would take exponential time."""
    names = [f"s{k}" for k in range(200)]
    pairs = [(names[i], names[j]) for i, j in combinations(range(200), 2) if TIES[ties](i, j)]
    tied = CountedTies(frozenset(pair) for pair in pairs)
    groups = group_ties(names, tied)
    assert tied.times <= len(names) ** 2
    marks = {mark for letters in groups.values() for mark in letters.split()}
    assert len(marks) <= max(200, len(pairs))
    found = {(a, b) for a, b in combinations(names, 2) if shares_a_letter(groups[a], groups[b], len(marks) > 26)}
    assert found == set(pairs)


def test_ties_that_follow_the_ranking_need_the_fewest_letters():
    names = "abcdefgh"
    tied = {frozenset(pair) for pair in ("ab", "ac", "bc", "cd", "ef", "eg", "fg", "fh", "gh")}
    assert list(group_ties(list(names), tied).values()) == ["a", "a", "ab", "b", "c", "cd", "cd", "d"]


@pytest.mark.parametrize("middle", [3.0, 5.2, 9.0])
def test_interval_contains_its_score(middle):
    resampled = np.linspace(middle - 1, middle + 1, 1001)
    low, high = interval(resampled, 5.0, [mean([1.0, 0.0])], np.arange(2))
    assert low < 5.0 < high
    assert high - low == pytest.approx(1.9, abs=0.2)
    low, _ = interval(resampled, 0.5, [mean([1.0, 0.0])], np.arange(2))
    assert low == 0.0, "no share is below 0"


@pytest.mark.parametrize("n", [1, 3, 10, 3000])
def test_interval_of_equal_examples_is_the_exact_binomial_one(n):
    for hit in (0, 1):
        hits = mean([hit] * n)
        found = interval(np.full(50, 100.0 * hit), 100.0 * hit, [hits], np.arange(n))
        exact = binomtest(hit * n, n).proportion_ci(0.95, "exact")
        assert found == pytest.approx((100 * exact.low, 100 * exact.high))
    assert interval(np.full(50, 100.0), 100.0, [mean([1] * 3)], np.arange(3))[0] == pytest.approx(29.24, abs=0.01)


def test_only_answered_examples_count_for_precision():
    """Precision rests on what was answered: three right relations in 1,000 examples are three."""
    answers = ["per:title"] * 3 + ["no_relation"] * 997
    precision = relation_precision(["per:title"] * 5 + ["no_relation"] * 995, answers)
    low, high = interval(np.full(50, 100.0), 100.0, [precision], np.arange(1000))
    assert (low, high) == pytest.approx((29.24, 100), abs=0.01)


def test_rare_classes_matter_in_a_mean_over_classes():
    """Of a class that was seen once, everything may be wrong; where all are as frequent, the mean is like a share."""
    golds = ["가"] * 500 + ["나"] * 500
    even = label_macro_f1(golds, golds)
    assert even.support(np.arange(1000)).tolist() == [500, 500]
    assert unseen_share(even, np.arange(1000)) == pytest.approx(1 - 0.025 ** (1 / 1000))
    rare = label_macro_f1([*golds[:-1], "다"], [*golds[:-1], "다"])
    low, _ = interval(np.full(50, 100.0), 100.0, [rare], np.arange(1000))
    assert 66 < low < 68, "a third of the mean rests on one example"


def test_classes_that_share_sentences_are_not_seen_twice():
    tags = ["B-PS", "O", "B-LC", "O", "B-OG"]
    entities = entity_counts(Tagged.encode([tags] * 50, [tags] * 50, ("PS", "LC", "OG")))
    low, _ = interval(np.full(50, 100.0), 100.0, [entities], np.arange(50))
    assert low == pytest.approx(100 * 0.025 ** (1 / 50))


def test_identical_answers_may_differ_on_other_examples():
    hits = mean([1, 0, 1, 1])
    low, high = interval(np.zeros(50), 0.0, [hits, hits], np.arange(4))
    assert high == -low == pytest.approx(100 * (1 - 0.025 ** (1 / 4)))


@pytest.mark.parametrize(("share", "n"), [(0.99, 20), (0.97, 60), (0.02, 40)])
def test_intervals_near_the_ends_cover_the_truth(share, n):
    """Most of these samples are all right or all wrong, where make_rng alone would be sure of it."""
    clusters, covered, alone = number_clusters(None, n), 0, 0
    for trial in range(TRIALS):
        hits = mean(np.random.default_rng(trial).random(n) < share)
        values = bootstrap({"m": hits}, clusters, rounds=200, rng=make_rng(trial))["m"]
        low, high = interval(values, hits.value(), [hits], clusters)
        covered += low <= 100 * share <= high
        alone += np.quantile(values, 0.025) <= 100 * share <= np.quantile(values, 0.975)
    assert covered / TRIALS >= 0.93
    assert alone / TRIALS < 0.9
