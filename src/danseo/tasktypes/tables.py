"""Tables that the breakdowns of several task types share."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from danseo.display.table import Table
from danseo.language import _
from danseo.records import Prediction

MAX_CONFUSIONS = 20
MAX_MATRIX = 10  # labels that a matrix has room for
NOTHING = "(none)"
GOLD_WRONG, ANSWER_WRONG = "gold where wrong", "answer where wrong"


def percent(part: float, total: float) -> float | None:
    """Return a share in percent; None if there is nothing."""
    return 100 * part / total if total else None


def found_table(title: str, name: str, counts: Iterable[tuple[str, int, int, int]]) -> Table:
    """Return precision, recall and F1 from (name, right, answered, gold)."""
    columns = (name, "gold", "answered", "right", "precision", "recall", "F1")
    rows: list[tuple[object, ...]] = [
        (
            key,
            gold,
            answered,
            right,
            percent(right, answered),
            percent(right, gold),
            percent(2 * right, answered + gold),
        )
        for key, right, answered, gold in counts
        if answered + gold
    ]
    return Table(title, columns, rows)


def zip_counts(
    names: Sequence[str], right: Counter[str], answered: Counter[str], gold: Counter[str]
) -> Iterable[tuple[str, int, int, int]]:
    """Yield (name, right, answered, gold) for `found_table`."""
    return ((name, right[name], answered[name], gold[name]) for name in names)


def count_sets(pairs: Sequence[tuple[set[str], set[str]]], key: Callable[[str], str] = str) -> list[Counter[str]]:
    """Return the right, answered and gold values of (gold, answer) pairs, counted per key."""
    return [
        Counter(key(value) for gold, answer in pairs for value in side(gold, answer))
        for side in (set.intersection, lambda gold, answer: answer, lambda gold, answer: gold)
    ]


def confusion_table(
    labels: Sequence[str], golds: Sequence[str], answers: Sequence[str], title: str = "confusion"
) -> Table:
    """Return a matrix for few labels, the most frequent confusions for many."""
    pairs = Counter(zip(golds, answers, strict=True))
    if len(labels) <= MAX_MATRIX:
        rows: list[tuple[object, ...]] = [(gold, *(pairs[gold, answer] for answer in labels)) for gold in labels]
        return Table(title, ("gold \\ answer", *labels), rows)
    wrong = [(gold, answer, count) for (gold, answer), count in pairs.most_common() if gold != answer]
    return Table(title, ("gold", "answer", "count"), list(wrong[:MAX_CONFUSIONS]), note_most_frequent(len(wrong)))


def note_most_frequent(count: int) -> str:
    """Return the note of a table that shows only some of its rows."""
    note = _("the {n} most frequent of {all}").format(n=MAX_CONFUSIONS, all=count)
    return note if count > MAX_CONFUSIONS else ""


def source_tables(task: Any, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[Table]:
    """Return the headline of each source, if examples come from several."""
    positions: dict[str, list[int]] = {}
    for position, example in enumerate(examples):
        positions.setdefault(getattr(example, "source", None) or "not known", []).append(position)
    if len(positions) < 2:
        return []
    rows: list[tuple[object, ...]] = []
    for source, chosen in sorted(positions.items()):
        found = task.measure([examples[k] for k in chosen], [predictions[k] for k in chosen])[task.headline]
        rows.append((source, len(chosen), found.value()))
    return [Table("per source", ("source", "n", task.headline), rows)]


def join_parts(parts: Iterable[str]) -> str:
    """Return the parts of a wrong example as one text."""
    return ", ".join(parts) or NOTHING


def show_confidence(answer: str, confidence: float | None) -> str:
    """Return an answer with its confidence, if that is known."""
    return f"{answer} ({confidence:.3f})" if confidence is not None else answer
