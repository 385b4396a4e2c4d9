"""Statistics of questions about passages: their types, and where the answers are."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from danseo.data.stats.view import (
    Length,
    View,
    checks_table,
    count_characters,
    count_checks,
    distribution_table,
)
from danseo.display.plots.figures import Chart, split_curves
from danseo.display.table import Table
from danseo.records import QuestionExample
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.question_answering import QUESTION_TYPES
from danseo.tasktypes.rendering import percent

_UNANSWERABLE = 3
_QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")


def make_view(task: Task) -> View:
    view = View(
        label="question type",
        unit="row",
        labels=lambda example: (QUESTION_TYPES[example.question_type],),
        texts=lambda example: (example.text, example.question),
        lengths={
            "passage": count_characters(lambda example: example.text),
            "question": count_characters(lambda example: example.question),
            "first answer": Length("characters", lambda es: [len(e.gold[0]) for e in es if e.gold], is_text=True),
        },
        key=lambda example, normalize: (normalize(example.text), normalize(example.question)),
        shared=lambda example: example.text,
        shared_name="passage",
        gold=lambda example: frozenset(example.gold),
        label_order=tuple(QUESTION_TYPES.values()),
        tables=lambda splits: [_answers_table(splits), _position_table(splits), _check_table(splits)],
        panels=lambda splits: [_position_panel(splits)],
    )
    if not task.custom:
        return view
    words = ("with an answer", "without an answer")  # custom questions have no types
    return replace(view, label="kind of question", labels=lambda example: (words[not example.gold],), label_order=words)


_CHECKS: dict[str, Callable[[QuestionExample], bool]] = {
    "without an answer": lambda e: not e.gold,
    "type and answers disagree": lambda e: (
        e.question_type is not None and (e.question_type == _UNANSWERABLE) != (not e.gold)
    ),
}
_ANSWER_CHECKS: dict[str, Callable[[QuestionExample], bool]] = {
    "several accepted places": lambda e: len(e.gold) > 1,
    "several accepted texts": lambda e: len(set(e.gold)) > 1,
    "answer occurs elsewhere in the passage too": lambda e: e.text.count(e.gold[0]) > 1,
    "answer is in the question": lambda e: e.gold[0] in e.question,
    "answer begins after character 512": lambda e: e.starts[0] >= 512,
}


def _check_table(splits: Splits) -> Table:
    """Return what makes questions easy or ambiguous."""
    answered = {split: [example for example in examples if example.gold] for split, examples in splits.items()}
    checks = count_checks(_CHECKS, "questions", splits) + count_checks(_ANSWER_CHECKS, "answered questions", answered)
    passages = ", ".join(f"{split} {len({example.text for example in e}):,}" for split, e in splits.items())
    return checks_table("Questions and answers", checks, f"Different passages: {passages}.")


def _answers_table(splits: Splits) -> Table:
    counts = {s: Counter(str(len(e.gold)) for e in examples) for s, examples in splits.items()}
    order = sorted({name for counter in counts.values() for name in counter}, key=int)
    return distribution_table("Accepted answers per question", "answers", counts, order=order)


def _count_positions(splits: Splits, parts: int) -> dict[str, Counter[int]]:
    """Count in which of so many equal parts of the passage the first answers begin."""
    return {
        split: Counter(min(e.starts[0] * parts // len(e.text), parts - 1) for e in examples if e.starts)
        for split, examples in splits.items()
    }


def _position_table(splits: Splits) -> Table:
    positions = _count_positions(splits, len(_QUARTERS))
    counts = {s: Counter({_QUARTERS[k]: count for k, count in counter.items()}) for s, counter in positions.items()}
    return distribution_table("Where in the passage the first answer begins", "place", counts, order=_QUARTERS)


def _position_panel(splits: Splits) -> Chart:
    points = {
        ("answers", split): [(10 * k + 5, percent(counter[k], counter.total()) or 0.0) for k in range(10)]
        for split, counter in _count_positions(splits, 10).items()
    }
    labels = "% of the passage before the answer", "% of the answers, per tenth"
    return Chart(split_curves(points), *labels, title="Where answers begin", from_zero=True)
