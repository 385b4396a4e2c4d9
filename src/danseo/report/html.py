"""The blocks of a page, and pages as HTML: texts are escaped, and foreign scripts and styles are forbidden."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any

from danseo import __version__
from danseo.display.plots.figures import Figure, translate_figure
from danseo.display.plots.svg import draw_svg
from danseo.display.table import Best, Second, Strong, Table, translate_cell
from danseo.language import LANGUAGES, Message, get_language, list_script_words, translate, translate_message
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


_MARKS: dict[type, str] = {Best: "best", Second: "second", Strong: "strong"}
_COLOURS = 8  # of entity types
_SHORT = 24  # characters that stay on one line
_CONTROLS = {code: f"U+{code:04X}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}
"""Control characters, which HTML does not allow."""


def read_asset(name: str) -> str:
    """Return the text of a file in the templates folder."""
    return files("danseo.report").joinpath("templates", name).read_text("utf-8")


@cache
def make_jinja_environment(language: str) -> Any:
    """Return the environment of the templates in a language, which escapes every value."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    t = partial(translate, language=language)
    jinja: Any = Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _finish_text(value, language),
        extensions=["jinja2.ext.i18n"],
    )
    jinja.install_gettext_callables(gettext=t, ngettext=lambda one, many, n: t(one if n == 1 else many))
    scripts = read_asset("page.js") + read_asset("board.js")
    jinja.globals |= {
        "svg": lambda figure, title: Markup(draw_svg(translate_figure(figure, language), t(title))),
        "split_table": lambda block: split_table(block, language),
        "t": t,
        "language": language,
        "languages": LANGUAGES,
        "words": json.dumps(list_script_words(scripts, language), ensure_ascii=False),
        "get_numbers": lambda block: TableBlock(block.table),
        "choose_colour": choose_colour,
        "version": __version__,
    }
    return jinja


def _finish_text(value: object, language: str) -> object:
    """Return a value of a template in the language of the page, without control characters."""
    value = translate_message(value, language)
    return value.translate(_CONTROLS) if isinstance(value, str) else value


@dataclass(frozen=True)
class TablePart:
    """The rows below one heading of a table, ready for a template."""

    heading: str
    columns: Sequence[str]
    rows: list[list[dict[str, Any]]]


def split_table(block: TableBlock, language: str) -> list[TablePart]:
    """Return the parts of a table; each cell has a text, a sort key, a link and small print."""
    table = block.table
    section = table.columns.index(table.section) if table.section in table.columns else None
    positions = [position for position in range(len(table.columns)) if position != section]
    numeric, links = table.is_numeric(), block.row_links or [block.links] * len(table.rows)
    parts: dict[str, list[list[dict[str, Any]]]] = {}
    for number, (texts, row) in enumerate(zip(table.cells(), table.rows, strict=True)):
        small_print = block.beneath[number] if number < len(block.beneath) else {}
        cells = []
        for k in positions:
            has_link = table.columns[k] != "model"  # a run may have the name of its model
            marks = _choose_class(texts[k], numeric[k]), _MARKS.get(type(row[k]), "")
            cells.append(
                {
                    "text": _show_cell(row[k], texts[k], language),
                    "sort": f"{row[k]:.6g}" if numeric[k] and _is_cut_off(row[k], texts[k]) else None,
                    "kind": " ".join(filter(None, marks)),
                    "link": links[number].get(texts[k]) if has_link else None,
                    "below": small_print.get(table.columns[k], ""),
                }
            )
        heading = _show_cell(row[section], texts[section], language) if section is not None else ""
        parts.setdefault(str(heading), []).append(cells)
    columns = [table.columns[k] for k in positions]
    return [TablePart(heading, columns, rows) for heading, rows in parts.items()] or [TablePart("", columns, [])]


def _show_cell(value: object, text: str, language: str) -> object:
    """Return the text of a cell; only words of danseo are translated, never data."""
    return translate_cell(value, language) if isinstance(value, bool | Message) else text


def _is_cut_off(value: object, text: str) -> bool:
    """Return whether the text of a number hides its value, as <0.01 does; only then a sort key is needed."""
    return isinstance(value, float) and text.startswith(("<", ">"))


def _choose_class(text: str, is_number: bool) -> str:
    """Return the CSS class of a cell in one letter: a report has tens of thousands of cells."""
    return "n" if is_number else "s" if len(text) < _SHORT else ""


def choose_colour(mark: str) -> str:
    """Return the CSS class of a mark's colour, always the same for the same mark."""
    return f"t{sum(mark.encode()) % _COLOURS}"


def hash_for_policy(text: str) -> str:
    """Return the hash of an inline script or style for a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _make_assets() -> dict[str, str]:
    """Return style and script of a page that loads nothing, and the policy that allows only these."""
    style, script = read_asset("style.css"), read_asset("page.js")
    policy = (
        f"default-src 'none'; style-src {hash_for_policy(style)}; script-src {hash_for_policy(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": style, "script": script, "policy": policy}


def render_report(pages: Sequence[Page], title: str, language: str | None = None) -> str:
    """Return all pages as one HTML file that loads nothing else, in the language of the process or another one."""
    anchors = {page.key: page.key.replace("/", "-") for page in pages}
    template = make_jinja_environment(language or get_language()).get_template("report.html")
    html: str = template.render(
        pages=pages, title=title, href=lambda key: f"#{anchors[key]}", anchors=anchors, **_make_assets()
    )
    return html


def render_site(pages: Sequence[Page], nav: Sequence[Page]) -> dict[str, str]:
    """Return file name -> content of a folder of pages in every language; the keys of pages are file names."""
    assets, files = _make_assets(), {}
    for language in LANGUAGES:
        template = make_jinja_environment(language).get_template("leaderboard.html")
        for page in pages:
            files[name_site_file(page.key, language)] = template.render(
                page=page,
                nav=nav,
                href=partial(name_site_file, language=language),
                switch=partial(name_site_file, page.key),
                **assets,
            )
    return files


def name_site_file(key: str, language: str) -> str:
    """Return the file name of a page: index.html in English, index.ko.html in Korean."""
    return f"{key}.html" if language == "en" else f"{key}.{language}.html"
