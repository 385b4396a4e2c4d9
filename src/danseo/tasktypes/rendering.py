"""What the pages of several task types share: examples as marked spans or trees, and tables of breakdowns."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.plots.figures import Arcs
from danseo.display.table import Table
from danseo.language import _
from danseo.records import Prediction

EarlierTurns = Sequence[tuple[Any, Mapping[str, Prediction]]]
"""Earlier examples of the same dialogue, each with the answers of the systems."""


@dataclass(frozen=True)
class TextSpan:
    """A part of a text with a mark: the type of an entity, a role; and whether it is right, wrong or missed."""

    text: str
    mark: str = ""
    state: str = ""


@dataclass(frozen=True)
class RenderedLine:
    """A named line of text."""

    name: str
    spans: tuple[TextSpan, ...]
    role: str = ""
    """gold, answer, state, user, system, or nothing."""


@dataclass(frozen=True)
class RenderedExample:
    """One example, ready for a page."""

    guid: str
    lines: tuple[RenderedLine, ...]
    tags: tuple[str, ...] = ()
    """What it can be filtered by."""
    tree: Arcs | None = None

    def as_dict(self) -> dict[str, Any]:
        lines = [
            {"name": line.name, "spans": [{"text": s.text, "mark": s.mark, "state": s.state} for s in line.spans]}
            for line in self.lines
        ]
        return {"guid": self.guid, "tags": list(self.tags), "lines": lines}


def plain_line(name: str, text: str, role: str = "", state: str = "") -> RenderedLine:
    """Return a line of one unmarked span."""
    return RenderedLine(name, (TextSpan(text, state=state),), role)


def show_percent(probability: float | None) -> str:
    """Return a probability as it follows an answer; "" if it is not known."""
    return f" ({100 * probability:.0f} %)" if probability is not None else ""


def mark_text(text: str, marks: Sequence[tuple[int, int, str]], states: Sequence[str] = ()) -> list[TextSpan]:
    """Return the text as spans, some of them marked; of overlapping marks the later one gets what the first leaves."""
    spans: list[TextSpan] = []
    end = 0
    numbered = sorted((start, stop, mark, k) for k, (start, stop, mark) in enumerate(marks))
    for start, stop, mark, k in numbered:
        start = max(start, end)
        if start >= stop:
            continue
        spans += [TextSpan(text[end:start])] if start > end else []
        spans.append(TextSpan(text[start:stop], mark, states[k] if states else ""))
        end = stop
    return [*spans, *([TextSpan(text[end:])] if end < len(text) else [])]


def compare_sets(gold: Sequence[str], answer: Sequence[str]) -> set[tuple[str, str]]:
    """Return every gold or answered value with its state: right, missed or wrong."""
    states = {(True, True): "right", (True, False): "missed", (False, True): "wrong"}
    return {(value, states[value in gold, value in answer]) for value in {*gold, *answer}}


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
