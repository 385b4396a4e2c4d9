"""Pages as HTML: every text from runs and data is escaped, and a policy forbids whatever is not ours."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from danseo import __version__
from danseo.display.table import Best, Second, Strong
from danseo.plots.svg import draw
from danseo.report.blocks import Page, TableBlock

_MARKS: dict[type, str] = {Best: "best", Second: "second", Strong: "strong"}
_COLOURS = 8  # of entity types
_SHORT = 36  # letters that are not broken over lines


def asset(name: str) -> str:
    """A file of the templates folder."""
    return files("danseo.report").joinpath("templates", name).read_text("utf-8")


@cache
def environment() -> Any:
    """The templates, with escaping on for all of them."""
    from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound
    from markupsafe import Markup

    class Loader(BaseLoader):
        def get_source(self, environment: Environment, template: str) -> Any:
            try:
                return asset(template), None, lambda: True
            except FileNotFoundError:
                raise TemplateNotFound(template) from None

    found = Environment(
        loader=Loader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.globals |= {
        "svg": lambda figure, title: Markup(draw(figure, title)),
        "parts_of": parts_of,
        "numbers_of": lambda block: TableBlock(block.table),
        "colour": colour,
        "version": __version__,
    }
    return found


@dataclass(frozen=True)
class Part:
    """The rows below one heading of a table, ready for a template."""

    heading: str
    columns: Sequence[str]
    rows: list[list[dict[str, Any]]]


def parts_of(block: TableBlock) -> list[Part]:
    """A table in its parts, each cell with what it shows, sorts by, leads to, and has beneath it."""
    table, shown = block.table, block.table.cells()
    at = table.columns.index(table.section) if table.section in table.columns else None
    kept = [position for position in range(len(table.columns)) if position != at]
    numeric, links = table.is_numeric(), block.row_links or [block.links] * len(table.rows)
    parts: dict[str, list[list[dict[str, Any]]]] = {}
    for number, (texts, row) in enumerate(zip(shown, table.rows, strict=True)):
        below = block.beneath[number] if number < len(block.beneath) else {}
        cells = [
            {
                "text": texts[k],
                "sort": f"{value:.6g}" if numeric[k] and _hides(value := row[k], texts[k]) else None,
                "kind": " ".join(filter(None, (_shape(texts[k], numeric[k]), _MARKS.get(type(row[k]), "")))),
                "link": links[number].get(texts[k])
                if table.columns[k] != "model"
                else None,  # a run may be called as it
                "below": below.get(table.columns[k], ""),
            }
            for k in kept
        ]
        parts.setdefault(texts[at] if at is not None else "", []).append(cells)
    columns = [table.columns[k] for k in kept]
    return [Part(heading, columns, rows) for heading, rows in parts.items()] or [Part("", columns, [])]


def _hides(value: object, text: str) -> bool:
    """Whether a number cannot be told from its text, as of <0.01; what can be is not written twice."""
    return isinstance(value, float) and text.startswith(("<", ">"))


def _shape(text: str, is_number: bool) -> str:
    """The class of a cell, in one letter: a report has tens of thousands of them."""
    return "n" if is_number else "s" if len(text) < _SHORT else ""


def colour(mark: str) -> str:
    """A class for the colour of a mark, the same for the same mark everywhere."""
    return f"t{sum(mark.encode()) % _COLOURS}"


def digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def report_html(pages: Sequence[Page], title: str) -> str:
    """All pages in one file that asks nobody for anything."""
    style, script = asset("style.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    anchors = {page.key: page.key.replace("/", "-") for page in pages}
    template = environment().get_template("report.html")
    text: str = template.render(
        pages=pages,
        title=title,
        style=style,
        script=script,
        policy=policy,
        href=lambda key: f"#{anchors[key]}",
        anchors=anchors,
    )
    return text
