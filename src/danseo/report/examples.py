"""The mistakes of a run that are most worth reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from danseo.records import Prediction
from danseo.report.blocks import ExamplesBlock
from danseo.report.collect import Answers
from danseo.report.forms import Answered, show
from danseo.scoring.mistakes import ranked_mistakes
from danseo.tasks.task import Task

_WHO = "answer"
_LONGEST = 40  # words of a sentence whose tree is drawn
_IN_SIGHT = 14  # words of one that a screen shows whole
_MARKS = {
    "tag": "green is found, yellow missed, red wrong",
    "track": "✓ right, − missed, ✗ wrong, whatever is new since the turn before",
    "labels": "✓ right, − missed, ✗ wrong",
}
"""Kind of task -> what its marks mean."""


def mistakes_block(task: Task, answers: Answers, most: int) -> ExamplesBlock:
    """The worst mistakes in the form of the task."""
    examples, predictions = answers.examples, answers.member.predictions
    ranked = ranked_mistakes(task, examples, predictions)
    varied = _varied(task, examples, ranked.positions)
    showable = [position for position in varied if _words(task, examples[position]) <= _LONGEST]
    chosen = sorted(showable, key=lambda position: _words(task, examples[position]) > _IN_SIGHT)[:most]
    shown = []
    for position in chosen:
        earlier = earlier_turns(task, examples, position, lambda k: {_WHO: predictions[k]})
        shown.append(show(Answered(task, examples[position], {_WHO: predictions[position]}, earlier)))
    note = f"{len(shown)} of {len(ranked.positions):,} wrong examples among {len(examples):,}, {ranked.order}"
    note += f", short sentences (up to {_IN_SIGHT} words) before long ones" if task.kind == "parse" else ""
    return ExamplesBlock("Mistakes", explained(task, note), shown)


def explained(task: Task, note: str) -> str:
    """The note, and what the marks in the examples mean."""
    return f"{note}\n{_MARKS[task.kind]}" if task.kind in _MARKS else note


def _varied(task: Task, examples: Sequence[Any], positions: Sequence[int]) -> list[int]:
    """One example of each dialogue or passage: its neighbours are wrong in the same way."""
    if task.cluster is None:
        return list(positions)
    firsts: dict[str, int] = {}
    for position in positions:
        firsts.setdefault(task.cluster(examples[position]), position)
    return list(firsts.values())


def in_sight(task: Task, examples: Sequence[Any], positions: list[int]) -> list[int]:
    """The positions of examples that a screen shows whole; all where there are none."""
    return [position for position in positions if _words(task, examples[position]) <= _IN_SIGHT] or positions


def _words(task: Task, example: Any) -> int:
    """How wide the tree of a sentence is; other examples have none."""
    return len(example.words) if task.kind == "parse" else 0


def earlier_turns(
    task: Task, examples: Sequence[Any], position: int, answers: Callable[[int], Mapping[str, Prediction]]
) -> list[tuple[Any, Mapping[str, Prediction]]]:
    """The turns of the same dialogue before an example, with what was answered to them."""
    if task.kind != "track":
        return []
    dialogue, start = examples[position].dialogue, position
    while start > 0 and examples[start - 1].dialogue == dialogue:
        start -= 1
    return [(examples[k], answers(k)) for k in range(start, position)]
