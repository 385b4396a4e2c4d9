"""Examples on which two runs disagree: one is right and the other is not."""

from typing import Any

from danseo.report.blocks import ExamplesBlock
from danseo.report.collect import Collection
from danseo.report.examples import earlier_turns, explained, in_sight
from danseo.report.forms import Answered, is_right, show
from danseo.runs.index import Record
from danseo.tasks.task import Task


def disagreements(collection: Collection, task: Task, one: Record, other: Record, most: int) -> ExamplesBlock | str:
    """Up to so many examples, from both sides in turn; a sentence where there are none to be had."""
    names = collection.name(one), collection.name(other)
    found = [collection.answers(record) for record in (one, other)]
    first, second = found
    if first is None or second is None:
        return "The dev file that was answered is not there, or the predictions cannot be read: no examples."
    guids = {p.guid: p for p in second.member.predictions}
    sides: tuple[list[int], list[int]] = ([], [])
    for position, (example, prediction) in enumerate(zip(first.examples, first.member.predictions, strict=True)):
        if prediction.guid in guids:
            right = [_share(task, example, answer) for answer in (prediction.answer, guids[prediction.guid].answer)]
            if right[0] != right[1]:
                sides[0 if right[0] > right[1] else 1].append(position)
    total = [len(side) for side in sides]
    mixed = sorted(
        (rank, k, position)
        for k, side in enumerate(sides)
        for rank, position in enumerate(_spread(in_sight(task, first.examples, side), most))
    )
    chosen = [position for _, _, position in mixed[:most]]
    if not chosen:
        return f"{names[0]} and {names[1]} are right and wrong on the same examples."
    pairs = [{names[0]: p, names[1]: guids[p.guid]} for p in first.member.predictions if p.guid in guids]
    at = {p.guid: k for k, p in enumerate(p for p in first.member.predictions if p.guid in guids)}
    shown = []
    for position in chosen:
        example = first.examples[position]
        earlier = earlier_turns(task, first.examples, position, lambda k: pairs[at[first.examples[k].guid]])
        shown.append(show(Answered(task, example, pairs[at[example.guid]], earlier)))
    more = " in more words" if task.kind == "parse" else ""
    note = (
        f"{names[0]} is right{more} on {total[0]:,} examples where {names[1]} is not, the other way round on "
        f"{total[1]:,}; {len(shown)} of them"
        + (", a number counts as right when it is less than half a point off" if task.kind == "score" else "")
    )
    return ExamplesBlock("Disagreements", explained(task, note), shown)


def _share(task: Task, example: Any, answer: Any) -> float:
    """How right an answer is: all or nothing, but for trees by the word, as few are right in whole."""
    if task.kind != "parse":
        return float(is_right(task, example, answer))
    return sum(tuple(g) == tuple(a) for g, a in zip(example.gold, answer, strict=True)) / len(example.gold)


def _spread(positions: list[int], most: int) -> list[int]:
    """So many of the positions, over all of the file rather than from its beginning."""
    step = max(1, len(positions) // max(1, most))
    return positions[::step][:most]
