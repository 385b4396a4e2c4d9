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


def mistakes_block(task: Task, answers: Answers, most: int) -> ExamplesBlock:
    """The worst mistakes in the form of the task."""
    examples, predictions = answers.examples, answers.member.predictions
    ranked = ranked_mistakes(task, examples, predictions)
    chosen = [
        position for position in _varied(task, examples, ranked.positions) if _is_showable(task, examples[position])
    ][:most]
    shown = []
    for position in chosen:
        earlier = earlier_turns(task, examples, position, lambda k: {_WHO: predictions[k]})
        shown.append(show(Answered(task, examples[position], {_WHO: predictions[position]}, earlier)))
    note = f"{len(shown)} of {len(ranked.positions):,} wrong examples among {len(examples):,}, {ranked.order}"
    return ExamplesBlock("Mistakes", note, shown)


def _varied(task: Task, examples: Sequence[Any], positions: Sequence[int]) -> list[int]:
    """One example of each dialogue or passage: its neighbours are wrong in the same way."""
    if task.cluster is None:
        return list(positions)
    firsts: dict[str, int] = {}
    for position in positions:
        firsts.setdefault(task.cluster(examples[position]), position)
    return list(firsts.values())


def _is_showable(task: Task, example: Any) -> bool:
    return task.kind != "parse" or len(example.words) <= _LONGEST


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
