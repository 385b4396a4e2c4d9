from collections import Counter
from pathlib import Path

import pytest

from danseo.data.folds import fold_numbers, group_of, parted
from danseo.errors import DanseoError
from danseo.tasks import TASKS
from tests.tiny import read_split


@pytest.mark.parametrize("name", ["re", "ynat", "ner", "mrc", "wos", "sts"])
def test_folds_keep_groups_whole_and_sizes_even(sample: Path, name):
    task, examples = TASKS[name], read_split(sample, name, "train")
    numbers = fold_numbers(task, examples, 5)
    assert numbers == fold_numbers(task, examples, 5)
    homes: dict[str, set[int]] = {}
    for example, number in zip(examples, numbers, strict=True):
        homes.setdefault(group_of(task, example), set()).add(number)
    assert all(len(folds) == 1 for folds in homes.values())
    sizes = Counter(numbers)
    largest = max(Counter(group_of(task, example) for example in examples).values())
    assert max(sizes.values()) - min(sizes.values()) <= max(largest, 0.1 * len(examples))


def test_folds_have_their_share_of_every_label(sample: Path):
    task, examples = TASKS["re"], read_split(sample, "re", "train")
    numbers = fold_numbers(task, examples, 5)
    for label, count in Counter(e.gold for e in examples).items():
        held = Counter(n for e, n in zip(examples, numbers, strict=True) if e.gold == label)
        assert max(held[k] for k in range(5)) - min(held[k] for k in range(5)) <= max(3, 0.2 * count), label


def test_every_example_is_left_out_once(sample: Path):
    task, examples = TASKS["re"], read_split(sample, "re", "train", 60)
    parts = [parted(task, examples, 3, fold) for fold in range(3)]
    assert sorted(e.guid for _, held in parts for e in held) == sorted(e.guid for e in examples)
    for own, held in parts:
        assert not {e.text for e in own} & {e.text for e in held}


@pytest.mark.parametrize(("folds", "fold"), [(1, 0), (1000, 0), (3, 3)])
def test_impossible_folds_are_one_line(sample: Path, folds, fold):
    with pytest.raises(DanseoError, match=r"^folds? = "):
        parted(TASKS["re"], read_split(sample, "re", "train", 60), folds, fold)
