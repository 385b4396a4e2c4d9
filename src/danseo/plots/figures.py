"""What the pages draw, as plain numbers; svg.py draws them."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Forest:
    """A value with its interval per name, best first, along one axis."""

    names: Sequence[str]
    values: Sequence[tuple[float | None, float, float | None]]
    """Low end, value, high end."""
    x_label: str
    marks: Sequence[str] = ()
    """A few letters behind each name, such as tie groups."""
    levels: Sequence[tuple[str, float]] = ()
    """Lines across, such as the score of the most frequent answer."""
    references: Sequence[tuple[str, Sequence[float | None]]] = ()
    """Up to two more values per name, each series with what it means: drawn as a bar, then as a diamond."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart, with a mark at one of its points."""

    name: str
    points: Sequence[tuple[float, float]]
    best: float | None = None
    """Where the mark stands on the x axis."""


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis."""

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    diagonal: bool = False
    """A line from (0, 0) to (100, 100), for diagrams where right means on it."""


@dataclass(frozen=True)
class Grid:
    """Named rows and columns of cells, each a text and how strong its colour is, from -1 to 1."""

    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    strengths: Sequence[Sequence[float]]
    corner: str = ""


@dataclass(frozen=True)
class Arcs:
    """A sentence and the heads of its words: expected ones above, others below."""

    words: Sequence[str]
    above: Sequence[tuple[int, str]]
    below: Sequence[tuple[int, str]] = field(default=())
    wrong: frozenset[int] = frozenset()
    """Places of the words, from 0, whose head or relation differs."""


Figure = Forest | Chart | Grid | Arcs
