"""What a plot of a description shows, as plain numbers; danseo.plots.panels draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, a group per name: side by side, or stacked end to end."""

    title: str
    names: Sequence[str]
    series: Mapping[str, Sequence[float]]
    x_label: str
    stacked: bool = False


@dataclass(frozen=True)
class Line:
    """One curve; lines of a subject share a colour, lines of a split share a dash."""

    subject: str
    split: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Lines:
    """Curves over a common axis."""

    title: str
    lines: Sequence[Line]
    x_label: str
    y_label: str
    log_x: bool = False
    steps: bool = False


@dataclass(frozen=True)
class Heat:
    """A grid of shares from 0 to 100, a row and a column name for each cell."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    value_label: str


@dataclass(frozen=True)
class Dots:
    """A value with its interval per name, around a value that means "no difference"."""

    title: str
    names: Sequence[str]
    values: Sequence[tuple[float, float, float]]
    """Low end, value, high end."""
    x_label: str
    neutral: float = 1.0


Panel = Bars | Lines | Heat | Dots
