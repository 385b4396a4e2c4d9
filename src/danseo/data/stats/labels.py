"""Count labels, lengths and unusual characters, by split and by source."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from danseo.data.stats.view import View, distribution_table, list_labels
from danseo.display.plots.figures import Bars, Chart, Forest, Grid, make_percent_grid, split_curves
from danseo.display.table import Table
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent

_MAX_LABEL_COLUMNS = 10
_MAX_SOURCE_COLUMNS = 4
_RARE = 0.1  # in %: a bar too short to see
_PERCENTILES = (50, 90, 95, 99)
_NO_SOURCE = "not given"
_SOURCE_IN_GUID = re.compile(r"_\d+[-_]([^\W\d].*)$")  # klue-ner-v1_dev_00000-wikitree


def find_source(example: Any) -> str | None:
    """Return the source of a text: the field of the file, or the end of the guid (ner, dp)."""
    source: str | None = getattr(example, "source", None)
    if source is None and (match := _SOURCE_IN_GUID.search(example.guid)):
        source = match[1]
    return source


def count_labels(view: View, examples: Sequence[Any]) -> Counter[str]:
    return Counter(name for example in examples for name in view.labels(example))


def label_table(task: Task, view: View, splits: Splits) -> Table:
    """Return the labels of each split, with the shift between two splits."""
    counts = {split: count_labels(view, examples) for split, examples in splits.items()}
    independent = view.unit == "row"  # words of a sentence or slots of a dialogue are no independent draws
    title = f"Labels: the {view.label} of each {view.unit}"
    table = distribution_table(title, view.label, counts, order=view.label_order, independent=independent)
    known = task.labels if task.labels and set(task.labels) >= set(list_labels(counts)) else ()
    absent = [name for name in known if not any(counter[name] for counter in counts.values())]
    note = f"{table.note} Never seen: {', '.join(absent)}.".strip() if absent else table.note
    return Table(table.title, table.columns, table.rows, note)


def source_tables(view: View, splits: Splits) -> list[Table]:
    """Return the share of each label in each source; few labels are columns, many are rows."""
    counts = {split: _count_by_source(view, examples) for split, examples in splits.items()}
    sources = dict.fromkeys(source for by_source in counts.values() for source in by_source)
    if len(sources) < 2:
        return []
    title = f"Labels by source: % of the {view.label}s of a source"
    names = list_labels({f"{split} {s}": c for split, by in counts.items() for s, c in by.items()}, view.label_order)
    ordered = {(s, split): counts[split][s] for s in sources for split in splits if s in counts[split]}
    if len(names) <= _MAX_LABEL_COLUMNS:
        return [_source_row_table(title, ordered, names)]
    if len(ordered) <= _MAX_SOURCE_COLUMNS:
        return [_label_row_table(title, view, {" ".join(key): counter for key, counter in ordered.items()})]
    return [_label_row_table(f"{title}, {split}", view, by_source) for split, by_source in counts.items()]


def _label_row_table(title: str, view: View, counts: Mapping[str, Counter[str]]) -> Table:
    order = [name for name, _ in sum(counts.values(), Counter[str]()).most_common()]
    rows: list[tuple[object, ...]] = [
        (name, *(percent(counter[name], counter.total()) for counter in counts.values()))
        for name in list_labels(counts, view.label_order or order)
    ]
    sizes = ", ".join(f"{source} {counter.total():,}" for source, counter in counts.items())
    return Table(title, (view.label, *(f"{source} %" for source in counts)), rows, f"Labels: {sizes}.")


def _source_row_table(title: str, counts: Mapping[tuple[str, str], Counter[str]], names: Sequence[str]) -> Table:
    rows: list[tuple[object, ...]] = [
        (source, split, counter.total(), *(percent(counter[name], counter.total()) for name in names))
        for (source, split), counter in counts.items()
    ]
    return Table(title, ("source", "split", "n", *(f"{name} %" for name in names)), rows)


def _count_by_source(view: View, examples: Sequence[Any]) -> dict[str, Counter[str]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for example in examples:
        groups[find_source(example) or _NO_SOURCE].append(example)
    ordered = sorted(groups, key=lambda source: (-len(groups[source]), source))
    return {source: count_labels(view, groups[source]) for source in ordered}


def label_panel(view: View, splits: Splits) -> Bars:
    """Return the shares of the labels, the splits side by side."""
    counts = {split: count_labels(view, examples) for split, examples in splits.items()}
    totals = {split: counter.total() for split, counter in counts.items()}
    names = list_labels(counts, view.label_order)
    rare = [name for name in names if all((percent(c[name], c.total()) or 0.0) < _RARE for c in counts.values())]
    if len(rare) > 1:
        others = f"{len(rare)} rarer ones"
        counts = {s: c + Counter({others: sum(c[name] for name in rare)}) for s, c in counts.items()}
        names = [*(name for name in names if name not in rare), others]
    series = {s: [percent(c[name], totals[s]) or 0.0 for name in names] for s, c in counts.items()}
    return Bars(names, series, "% of the labels", f"Share of each {view.label}")


def source_panel(view: View, splits: Splits) -> Grid | None:
    """Return sources against labels, for the first split that has several sources."""
    for split, examples in splits.items():
        counts = _count_by_source(view, examples)
        if len(counts) > 1:
            names = list_labels(counts, view.label_order)
            values = [[percent(counter[name], counter.total()) or 0.0 for name in names] for counter in counts.values()]
            return make_percent_grid(
                f"{view.label.capitalize()} by source, {split}", list(counts), names, values, "% within the source"
            )
    return None


def ratio_panel(view: View, splits: Splits) -> Forest | None:
    """Return the ratio of the shares of each label in two splits, with its 95 % interval."""
    if len(splits) != 2:
        return None
    first, second = splits
    before, after = (count_labels(view, examples) for examples in splits.values())
    names = list_labels({first: before, second: after}, view.label_order)
    names = [name for name in names if before[name] and after[name]]
    values = [_compute_ratio(before[name], before.total(), after[name], after.total()) for name in names]
    title = f"Prior shift: {view.label} in {second} against {first}"
    label = f"share in {second} / share in {first}, with 95 % interval"
    return Forest(names, values, label, levels=[("", 1.0)], title=title, is_ratio=True) if names else None


def _compute_ratio(a: int, n: int, b: int, m: int) -> tuple[float, float, float]:
    """Return the ratio of two shares and its interval by the normal approximation of its logarithm."""
    ratio = (b / m) / (a / n)
    width = 1.96 * math.sqrt(max(1 / a - 1 / n + 1 / b - 1 / m, 0))
    return ratio * math.exp(-width), ratio, ratio * math.exp(width)


def percentile(ordered: Sequence[int], share: int) -> int:
    """Return the smallest of the sorted values that at least this share (in %) of them do not exceed."""
    return ordered[max(-(-share * len(ordered) // 100) - 1, 0)]


def length_table(view: View, splits: Splits) -> Table:
    """Return percentiles of every length in each split."""
    rows: list[tuple[object, ...]] = []
    for name, length in view.lengths.items():
        for split, examples in splits.items():
            if values := sorted(length.measure(examples)):
                percentiles = [percentile(values, share) for share in _PERCENTILES]
                rows.append((name, length.unit, split, *percentiles, values[-1], sum(values) / len(values)))
    columns = ("length of", "in", "split", *(f"p{share}" for share in _PERCENTILES), "max", "mean")
    return Table("Lengths", columns, rows, "pN: N % are not longer than this.")


def length_panel(view: View, splits: Splits) -> Chart:
    """Return the cumulative shares of the lengths of texts, up to the 99th percentile."""
    measured = {
        (name, split): sorted(length.measure(examples))
        for name, length in view.lengths.items()
        for split, examples in splits.items()
        if length.is_text
    }
    measured = {key: values for key, values in measured.items() if values}
    points = {key: cumulative_shares(drop_longest(values), len(values)) for key, values in measured.items()}
    medians = [percentile(values, 50) for values in measured.values()]
    is_wide = max(medians) > 5 * max(min(medians), 1)  # such as a passage and an answer
    labels = "characters", "% not longer than this"
    return Chart(split_curves(points, "steps"), *labels, title="Lengths of texts", from_zero=True, log_x=is_wide)


def drop_longest(ordered: Sequence[int]) -> Sequence[int]:
    """Return the sorted values without the longest percent."""
    return ordered[: -(-99 * len(ordered) // 100)]


def cumulative_shares(ordered: Sequence[int], total: int | None = None) -> list[tuple[float, float]]:
    """Return every value that occurs, with the % of values up to it."""
    counts = Counter(ordered)
    running = accumulate(counts.values())
    return [(value, 100 * count / (total or len(ordered))) for value, count in zip(counts, running, strict=True)]


_EMOJI = (
    "\U0001f000-\U0001faff⌚⌛⏩-⏬⏰⏳◽◾"
    "☔☕♈-♓♿⚓⚡⚪⚫⚽⚾⛄⛅⛎⛔⛪⛲⛳⛵⛺⛽✅✊✋✨❌❎❓-❕❗➕-➗➰➿⬛⬜⭐⭕"
)
_RANGES = {
    "emoji": _EMOJI,
    "conjoining jamo": "\u1100-\u115e\u1161-\u11ff\ua960-\ua97c\ud7b0-\ud7fb",
    "compatibility jamo": "\u3131-\u3163\u3165-\u318e",
    "CJK ideographs": "\u2e80-\u2fd5\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "full- and half-width forms": "\uff01-\uff9f\uffa1-\uffef",
    "replacement character": "\ufffd",
    "private use": "\ue000-\uf8ff\U000f0000-\U0010fffd",
}
_PATTERNS = {name: re.compile(f"[{characters}]") for name, characters in _RANGES.items()}
_INVISIBLE = "\u115f\u1160\u3164\uffa0\u034f"  # Hangul fillers and the grapheme joiner, which are letters by category
_WHITE_SPACE, _CONTROL = "white space other than U+0020", "zero-width and control"
_NORMAL_FORMS: tuple[Literal["NFC"], Literal["NFKC"]] = ("NFC", "NFKC")


def classify_character(character: str) -> str | None:
    """Return the class of an unusual character; None for usual ones."""
    if character.isspace():
        return None if character == " " else _WHITE_SPACE
    if character in _INVISIBLE or "\ufe00" <= character <= "\ufe0f" or unicodedata.category(character) in ("Cc", "Cf"):
        return _CONTROL
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(character)), None)


def character_table(view: View, splits: Splits) -> Table:
    """Return the unusual characters of each split: how many, in how many rows, which, and one example."""
    by_split = {split: _count_split(view, split, examples) for split, examples in splits.items()}
    names = (*_RANGES, _CONTROL, _WHITE_SPACE, *(f"{form} would change" for form in _NORMAL_FORMS))
    rows = [by_split[split][name] for name in names for split in splits if name in by_split[split]]
    absent = [name for name in names if not any(name in each for each in by_split.values())]
    columns = ("kind", "split", "characters", "rows", "rows %", "most frequent", "for example")
    return Table("Unusual characters", columns, rows, f"None: {', '.join(absent)}." if absent else "")


def _count_split(view: View, split: str, examples: Sequence[Any]) -> dict[str, tuple[object, ...]]:
    """Return class of characters -> its row; classes that do not occur are left out."""
    texts = [" ".join(view.texts(example)) for example in examples]
    counter = Counter("".join(texts))
    classes: dict[str, list[str]] = defaultdict(list)
    for character in counter:
        if (name := classify_character(character)) is not None:
            classes[name].append(character)
    rows: dict[str, tuple[object, ...]] = {}

    def add_row(name: str, count: int | None, positions: Sequence[int], characters: Iterable[str]) -> None:
        top = ", ".join(map(_show_character, sorted(characters, key=lambda c: -counter[c])[:3])) or None
        share, guid = percent(len(positions), len(examples)), examples[positions[0]].guid
        rows[name] = (name, split, count, len(positions), share, top, guid)

    for name, characters in classes.items():
        search = re.compile(f"[{re.escape(''.join(characters))}]").search
        positions = [position for position, text in enumerate(texts) if search(text)]
        add_row(name, sum(counter[character] for character in characters), positions, characters)
    for form in _NORMAL_FORMS:
        if positions := [position for position, text in enumerate(texts) if not unicodedata.is_normalized(form, text)]:
            changed = [c for c in counter if not unicodedata.is_normalized(form, c)]
            add_row(f"{form} would change", None, positions, changed)
    return rows


def _show_character(character: str) -> str:
    """Return the character if it is visible, its code point if not, and both if it looks like another."""
    code = f"U+{ord(character):04X}"
    is_visible = character.isprintable() and character not in _INVISIBLE and unicodedata.category(character) != "Mn"
    if not is_visible or "\u1160" <= character <= "\u11ff":  # vowels and finals attach to the character before
        return code
    is_ambiguous = unicodedata.decomposition(character) or "\u1100" <= character <= "\u115f"
    return f"{character} {code}" if is_ambiguous else character
