"""Examples for pages: lines of text spans, some of them marked, and dependency trees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.plots.figures import Arcs
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
