"""The select and report splits of dev, and the folds of train: groups stay together."""

from collections import Counter

import pytest

from danseo.data.dev_split import assign_folds, get_group, split_fold, split_indices
from danseo.errors import DanseoError
from danseo.tasks import TASKS
from tests.tiny import read_split


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.cluster])
def test_clusters_are_in_one_split(sample, name):
    task, examples = TASKS[name], read_split(sample, name, "dev")
    select, report = (
        {task.cluster(examples[k]) for k in split_indices(task, examples, split)} for split in ("select", "report")
    )
    assert select
    assert report
    assert select.isdisjoint(report)


@pytest.mark.parametrize("name", ["re", "ynat", "ner", "mrc", "wos", "sts"])
def test_folds_keep_groups_together_and_sizes_even(sample, name):
    task, examples = TASKS[name], read_split(sample, name, "train")
    numbers = assign_folds(task, examples, 5)
    assert numbers == assign_folds(task, examples, 5)
    groups = [get_group(task, example) for example in examples]
    assert len({*zip(groups, numbers, strict=True)}) == len({*groups})
    sizes = Counter(numbers)
    assert max(sizes.values()) - min(sizes.values()) <= max(*Counter(groups).values(), 0.1 * len(examples))


def test_folds_have_their_share_of_every_label(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "train")
    numbers = assign_folds(task, examples, 5)
    for label, count in Counter(e.gold for e in examples).items():
        sizes = Counter(n for e, n in zip(examples, numbers, strict=True) if e.gold == label)
        assert max(sizes[k] for k in range(5)) - min(sizes[k] for k in range(5)) <= max(3, 0.2 * count), label


def test_every_example_is_held_out_once(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "train", 60)
    parts = [split_fold(task, examples, 3, fold) for fold in range(3)]
    assert sorted(e.guid for _, held_out in parts for e in held_out) == sorted(e.guid for e in examples)
    for train, held_out in parts:
        assert not {e.text for e in train} & {e.text for e in held_out}


@pytest.mark.parametrize(("n_folds", "fold"), [(1, 0), (1000, 0), (3, 3)])
def test_impossible_folds(sample, n_folds, fold):
    with pytest.raises(DanseoError, match=r"^(n_folds|fold) = "):
        split_fold(TASKS["re"], read_split(sample, "re", "train", 60), n_folds, fold)
