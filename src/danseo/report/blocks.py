"""What a page is made of: tables, figures with their numbers behind them, examples, notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.display.table import Table
from danseo.plots.figures import Figure
from danseo.report.forms import Shown


@dataclass(frozen=True)
class TableBlock:
    """A table; long ones can be sorted, filtered and folded."""

    table: Table
    links: dict[str, str] = field(default_factory=dict)
    """Cell text -> key of the page that it leads to."""
    row_links: Sequence[dict[str, str]] = ()
    """The same per row, where one text leads to different pages."""
    folded: bool = False
    beneath: Sequence[dict[str, str]] = ()
    """Per row and column a few words below the value, such as its interval."""
    kind: str = "table"

    def as_dict(self) -> dict[str, Any]:
        below = {"beneath": list(self.beneath)} if self.beneath else {}
        return {"kind": self.kind, **self.table.as_dict(), **below}


@dataclass(frozen=True)
class FigureBlock:
    """A figure, and its numbers as a table behind it."""

    title: str
    figure: Figure
    table: Table
    caption: str = ""
    kind: str = "figure"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "title": self.title, "caption": self.caption, "table": self.table.as_dict()}


@dataclass(frozen=True)
class ExamplesBlock:
    """Examples in the form of their task, to search and to filter."""

    title: str
    note: str
    examples: Sequence[Shown]
    kind: str = "examples"

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "title": self.title,
            "note": self.note,
            "examples": [example.as_dict() for example in self.examples],
        }


@dataclass(frozen=True)
class NoteBlock:
    """A sentence or two."""

    text: str
    tone: str = ""
    """warning, or nothing."""
    kind: str = "note"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "tone": self.tone}


Block = TableBlock | FigureBlock | ExamplesBlock | NoteBlock


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, "blocks": [block.as_dict() for block in self.blocks]}


@dataclass(frozen=True)
class Page:
    """A page of the report or the board."""

    key: str
    """overview, task/ner, run/NAME: what links lead to."""
    title: str
    lead: str
    """What one should know in ten seconds."""
    sections: Sequence[Section]

    @property
    def short(self) -> str:
        """The title without what stands in brackets, for a row of links."""
        return self.title.split(" (")[0]

    def as_dict(self) -> dict[str, Any]:
        return {
            "page": self.key,
            "title": self.title,
            "lead": self.lead,
            "sections": [section.as_dict() for section in self.sections],
        }


def facts_table(title: str, facts: dict[str, object]) -> TableBlock:
    """Names and values."""
    return TableBlock(Table(title, ("what", "value"), list(facts.items())))
