"""Every task type fulfils its contract: answers, errors, pages, output rows, ensembles and custom data."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from danseo.data.find import load
from danseo.records import Prediction
from danseo.scoring.breakdown import rank_errors
from danseo.scoring.score import NAMES, baseline
from danseo.tasks import TASKS, get_task
from danseo.tasktypes import CUSTOM_TYPES, TASK_TYPES
from danseo.tasktypes.base import Task

KLUE = {task.type.name: task for task in reversed(TASKS.values())}
CUSTOM = {
    "multilabel": ('label = "labels"', lambda k: {"text": f"글 {k}", "labels": ["a", "b", "c"][: k % 4]}),
    "multiple_choice": (
        'label = "right"\nchoices = ["a", "b"]',
        lambda k: {"text": f"글 {k}", "a": "하나", "b": "둘", "right": k % 2},
    ),
}


def make_custom(name: str, folder: Path) -> Task:
    columns, make = CUSTOM[name]
    rows = "".join(json.dumps(make(k), ensure_ascii=False) + "\n" for k in range(24))
    (folder / f"{name}.jsonl").write_text(rows, "utf-8")
    settings = f'type = "{name}"\ntrain = "{name}.jsonl"\ndev = 0.5\ntext = "text"\n{columns}\n'
    (folder / f"{name}.toml").write_text(settings, "utf-8")
    return get_task(str(folder / f"{name}.toml"))


@pytest.fixture(params=TASK_TYPES)
def case(request, sample, tmp_path) -> tuple[Task, list[Any]]:
    """A task of each type, with 12 examples."""
    name = request.param
    task = KLUE[name] if name in KLUE else make_custom(name, tmp_path)
    return task, load(task, "dev", sample)[:12]


def test_the_registry_names_every_type():
    assert [each.name for each in TASK_TYPES.values()] == list(TASK_TYPES)
    assert set(TASK_TYPES) == {*KLUE, *CUSTOM}
    assert set(CUSTOM_TYPES) == set(TASK_TYPES) - {"dialogue_state"}


@pytest.mark.parametrize("name", NAMES)
def test_baselines_give_valid_answers(case, name):
    task, examples = case
    for example, prediction in zip(examples, baseline(name, task, examples), strict=True):
        answer = json.loads(json.dumps(prediction.answer))  # as a prediction file has it
        assert task.check_answer(example, answer) == prediction.answer
    with pytest.raises(ValueError, match=r"answer|label|tag|word"):
        task.check_answer(examples[0], {"no": "answer"})


def test_only_wrong_examples_are_errors(case):
    task, examples = case
    assert not rank_errors(task, examples, baseline("oracle", task, examples)).positions
    wrong = baseline("random", task, examples, seed=1)
    ranked = rank_errors(task, examples, wrong)
    assert ranked.positions
    assert all(parts and all(isinstance(text, str) for text in parts.values()) for parts in ranked.parts)
    for position in set(range(len(examples))) - set(ranked.positions):
        assert task.type.is_correct(examples[position], wrong[position].answer)
        assert task.type.credit(examples[position], wrong[position].answer) == 1


def test_examples_are_rendered_broken_down_and_written(case):
    task, examples = case
    predictions = baseline("random", task, examples)
    assert task.type.breakdown(task, examples, predictions)
    for example, prediction in zip(examples, predictions, strict=True):
        rendered = task.type.render(task, example, {"one": prediction, "two": prediction})
        assert rendered.guid == example.guid
        assert rendered.lines
        row = task.type.to_row(task, example, prediction)
        assert row["answer"] == prediction.answer
        if task.type.has_conll:
            text = " ".join(getattr(example, "words", ())) or example.text
            assert example.guid in task.type.to_conll({"guid": example.guid, "text": text, **row})
    assert task.type.measure_length(task.type.make_example(task, "1", "서울에 비가 왔다")) > 0


def test_votes_follow_the_weights(case):
    task, examples = case
    sides = [baseline("oracle", task, examples), baseline("random", task, examples)]
    members = [
        SimpleNamespace(path=Path(), record=None, predictions=side, rows=None, select_score=1.0, token_starts=None)
        for side in sides
    ]
    group = SimpleNamespace(task=task, examples=examples, members=members, select_positions=[])
    combiner = task.type.make_combiner(group, "vote")
    combined, _ = combiner(np.array([2.0, 1.0]))
    for prediction, expected, example in zip(combined, sides[0], examples, strict=True):
        assert task.type.credit(example, prediction.answer) == task.type.credit(example, expected.answer)


def test_shuffled_answers_repeat_with_their_seed(case):
    task, examples = case
    first, second = (task.type.shuffle_answers(examples, random.Random(3)) for _ in range(2))
    assert first == second
    assert Prediction("g", first[0]) == replace(Prediction("g", None), answer=second[0])
