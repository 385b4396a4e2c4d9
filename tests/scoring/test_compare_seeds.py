"""Differences over examples and seeds: error rates by simulation, and the parts of the noise by hand."""

import numpy as np
import pytest

from danseo.errors import DanseoError
from danseo.metrics.statistic import Counts, mean
from danseo.scoring.compare_seeds import NeededSeeds, System, compare_over_seeds, find_needed_seeds
from danseo.scoring.resampling import number_clusters, permutation_p, permute_answers

N, TRIALS = 300, 200
CLUSTERS = number_clusters(None, N)


def make_systems(trial: int, seeds: int, noise: float, gap: float = 0.0) -> dict[str, list[dict[str, Counts]]]:
    """Two make_systems on the same examples; every run is off by its own luck, and errs on examples of its own."""
    rng = np.random.default_rng(trial)
    ease = rng.normal(0.8, 1.5, N)
    found: dict[str, list[dict[str, Counts]]] = {"a": [], "b": []}
    for name, runs in found.items():
        for _ in range(seeds):
            shown = ease + rng.normal(0, noise) + rng.normal(0, 0.7, N) + gap * (name == "b")
            runs.append({"accuracy": mean(shown > 0)})
    return found


def compute_p(trial: int, seeds: int, noise: float, gap: float = 0.0) -> float:
    _, (difference,) = compare_over_seeds(make_systems(trial, seeds, noise, gap), CLUSTERS, rounds=100, seed=trial)
    return difference.p


@pytest.mark.parametrize(("seeds", "noise"), [(3, 0.2), pytest.param(5, 0.05, marks=pytest.mark.lengthy)])
def test_false_positive_rate_is_five_percent(seeds, noise):
    rate = np.mean([compute_p(trial, seeds, noise) < 0.05 for trial in range(TRIALS)])
    assert 0.01 <= rate <= 0.08


def test_ignoring_seeds_is_far_too_optimistic():
    """One run of each system, examples resampled as if they were all the noise: half of the findings are false."""
    found = []
    for trial in range(60):
        runs = make_systems(trial, 1, 0.2)
        a, b = runs["a"][0], runs["b"][0]
        permuted = permute_answers(a, b, CLUSTERS, rounds=100, rng=np.random.default_rng(10_000 + trial))
        found.append(permutation_p(permuted["accuracy"], b["accuracy"].value() - a["accuracy"].value()) < 0.05)
    assert np.mean(found) > 0.2


def test_real_differences_are_found():
    found = np.mean([compute_p(trial, 5, 0.1, gap=0.6) < 0.05 for trial in range(40)])
    assert found > 0.8


def test_the_interval_and_the_parts_of_the_noise():
    runs = make_systems(1, 4, 0.2, gap=0.3)
    by_metric, (difference,) = compare_over_seeds(runs, CLUSTERS, rounds=400)
    values = {name: [run["accuracy"].value() for run in listed] for name, listed in runs.items()}
    assert difference.value == pytest.approx(np.mean(values["b"]) - np.mean(values["a"]))
    assert difference.low < difference.value < difference.high
    system = by_metric["accuracy"]["a"]
    assert system.spread == pytest.approx(np.var(values["a"], ddof=1))
    assert 0 <= system.own <= system.spread
    assert difference.from_examples > 0


def test_equal_examples_are_not_certain():
    """Five examples on which every run of b is right and every run of a wrong: a sign test says 1 in 16."""
    wrong, right = {"accuracy": mean([0] * 5)}, {"accuracy": mean([1] * 5)}
    few = number_clusters(None, 5)
    _, (difference,) = compare_over_seeds({"a": [wrong, wrong], "b": [right, right]}, few, rounds=100)
    assert 0.03 < difference.p < 0.1
    assert difference.low < 0
    _, (same,) = compare_over_seeds({"a": [right, right], "b": [right, right]}, few, rounds=100)
    assert same.low < -30
    assert same.high > 30
    assert same.needed == NeededSeeds(None, None, None), "no number of seeds tells equal answers apart"


def test_one_seed_shows_no_spread():
    runs = make_systems(0, 2, 0.1)
    with pytest.raises(DanseoError, match="b has one run"):
        compare_over_seeds({**runs, "b": runs["b"][:1]}, CLUSTERS)


def make_system(values: list[float], examples: float = 0.0) -> System:
    rng = np.random.default_rng(len(values))
    common = rng.normal(0, examples, 2000) if examples else np.zeros(2000)
    return System(np.array(values), np.array(values)[:, None] + common)


def test_seeds_needed_by_hand():
    """Only seeds make noise, with variance 1: n seeds give an error of sqrt(2 / n), a difference of 1 needs 17."""
    needed = find_needed_seeds(make_system([79.0, 80.0, 81.0]), make_system([80.0, 81.0, 82.0]))
    assert needed.seeds == 17  # (t(.975) + t(.8)) * sqrt(2 / 17) = 0.99 with 32 degrees of freedom; 1.02 for 16
    assert needed.low is not None
    assert needed.high is not None
    assert needed.low < 17 < needed.high
    assert needed.as_text() == f"about 17 ({needed.low} – {needed.high})"


def test_more_seeds_do_not_replace_examples():
    a, b = make_system([80.0, 80.1, 79.9]), make_system([80.5, 80.6, 80.4], examples=2.0)
    needed = find_needed_seeds(a, b)
    assert needed == NeededSeeds(None, None, None)
    assert "more examples" in needed.as_text()
