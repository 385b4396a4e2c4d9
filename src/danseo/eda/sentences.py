"""Headlines and sentence pairs: ynat, sts, nli."""

from functools import partial
from typing import Any

from danseo.display.table import Table
from danseo.eda.counting import checks_table, tally
from danseo.eda.labels import ratio_panel, source_panel
from danseo.eda.lengths import cumulated, percentile
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Key, Loosen, Splits, View, characters
from danseo.records import TextExample
from danseo.tasks import nli, ynat

SIMILAR = 3.0  # KLUE calls a pair from here on a paraphrase
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
    """How much of the hypothesis is copied: the % of its pairs of neighbouring characters that the premise has, too."""
    premise, hypothesis = (text.replace(" ", "") for text in _pair_texts(example))
    pairs = {hypothesis[k : k + 2] for k in range(len(hypothesis) - 1)}
    return 100 * sum(pair in premise for pair in pairs) // len(pairs) if pairs else 0


def _overlaps(splits: Splits) -> dict[tuple[str, str], list[int]]:
    """Label and split -> the overlap of every pair, in order."""
    found: dict[tuple[str, str], list[int]] = {(label, split): [] for label in nli.LABELS for split in splits}
    for split, examples in splits.items():
        for example in examples:
            found[example.gold, split].append(overlap(example))
    return {key: sorted(values) for key, values in found.items() if values}


def overlap_table(splits: Splits) -> Table:
    """Does copying give the label away?"""
    rows: list[tuple[object, ...]] = [
        (label, split, *(percentile(values, share) for share in (10, 50, 90)), sum(values) / len(values))
        for (label, split), values in _overlaps(splits).items()
    ]
    note = "Counted in pairs of neighbouring characters, spaces left out."
    return Table(
        "% of the hypothesis that is in the premise", ("label", "split", "p10", "p50", "p90", "mean"), rows, note
    )


def overlap_panel(splits: Splits) -> Lines:
    """The same as curves: the further a label lies to the right, the more it copies."""
    lines = [Line(*key, cumulated(values)) for key, values in _overlaps(splits).items()]
    x_label = "% of the hypothesis that is in the premise (pairs of characters)"
    return Lines("How much hypotheses copy", lines, x_label, "% that copy no more than this", steps=True)


_ALIKE = ("the two sentences are the same", lambda example: example.text == example.pair)
_WITHIN = ("one sentence holds the other", lambda e: e.text != e.pair and (e.text in e.pair or e.pair in e.text))

YNAT: View = View(
    label="topic",
    unit="row",
    labels=lambda example: (example.gold,),
    texts=lambda example: (example.text,),
    lengths={"title": characters(lambda example: example.text)},
    key=lambda example, loose: (loose(example.text),),
    label_order=ynat.LABELS,
    panel=lambda splits: ratio_panel(YNAT, splits),
)

STS: View = View(
    label="score",
    unit="row",
    labels=lambda example: (score_bin(example.gold),),
    texts=_pair_texts,
    lengths={
        "sentence 1": characters(lambda example: example.text),
        "sentence 2": characters(lambda example: example.pair),
    },
    key=_pair_key,
    swapped=_swapped,
    swapping="pair, sentences exchanged",
    shared=lambda example: example.text,
    sharing="sentence 1",
    label_order=_BINS,
    tables=partial(
        _pair_checks, [(f"score of {SIMILAR} or more", lambda example: example.gold >= SIMILAR), _ALIKE, _WITHIN]
    ),
    panel=lambda splits: source_panel(STS, splits),
)

NLI: View = View(
    label="label",
    unit="row",
    labels=lambda example: (example.gold,),
    texts=_pair_texts,
    lengths={
        "premise": characters(lambda example: example.text),
        "hypothesis": characters(lambda example: example.pair),
    },
    key=_pair_key,
    swapped=_swapped,
    swapping="pair, sentences exchanged",
    shared=lambda example: example.text,
    sharing="premise",
    label_order=nli.LABELS,
    tables=lambda splits: [overlap_table(splits), *_pair_checks([_ALIKE, _WITHIN], splits)],
    panel=overlap_panel,
)
