"""Figures as plain numbers: svg.py draws them for pages, image_files.py draws them to files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from danseo.language import translate, translate_message

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Forest:
    """A value with its interval per name, along one axis."""

    names: Sequence[str]
    values: Sequence[tuple[float | None, float, float | None]]
    """Low end, value, high end."""
    x_label: str
    marks: Sequence[str] = ()
    """A few letters behind each name, such as tie groups; on pages only."""
    levels: Sequence[tuple[str, float]] = ()
    """Named lines across, such as the score of the most frequent answer."""
    references: Sequence[tuple[str, Sequence[float | None]]] = ()
    """Up to two more values per name, each series with its meaning: a bar, then a diamond; on pages only."""
    title: str = ""
    is_ratio: bool = False
    """Values are ratios: files have a logarithmic axis."""


@dataclass(frozen=True)
class Curve:
    """One curve of a chart."""

    name: str
    points: Points
    best: float | None = None
    """The x value of the point to mark."""
    style: Literal["line", "steps", "points"] = "line"
    band: Sequence[tuple[float, float, float]] = ()
    """x, low end, high end."""
    color: int | None = None
    """Index of the colour; by default the position of the curve."""
    dash: int | None = None
    """Index of the dash pattern; by default from the position of the curve."""


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis."""

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    diagonal: bool = False
    """Draw a line from (0, 0) to (100, 100), where correct values lie."""
    title: str = ""
    levels: Sequence[tuple[str, float]] = ()
    """Named lines across, such as the score of a guess."""
    from_zero: bool = False
    """The y axis begins at 0."""
    log_x: bool = False
    """The x axis is logarithmic; in files only."""


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, a group per name: side by side, or stacked end to end; in files only."""

    names: Sequence[str]
    series: Mapping[str, Sequence[float]]
    x_label: str
    title: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Grid:
    """Named rows and columns of cells, each a text and the strength of its colour, from -1 to 1."""

    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    strengths: Sequence[Sequence[float]]
    corner: str = ""
    title: str = ""


@dataclass(frozen=True)
class Arcs:
    """A sentence and the heads of its words: gold above, predicted below; on pages only."""

    words: Sequence[str]
    above: Sequence[tuple[int, str]]
    below: Sequence[tuple[int, str]] = field(default=())
    wrong: frozenset[int] = frozenset()
    """Positions of the words, from 0, whose head or relation differs."""


FileFigure = Forest | Chart | Bars | Grid
Figure = Forest | Chart | Grid | Arcs
"""The figures of pages."""
AnyFigure = TypeVar("AnyFigure", bound=Forest | Chart | Bars | Grid | Arcs)


def translate_figure(figure: AnyFigure, language: str | None = None) -> AnyFigure:
    """Return the figure with its labels in a language; names of runs and the numbers stay."""
    labels = {name: getattr(figure, name, None) for name in ("title", "x_label", "y_label", "corner")}
    texts: dict[str, Any] = {name: translate(text, language) for name, text in labels.items() if text}
    for name in ("levels", "references"):
        if pairs := getattr(figure, name, ()):
            texts[name] = [(translate(text, language), values) for text, values in pairs]
    if isinstance(figure, Forest):
        texts["names"] = [str(translate_message(name, language)) for name in figure.names]
    if isinstance(figure, Chart):
        texts["curves"] = [replace(curve, name=str(translate_message(curve.name, language))) for curve in figure.curves]
    if isinstance(figure, Bars):
        texts["series"] = {translate(name, language): values for name, values in figure.series.items()}
    return replace(figure, **texts)


def split_curves(points: Mapping[tuple[str, str], Points], style: Literal["line", "steps"] = "line") -> list[Curve]:
    """Return a curve per subject and split: subjects differ in colour, splits in dashes."""
    subjects = list(dict.fromkeys(subject for subject, _ in points))
    splits = list(dict.fromkeys(split for _, split in points))
    several = len(subjects) > 1
    return [
        Curve(
            f"{subject}, {split}" if several else split,
            each,
            style=style,
            color=subjects.index(subject) if several else splits.index(split),
            dash=splits.index(split),
        )
        for (subject, split), each in points.items()
    ]


def make_percent_grid(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], unit: str
) -> Grid:
    """Return a grid of shares from 0 to 100; shares below 0.5 have no number, and small ones a visible colour."""
    texts = [[f"{value:.0f}" if value >= 0.5 else "" for value in row] for row in values]
    strengths = [[(value / 100) ** 0.6 for value in row] for row in values]
    return Grid(rows, columns, texts, strengths, title=f"{title}: {unit}")
