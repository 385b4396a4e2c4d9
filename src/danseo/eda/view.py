"""How to look at the examples of a task: the one thing that differs between the tasks."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.table import Table
from danseo.eda.panels import Panel

Splits = Mapping[str, Sequence[Any]]
Key = tuple[Hashable, ...]
Loosen = Callable[[str], str]


@dataclass(frozen=True)
class Length:
    """One kind of length: its unit, and how to measure it on all examples of a split."""

    unit: str
    measure: Callable[[Sequence[Any]], list[int]]
    is_text: bool = False
    """Whether it is a text that is measured, in characters: those are drawn together."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What there is to count in the examples of one task."""

    label: str
    """What the labels are called."""
    unit: str
    """What carries a label: a row, an entity, a word ..."""
    labels: Callable[[Any], Iterable[str]]
    texts: Callable[[Any], tuple[str, ...]]
    """Every text of an example; of a dialogue what is new at this turn."""
    lengths: Mapping[str, Length]
    key: Callable[[Any, Loosen], Key]
    """What makes two inputs the same, after loosening their texts."""
    swapped: Callable[[Any, Loosen], Key] | None = None
    """The same input with its two parts in each other's place."""
    swapping: str = ""
    shared: Callable[[Any], Hashable] | None = None
    """The part of an input that several rows may share."""
    sharing: str = ""
    gold: Callable[[Any], Hashable] = lambda example: example.gold
    label_order: Sequence[str] = ()
    """The order of labels that have one; others are sorted by how often they occur."""
    tables: Callable[[Splits], list[Table]] = lambda splits: []
    panel: Callable[[Splits], Panel | None] = lambda splits: None
    panels: Callable[[Splits], Sequence[Panel | None]] = lambda splits: ()
    """More of them, below the others."""


def characters(text: Callable[[Any], str]) -> Length:
    """The length in characters of one text of every example."""
    return Length("characters", lambda examples: [len(text(example)) for example in examples], is_text=True)
