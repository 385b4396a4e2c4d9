"""The examples of a run."""

from types import SimpleNamespace

import pytest

from danseo.config.run import RunConfig
from danseo.runs.training_data import RunData, describe_missing_labels
from danseo.tasks import TASKS


@pytest.mark.parametrize(
    ("limit", "train", "missing"), [(2, "세계 정치", "경제, 사회"), (3, "경제 정치 사회", None), (0, "세계 정치", None)]
)
def test_a_limit_that_leaves_labels_without_examples_gets_a_note(limit, train, missing):
    data = RunData(*([SimpleNamespace(gold=label) for label in labels.split()] for labels in (train, "경제 정치 사회")))
    config = RunConfig(task="ynat", model="majority", max_train_samples=limit)
    note = describe_missing_labels(config, TASKS["ynat"], data)
    assert (note is not None and "2 of 3" in note and missing in note) if missing else note is None
