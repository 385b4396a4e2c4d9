from pathlib import Path

import numpy as np
import pytest

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.inference.evaluation import estimate_prior, evaluate_run, reweight


@pytest.fixture(scope="module")
def run(sample: Path, tmp_path_factory) -> Path:
    pytest.importorskip("sklearn")
    runs = tmp_path_factory.mktemp("runs")
    return run_experiment(RunConfig(task="re", model="linear"), sample, runs, quiet=True).path


@pytest.mark.parametrize("prior", ["em", "select", "train"])
def test_another_prior_is_a_score_of_its_own_name(run, sample, prior):
    result = evaluate_run(run, "dev", None, str(sample), prior=prior)
    scores = {score.id: score for score in result.scores}
    plain, other = scores["re/micro_f1@official-1"], scores[f"re/micro_f1@official-1+prior-{prior}"]
    assert other.low <= other.value <= other.high
    assert f"re/auprc@official-1+prior-{prior}" in scores
    assert (other.value == plain.value) == (prior == "train")  # under which it was trained
    assert result.is_partial == (prior == "select")


def test_a_mask_after_the_fact(run, sample):
    result = evaluate_run(run, "dev", None, str(sample), type_mask=True, prior="em")
    assert any(score.id == "re/micro_f1@official-1+type-mask+prior-em" for score in result.scores)
    assert "gold_outside_mask: 0 of" in result.remark


def test_adjusting_needs_probabilities_and_types(sample, tmp_path):
    other = run_experiment(RunConfig(task="ynat", model="majority"), sample, tmp_path, quiet=True).path
    with pytest.raises(DanseoError, match="no pairs of entity types"):
        evaluate_run(other, "dev", None, str(sample), type_mask=True)
    number = run_experiment(RunConfig(task="sts", model="majority"), sample, tmp_path, quiet=True).path
    with pytest.raises(DanseoError, match="probability per label"):
        evaluate_run(number, "dev", None, str(sample), prior="em")


# Priors


def drawn(rng, prior, n=4000):
    """Examples of two labels whose one feature tells them apart, more or less, and what a model says of them."""
    labels = rng.choice(2, size=n, p=prior)
    return labels, rng.normal(size=n) + 1.5 * labels


def posterior(feature, prior):
    odds = np.exp(1.5 * feature - 1.125) * prior[1] / prior[0]
    return np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)


def test_em_finds_the_prior_of_the_examples():
    rng = np.random.default_rng(0)
    source, true = np.array([0.8, 0.2]), np.array([0.3, 0.7])
    labels, feature = drawn(rng, true)
    table = posterior(feature, source)
    found = estimate_prior(table, source)
    assert found == pytest.approx(true, abs=0.03)
    before, after = (np.mean(t.argmax(axis=1) == labels) for t in (table, reweight(table, source, found)))
    assert after > before + 0.05
