"""Inputs that occur more than once: within a split, with other labels, with parts exchanged, in train and dev."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from danseo.display.table import Table
from danseo.eda.counting import percent
from danseo.eda.view import Key, Loosen, Splits, View

_NOISE = re.compile(r"[\W_]+")
_SHOWN = 5
SAME = "input"
CONFLICT = "input, another gold"
NEAR = "input but for spaces and punctuation"
Group = Sequence[Any]


class Finding(NamedTuple):
    """Groups of examples that have something in common, and how many that makes."""

    groups: Sequence[Group]
    count: int  # type: ignore[assignment]
    unit: str


Findings = Mapping[str, Finding]


def loosen(text: str) -> str:
    """The text without spaces, punctuation and symbols; a text of nothing else stays as it is."""
    return _NOISE.sub("", text) or text


def _exact(text: str) -> str:
    return text


def duplicate_tables(view: View, splits: Splits) -> list[Table]:
    """How often inputs occur again, and where to look."""
    loose = lru_cache(maxsize=None)(loosen)  # passages and turns come many times
    found = {split: (_within(view, examples, loose), len(examples)) for split, examples in splits.items()}
    if len(splits) == 2:
        (first, before), (second, after) = splits.items()
        found[f"{second} in {first}"] = _across(view, before, after, loose), len(after)
    tables = [_count_table(found), _guid_table(found)]
    return [table for table in tables if table.rows]


def _count_table(found: Mapping[str, tuple[Findings, int]]) -> Table:
    names = dict.fromkeys(name for findings, _ in found.values() for name in findings)
    rows: list[tuple[object, ...]] = []
    for name in names:
        cells: list[object] = []
        for findings, total in found.values():
            count = findings[name].count if name in findings else None
            cells += [count, None if count is None else percent(count, total)]
        rows.append((name, next(f[name].unit for f, _ in found.values() if name in f), *cells))
    columns = ("same", "counted", *(name for where in found for name in (where, f"{where} %")))
    note = "A surplus row repeats what an earlier row has; between splits, rows of the second that the first has."
    return Table("Duplicates", columns, rows, note)


def _guid_table(found: Mapping[str, tuple[Findings, int]]) -> Table:
    rows: list[tuple[object, ...]] = [
        (name, where, tuple(example.guid for example in islice(chain.from_iterable(finding.groups), _SHOWN)))
        for where, (findings, _) in found.items()
        for name, finding in findings.items()
        if finding.count and not (name == NEAR and finding.count == findings[SAME].count)
    ]
    return Table("Duplicates: where to look", ("same", "where", "first guids, those of a group together"), rows)


def _within(view: View, examples: Sequence[Any], loose: Loosen) -> Findings:
    exact = _repeated(examples, lambda example: view.key(example, _exact))
    conflicts = [_telling(group, view) for group in exact if len({view.gold(example) for example in group}) > 1]
    near = _repeated(examples, lambda example: view.key(example, loose))
    findings = {
        SAME: Finding(exact, _surplus(exact), "surplus rows"),
        CONFLICT: Finding(conflicts, len(conflicts), "inputs"),
        NEAR: Finding(_new_first(near, exact), _surplus(near), "surplus rows"),
    }
    if view.swapped:
        pairs = _swapped_pairs(view, view.swapped, examples)
        findings[view.swapping] = Finding(pairs, len(pairs), "pairs of rows")
    if view.shared:
        shared = _repeated(examples, view.shared)
        findings[view.sharing] = Finding(shared, _surplus(shared), "surplus rows")
    return findings


def _across(view: View, before: Sequence[Any], after: Sequence[Any], loose: Loosen) -> Findings:
    exact = _met(before, after, lambda example: view.key(example, _exact))
    conflicts = [pair for pair in exact if view.gold(pair[0]) != view.gold(pair[1])]
    near = _met(before, after, lambda example: view.key(example, loose))
    found: dict[str, Sequence[Group]] = {SAME: exact, CONFLICT: conflicts, NEAR: _new_first(near, exact)}
    if view.shared:
        found[view.sharing] = _met(before, after, view.shared)
    return {name: Finding(pairs, len(pairs), "rows") for name, pairs in found.items()}


def _repeated(examples: Sequence[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """The examples that share a key, group by group."""
    groups: dict[Hashable, list[Any]] = defaultdict(list)
    for example in examples:
        groups[key(example)].append(example)
    return [group for group in groups.values() if len(group) > 1]


def _new_first(groups: Iterable[Group], known: Iterable[Group]) -> list[Group]:
    """The groups, those ahead that do not begin like a known one."""
    firsts = {group[0].guid for group in known}
    return sorted(groups, key=lambda group: group[0].guid in firsts)


def _surplus(groups: Iterable[Group]) -> int:
    return sum(len(group) - 1 for group in groups)


def _telling(group: Group, view: View) -> Group:
    """The first example and the first that contradicts it."""
    return [group[0], next(example for example in group if view.gold(example) != view.gold(group[0]))]


def _swapped_pairs(view: View, swapped: Callable[[Any, Loosen], Key], examples: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each input with the later one that has its parts exchanged; an input of two equal parts is no such pair."""
    seen: dict[Key, Any] = {}
    pairs = []
    for example in examples:
        key, other = view.key(example, _exact), swapped(example, _exact)
        if other != key and other in seen and key not in seen:
            pairs.append((seen[other], example))
        seen.setdefault(key, example)
    return pairs


def _met(before: Sequence[Any], after: Sequence[Any], key: Callable[[Any], Hashable]) -> list[tuple[Any, Any]]:
    """Every later example whose key an earlier split knows, with the first one there."""
    known: dict[Hashable, Any] = {}
    for example in before:
        known.setdefault(key(example), example)
    return [(example, known[k]) for example in after if (k := key(example)) in known]
