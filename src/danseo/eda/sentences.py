"""Single texts and pairs of texts, with labels or with numbers."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from danseo.display.table import Table
from danseo.eda.counting import checks_table, distribution_table, tally
from danseo.eda.labels import ratio_panel, source_panel
from danseo.eda.lengths import cumulated, percentile
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Key, Loosen, Splits, View, characters
from danseo.records import TextExample
from danseo.tasks.task import Task

SIMILAR = 3.0  # KLUE calls a pair from here on a paraphrase
_SETS = 12
_BINS = tuple(f"{k / 2:g}–{(k + 1) / 2:g}" for k in range(10))


def score_bin(score: float) -> str:
    """The half point that a score falls in; 3.0 opens 3–3.5, and 5 belongs to the last."""
    return _BINS[min(max(int(score * 2), 0), len(_BINS) - 1)]


def _pair_key(example: TextExample, loose: Loosen) -> Key:
    return loose(example.text), loose(example.pair or "")


def _swapped(example: TextExample, loose: Loosen) -> Key:
    return loose(example.pair or ""), loose(example.text)


def _pair_texts(example: TextExample) -> tuple[str, ...]:
    return example.text, example.pair or ""


def _pair_checks(checks: Any, splits: Splits) -> list[Table]:
    tallies = [(name, "rows", {s: tally(examples, test) for s, examples in splits.items()}) for name, test in checks]
    return [checks_table("Pairs", tallies)]


def overlap(example: TextExample) -> int:
    """How much of the second text is copied: the % of its pairs of neighbouring characters that the first has, too."""
    premise, hypothesis = (text.replace(" ", "") for text in _pair_texts(example))
    pairs = {hypothesis[k : k + 2] for k in range(len(hypothesis) - 1)}
    return 100 * sum(pair in premise for pair in pairs) // len(pairs) if pairs else 0


def _overlaps(splits: Splits, labels: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    """Label and split -> the overlap of every pair, in order."""
    found: dict[tuple[str, str], list[int]] = {(label, split): [] for label in labels for split in splits}
    for split, examples in splits.items():
        for example in examples:
            found[example.gold, split].append(overlap(example))
    return {key: sorted(values) for key, values in found.items() if values}


def overlap_table(splits: Splits, task: Task) -> Table:
    """Does copying give the label away?"""
    rows: list[tuple[object, ...]] = [
        (label, split, *(percentile(values, share) for share in (10, 50, 90)), sum(values) / len(values))
        for (label, split), values in _overlaps(splits, task.labels).items()
    ]
    note = "Counted in pairs of neighbouring characters, spaces left out."
    return Table(_copied(task), ("label", "split", "p10", "p50", "p90", "mean"), rows, note)


def _copied(task: Task) -> str:
    first, second = task.parts
    return f"% of the {second} that is in the {first}"


def overlap_panel(splits: Splits, task: Task) -> Lines:
    """The same as curves: the further a label lies to the right, the more it copies."""
    lines = [Line(*key, cumulated(values)) for key, values in _overlaps(splits, task.labels).items()]
    x_label = f"{_copied(task)} (pairs of characters)"
    title = f"How much a {task.parts[1]} copies"
    return Lines(title, lines, x_label, "% that copy no more than this", steps=True)


_SAME = ("the two sentences are the same", lambda example: example.text == example.pair)
_WITHIN = ("one sentence holds the other", lambda e: e.text != e.pair and (e.text in e.pair or e.pair in e.text))


def text_view(task: Task) -> View:
    """One text with a label."""
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        texts=lambda example: (example.text,),
        lengths={task.parts[0]: characters(lambda example: example.text)},
        key=lambda example, loose: (loose(example.text),),
        label_order=task.labels,
        panel=lambda splits: ratio_panel(view, splits),
    )
    return view


def several_view(task: Task) -> View:
    """One text or two with any number of labels."""
    view = View(
        label=task.label_word,
        unit="label of a row",
        labels=lambda example: example.gold,
        label_order=task.labels,
        tables=_together,
        panel=lambda splits: ratio_panel(view, splits),
        **_parts(task),
    )
    return view


def _together(splits: Splits) -> list[Table]:
    """How many labels rows have, and which come together."""
    sizes = {split: Counter(str(len(example.gold)) for example in examples) for split, examples in splits.items()}
    sets = {split: Counter(" + ".join(e.gold) or "(none)" for e in examples) for split, examples in splits.items()}
    shown = {name for counter in sets.values() for name, _ in counter.most_common(_SETS)}
    kept = {s: Counter({name: counter[name] for name in shown}) for s, counter in sets.items()}
    kept = {s: counter + Counter({"(others)": sets[s].total() - counter.total()}) for s, counter in kept.items()}
    note = f"The {_SETS} most frequent of each split, of {len(set().union(*sets.values())):,}."
    return [
        distribution_table("Labels per row", "labels", sizes, independent=True),
        distribution_table("Labels together", "labels of a row", kept, independent=False, note=note),
    ]


def number_view(task: Task) -> View:
    """One text or two with a number; the numbers in steps from the scale of the task."""
    low, high = task.scale
    step = (high - low) / len(_BINS)
    names = tuple(f"{low + k * step:g}–{low + (k + 1) * step:g}" for k in range(len(_BINS)))
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (names[min(max(int((example.gold - low) / step), 0), len(names) - 1)],),
        label_order=names,
        tables=partial(_pair_checks, _number_checks(task)) if task.form == "pair" else lambda splits: [],
        panel=lambda splits: source_panel(view, splits),
        **_parts(task),
    )
    return view


def _number_checks(task: Task) -> list[Any]:
    similar = [] if task.own else [(f"score of {SIMILAR} or more", lambda example: example.gold >= SIMILAR)]
    return [*similar, _SAME, _WITHIN]


def pair_view(task: Task) -> View:
    """Two texts with a label."""
    return View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        label_order=task.labels,
        tables=lambda splits: [overlap_table(splits, task), *_pair_checks([_SAME, _WITHIN], splits)],
        panel=lambda splits: overlap_panel(splits, task),
        **_parts(task),
    )


def _parts(task: Task) -> dict[str, Any]:
    """What a view looks at in one text, or in two."""
    if task.form == "text":
        return {
            "texts": lambda example: (example.text,),
            "lengths": {task.parts[0]: characters(lambda example: example.text)},
            "key": lambda example, loose: (loose(example.text),),
        }
    first, second = task.parts
    return {
        "texts": _pair_texts,
        "lengths": {
            first: characters(lambda example: example.text),
            second: characters(lambda example: example.pair),
        },
        "key": _pair_key,
        "swapped": _swapped,
        "swapping": "pair, sentences exchanged",
        "shared": lambda example: example.text,
        "sharing": first,
    }
