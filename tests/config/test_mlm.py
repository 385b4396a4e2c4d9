"""Settings of masked trainings."""

import pytest

from danseo.api.listings import make_settings_table
from danseo.config.mlm import CorefConfig, PretrainConfig
from danseo.config.train import OptimizationSettings, TrainSettings


@pytest.mark.parametrize("config", [PretrainConfig(), CorefConfig(checkpoint="")])
def test_settings_for_labelled_examples_are_not_listed(config: PretrainConfig | CorefConfig) -> None:
    listed = {str(row[0]) for row in make_settings_table(config).rows}
    labelled = TrainSettings.model_fields.keys() - OptimizationSettings.model_fields.keys()
    assert "select_on" in labelled
    assert not listed & {f"train.{name}" for name in labelled}
    assert {"train.epochs", "train.optimizer", "train.num_threads"} <= listed
