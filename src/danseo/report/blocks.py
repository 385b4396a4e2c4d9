"""The blocks of a page: tables, figures with their numbers, examples and notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.display.plots.figures import Figure
from danseo.display.table import Table
from danseo.tasktypes.rendering import RenderedExample


@dataclass(frozen=True)
class TableBlock:
    """A table; long ones can be sorted, filtered and folded."""

    table: Table
    links: dict[str, str] = field(default_factory=dict)
    """Cell text -> key of the linked page."""
    row_links: Sequence[dict[str, str]] = ()
    """The same per row, if the same text links to different pages."""
    folded: bool = False
    beneath: Sequence[dict[str, str]] = ()
    """Small print below the values, by row and column, such as an interval."""
    kind: str = "table"

    def as_dict(self) -> dict[str, Any]:
        small_print = {"beneath": list(self.beneath)} if self.beneath else {}
        return {"kind": self.kind, **self.table.as_dict(), **small_print}


@dataclass(frozen=True)
class FigureBlock:
    """A figure with a table of its numbers."""

    title: str
    figure: Figure
    table: Table
    caption: str = ""
    kind: str = "figure"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "title": self.title, "caption": self.caption, "table": self.table.as_dict()}


@dataclass(frozen=True)
class ExamplesBlock:
    """Rendered examples to search and to filter."""

    title: str
    note: str
    examples: Sequence[RenderedExample]
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
    """A note of one or two sentences."""

    text: str
    tone: str = ""
    """warning, or empty."""
    kind: str = "note"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "tone": self.tone}


Block = TableBlock | FigureBlock | ExamplesBlock | NoteBlock


@dataclass(frozen=True)
class PageSection:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, "blocks": [block.as_dict() for block in self.blocks]}


@dataclass(frozen=True)
class Page:
    """A page of the report or the board."""

    key: str
    """The target of links: overview, task/ner, run/NAME."""
    title: str
    lead: str
    """The summary of the page."""
    sections: Sequence[PageSection]

    @property
    def short(self) -> str:
        """The title without the text in brackets, for a row of links."""
        return self.title.split(" (")[0]

    def as_dict(self) -> dict[str, Any]:
        return {
            "page": self.key,
            "title": self.title,
            "lead": self.lead,
            "sections": [section.as_dict() for section in self.sections],
        }


def make_facts_table(title: str, facts: dict[str, object]) -> TableBlock:
    """Return a table of names and values."""
    return TableBlock(Table(title, ("what", "value"), list(facts.items())))
