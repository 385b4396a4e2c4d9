"""A trial that is given up leaves a run that says so."""

import pytest

from danseo import experiment
from danseo.config import RunConfig
from danseo.runs.directory import Run, run_path
from danseo.tuning.targets import TrainTarget

optuna = pytest.importorskip("optuna")


def test_a_pruned_trial_is_a_pruned_run(monkeypatch, sample, tmp_path):
    config = RunConfig(task="ynat", model="nobody/knows")
    target = TrainTarget(config, sample, tmp_path)

    def training(config, root, runs, *, on_score, **options):
        Run(run_path(runs, config, experiment.identity_of(config, target.identity()))).start(config)
        on_score(3, 0.5)

    def heard(step, value):
        raise optuna.TrialPruned(f"pruned at step {step} with {value}")

    monkeypatch.setattr(experiment, "run_experiment", training)
    with pytest.raises(optuna.TrialPruned):
        target.run({"seed": 7}, heard)
    (folder,) = tmp_path.iterdir()
    assert (Run(folder).status, Run(folder).reason) == ("pruned", "pruned at step 3 with 0.5")
    assert Run(folder).config.seed == 7
