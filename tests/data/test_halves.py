"""The halves of dev: what belongs together stays together, and older runs keep their rule."""

from dataclasses import replace

import pytest

from danseo.data.halves import in_half
from danseo.recipes import configured
from danseo.tasks import TASKS
from tests.tiny import read_split


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.cluster])
def test_what_shares_a_cluster_is_in_one_half(sample, name):
    task, examples = TASKS[name], read_split(sample, name, "dev")
    parted = [{task.cluster(examples[k]) for k in in_half(task, examples, half)} for half in ("select", "report")]
    assert parted[0]
    assert parted[1]
    assert parted[0].isdisjoint(parted[1])


@pytest.mark.parametrize("name", TASKS)
def test_the_older_rule_differs_only_where_clusters_were_torn_apart(sample, name):
    examples, task = read_split(sample, name, "dev"), TASKS[name]
    older, newer = (in_half(replace(task, halves=rule), examples, "select") for rule in (1, 2))
    assert (
        (older != newer) == (configured(name, "majority", "default", {}).train.halves == 2) == (name in ("nli", "mrc"))
    )
