"""Questions about passages: their types, and where the answers are (mrc)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from danseo.display.table import Table
from danseo.eda.counting import checks_table, distribution_table, percent, tally
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Length, Splits, View, characters
from danseo.records import QuestionExample
from danseo.tasks.mrc import QUESTION_TYPES
from danseo.tasks.task import Task

_UNANSWERABLE = 3
_QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")


def position_of_answer(example: QuestionExample, parts: int) -> int | None:
    """In which of so many equal parts of the passage the first answer begins, from 0."""
    return min(example.starts[0] * parts // len(example.text), parts - 1) if example.starts else None


CHECKS: dict[str, Callable[[QuestionExample], bool]] = {
    "without an answer": lambda e: not e.gold,
    "type and answers disagree": lambda e: (
        e.question_type is not None and (e.question_type == _UNANSWERABLE) != (not e.gold)
    ),
}
ANSWER_CHECKS: dict[str, Callable[[QuestionExample], bool]] = {
    "several accepted places": lambda e: len(e.gold) > 1,
    "several accepted texts": lambda e: len(set(e.gold)) > 1,
    "answer occurs elsewhere in the passage too": lambda e: e.text.count(e.gold[0]) > 1,
    "answer stands in the question": lambda e: e.gold[0] in e.question,
    "answer begins after character 512": lambda e: e.starts[0] >= 512,
}


def check_table(splits: Splits) -> Table:
    """What makes questions easy or ambiguous."""
    answered = {split: [example for example in examples if example.gold] for split, examples in splits.items()}
    checks = [
        (name, unit, {split: tally(examples, test) for split, examples in chosen.items()})
        for unit, chosen, tests in (("questions", splits, CHECKS), ("answered questions", answered, ANSWER_CHECKS))
        for name, test in tests.items()
    ]
    passages = ", ".join(f"{split} {len({example.text for example in e}):,}" for split, e in splits.items())
    return checks_table("Questions and answers", checks, f"Different passages: {passages}.")


def answers_table(splits: Splits) -> Table:
    counts = {s: Counter(str(len(e.gold)) for e in examples) for s, examples in splits.items()}
    order = sorted({name for counter in counts.values() for name in counter}, key=int)
    return distribution_table("Accepted answers per question", "answers", counts, order=order)


def position_table(splits: Splits) -> Table:
    counts = {}
    for split, examples in splits.items():
        positions = (position_of_answer(example, len(_QUARTERS)) for example in examples)
        counts[split] = Counter(_QUARTERS[position] for position in positions if position is not None)
    return distribution_table("Where in the passage the first answer begins", "place", counts, order=_QUARTERS)


def position_panel(splits: Splits) -> Lines:
    """The beginning of answers along the passage, in steps of a tenth."""
    lines = []
    for split, examples in splits.items():
        counter = Counter(position for e in examples if (position := position_of_answer(e, 10)) is not None)
        points = [(10 * k + 5, percent(counter[k], counter.total()) or 0.0) for k in range(10)]
        lines.append(Line("answers", split, points))
    return Lines("Where answers begin", lines, "% of the passage before the answer", "% of the answers, per tenth")


def _answer_lengths(examples: Sequence[QuestionExample]) -> list[int]:
    return [len(example.gold[0]) for example in examples if example.gold]


MRC = View(
    label="question type",
    unit="row",
    labels=lambda example: (QUESTION_TYPES[example.question_type],),
    texts=lambda example: (example.text, example.question),
    lengths={
        "passage": characters(lambda example: example.text),
        "question": characters(lambda example: example.question),
        "first answer": Length("characters", _answer_lengths, is_text=True),
    },
    key=lambda example, loose: (loose(example.text), loose(example.question)),
    shared=lambda example: example.text,
    sharing="passage",
    gold=lambda example: frozenset(example.gold),
    label_order=tuple(QUESTION_TYPES.values()),
    tables=lambda splits: [answers_table(splits), position_table(splits), check_table(splits)],
    panel=position_panel,
)


def question_view(task: Task) -> View:
    """KLUE's questions are of types; of others only this is known: whether there is an answer."""
    if not task.own:
        return MRC
    words = ("with an answer", "without an answer")
    return replace(MRC, label="kind of question", labels=lambda example: (words[not example.gold],), label_order=words)
