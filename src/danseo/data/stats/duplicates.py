"""Find inputs that occur more than once: within a split, with other gold, with parts exchanged, in train and dev."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from danseo.data.stats.view import Key, Normalize, View
from danseo.display.table import Table
from danseo.tasktypes.base import Splits
from danseo.tasktypes.rendering import percent

_NOISE = re.compile(r"[\W_]+")
_MAX_GUIDS = 5
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


def remove_punctuation(text: str) -> str:
    """Return the text without spaces, punctuation and symbols; a text of nothing else is unchanged."""
    return _NOISE.sub("", text) or text


def duplicate_tables(view: View, splits: Splits) -> list[Table]:
    """Return how often inputs are repeated, and the guids of some."""
    normalize = lru_cache(maxsize=None)(remove_punctuation)  # passages and turns occur many times
    findings = {split: (_find_within(view, examples, normalize), len(examples)) for split, examples in splits.items()}
    if len(splits) == 2:
        (first, before), (second, after) = splits.items()
        findings[f"{second} in {first}"] = _find_across(view, before, after, normalize), len(after)
    tables = [_count_table(findings), _guid_table(findings)]
    return [table for table in tables if table.rows]


def _count_table(by_place: Mapping[str, tuple[Findings, int]]) -> Table:
    units: dict[str, str] = {}
    for findings, _ in by_place.values():
        units = {name: finding.unit for name, finding in findings.items()} | units
    rows: list[tuple[object, ...]] = []
    for name, unit in units.items():
        cells: list[object] = []
        for findings, total in by_place.values():
            count = findings[name].count if name in findings else None
            cells += [count, None if count is None else percent(count, total)]
        rows.append((name, unit, *cells))
    columns = ("same", "counted", *(name for place in by_place for name in (place, f"{place} %")))
    note = "A surplus row repeats an earlier row; between splits, rows of the second that are also in the first."
    return Table("Duplicates", columns, rows, note)


def _guid_table(by_place: Mapping[str, tuple[Findings, int]]) -> Table:
    rows: list[tuple[object, ...]] = [
        (name, place, tuple(example.guid for example in islice(chain.from_iterable(finding.groups), _MAX_GUIDS)))
        for place, (findings, _) in by_place.items()
        for name, finding in findings.items()
        if finding.count and not (name == NEAR and finding.count == findings[SAME].count)
    ]
    return Table("Duplicates: where to look", ("same", "where", "first guids, those of a group together"), rows)


def find_duplicates(view: View, examples: Sequence[Any]) -> Findings:
    """Find inputs that occur several times in a split: SAME, and with another gold CONFLICT."""
    exact = _group_repeated(examples, lambda example: view.key(example, str))
    conflicts = [
        [group[0], other]
        for group in exact
        if (other := next((e for e in group if view.gold(e) != view.gold(group[0])), None))
    ]
    return {
        SAME: Finding(exact, _count_surplus(exact), "surplus rows"),
        CONFLICT: Finding(conflicts, len(conflicts), "inputs"),
    }


def find_leaks(view: View, before: Sequence[Any], after: Sequence[Any]) -> Findings:
    """Find inputs of the second split that are also in the first: SAME, and with another gold CONFLICT."""
    exact = _pair_shared(before, after, lambda example: view.key(example, str))
    conflicts = [pair for pair in exact if view.gold(pair[0]) != view.gold(pair[1])]
    return {name: Finding(pairs, len(pairs), "rows") for name, pairs in ((SAME, exact), (CONFLICT, conflicts))}


def _find_within(view: View, examples: Sequence[Any], normalize: Normalize) -> Findings:
    findings = dict(find_duplicates(view, examples))
    near = _group_repeated(examples, lambda example: view.key(example, normalize))
    findings[NEAR] = Finding(_put_new_first(near, findings[SAME].groups), _count_surplus(near), "surplus rows")
    if view.swapped_key:
        pairs = _find_swapped(view, view.swapped_key, examples)
        findings[view.swapped_name] = Finding(pairs, len(pairs), "pairs of rows")
    if view.shared:
        shared = _group_repeated(examples, view.shared)
        findings[view.shared_name] = Finding(shared, _count_surplus(shared), "surplus rows")
    return findings


def _find_across(view: View, before: Sequence[Any], after: Sequence[Any], normalize: Normalize) -> Findings:
    findings = dict(find_leaks(view, before, after))
    near = _pair_shared(before, after, lambda example: view.key(example, normalize))
    findings[NEAR] = Finding(_put_new_first(near, findings[SAME].groups), len(near), "rows")
    if view.shared:
        shared = _pair_shared(before, after, view.shared)
        findings[view.shared_name] = Finding(shared, len(shared), "rows")
    return findings


def _group_repeated(examples: Sequence[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    groups: dict[Hashable, list[Any]] = defaultdict(list)
    for example in examples:
        groups[key(example)].append(example)
    return [group for group in groups.values() if len(group) > 1]


def _put_new_first(groups: Iterable[Group], known: Iterable[Group]) -> list[Group]:
    """Return the groups; those whose first example does not start a known group come first."""
    firsts = {group[0].guid for group in known}
    return sorted(groups, key=lambda group: group[0].guid in firsts)


def _count_surplus(groups: Iterable[Group]) -> int:
    return sum(len(group) - 1 for group in groups)


def _find_swapped(
    view: View, swapped_key: Callable[[Any, Normalize], Key], examples: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Return each input with the later one that has its parts exchanged, unless the parts are equal."""
    seen: dict[Key, Any] = {}
    pairs = []
    for example in examples:
        key, swapped = view.key(example, str), swapped_key(example, str)
        if swapped != key and swapped in seen and key not in seen:
            pairs.append((seen[swapped], example))
        seen.setdefault(key, example)
    return pairs


def _pair_shared(before: Sequence[Any], after: Sequence[Any], key: Callable[[Any], Hashable]) -> list[tuple[Any, Any]]:
    """Return every later example whose key is in the earlier split, with the first one there."""
    known: dict[Hashable, Any] = {}
    for example in before:
        known.setdefault(key(example), example)
    return [(example, known[k]) for example in after if (k := key(example)) in known]
