from pathlib import Path

import pytest

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.evaluate import evaluate_run
from danseo.experiment import run_experiment


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
    with pytest.raises(DanseoError, match="needs the types"):
        evaluate_run(other, "dev", None, str(sample), type_mask=True)
    number = run_experiment(RunConfig(task="sts", model="majority"), sample, tmp_path, quiet=True).path
    with pytest.raises(DanseoError, match="need a probability per label"):
        evaluate_run(number, "dev", None, str(sample), prior="em")
