"""Regression: a number for a text or a pair of texts, such as a similarity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from danseo.display.table import Table
from danseo.errors import DataError
from danseo.files import quote
from danseo.language import _
from danseo.metrics.regression import pearson
from danseo.metrics.statistic import Metric, index_metrics
from danseo.records import Prediction
from danseo.rows import Row
from danseo.tasktypes.base import (
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    Predictions,
    Splits,
    Statistics,
    Systems,
    Task,
    TextTaskType,
    answers_of,
    golds_of,
)
from danseo.tasktypes.combination import Combined, Combiner, Members, normalize_weights
from danseo.tasktypes.decoding import Array
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import read_cell
from danseo.tasktypes.rendering import EarlierTurns, RenderedExample, plain_line

_BANDS = 5
_CLOSE = 0.5
_MAX_NUMBER = 1e300


class Regression(TextTaskType):
    """The answer is a number."""

    name = "regression"
    hub_pipeline = "sentence-similarity"
    error_order = _("farthest off first")
    credit_note = _("a number counts as right when it is less than half a point off")
    custom_title = "scores of texts"
    custom_label_word = "score"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("score/pearson@1", "correlation with the gold numbers, times 100"),
        Metric("score/spearman@1", "correlation of the ranks, times 100; intervals keep the ranks of the whole file"),
    )
    required_columns: ClassVar[tuple[str, ...]] = ("text", "label")

    def validate(self, task: Task, example: Any, answer: Any) -> float:
        low, high = task.scale
        margin = _MAX_NUMBER if task.custom else high - low
        is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
        if not is_number or not low - margin <= answer <= high + margin:
            scale = "" if task.custom else f" from {low:g} to {high:g}"
            raise ValueError(f"the answer should be a number{scale}, not {quote(answer)}")
        return float(answer)

    # Baselines

    def most_frequent(self, golds: Sequence[Any]) -> Any:
        return sum(golds) / len(golds)

    def is_most_frequent(self, task: Task, value: Any) -> bool:
        return isinstance(value, float) and math.isfinite(value)

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        golds, answers = golds_of(examples), answers_of(predictions)
        sources = [example.source or "not known" for example in examples]
        low, high = task.scale
        step = (high - low) / _BANDS
        positions = [min(max(int((gold - low) / step), 0), _BANDS - 1) for gold in golds]
        bands = [f"{low + position * step:g}-{low + (position + 1) * step:g}" for position in positions]
        return [
            number_table("per source", sources, golds, answers),
            number_table("per gold score", bands, golds, answers),
        ]

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        error = float(prediction.answer) - example.gold
        if not error:
            return None
        gold, answer = f"{example.gold:.2f}", f"{prediction.answer:.2f} ({error:+.2f})"
        return ErrorDescription(abs(error), dict(self.list_texts(task, example)) | {"gold": gold, "answer": answer})

    def is_correct(self, example: Any, answer: Any) -> bool:
        return abs(float(answer) - float(example.gold)) < _CLOSE

    # Rendering, ensembles, prompts

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        lines = [*self.render_texts(task, example), plain_line("gold", _show_number(example.gold), "gold")]
        for name, prediction in answers.items():
            state = "right" if self.is_correct(example, prediction.answer) else "wrong"
            lines.append(plain_line(name, _show_number(prediction.answer), "answer", state))
        return RenderedExample(example.guid, tuple(lines))

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return NumberCombiner(members, method)

    def group_shots(self, example: Any) -> str:
        return str(int(example.gold))

    # Custom tasks

    def read_gold(self, row: Row, description: TaskDescription, is_known: IsKnown) -> Any:
        value = read_cell(row, description.label)
        try:
            gold = float(value)
        except ValueError:
            gold = math.nan
        if not math.isfinite(gold):
            raise row.error(f"column {description.label!r} should be a number, not {quote(value)}")
        return gold

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        from scipy.stats import rankdata

        ranks = [np.asarray(rankdata(side)).tolist() for side in (golds, answers)]
        return {"score/pearson@1": pearson(golds, answers), "score/spearman@1": pearson(ranks[0], ranks[1])}

    def learn_labels(self, description: TaskDescription, splits: Splits) -> TaskDescription:
        golds = [example.gold for examples in splits.values() for example in examples]
        low, high = min(golds, default=math.inf), max(golds, default=-math.inf)
        if not low < high:
            raise DataError(
                f"{description.train}: column {description.label!r} holds only one number; there is nothing to learn"
            )
        return replace(description, scale=(low, high))

    def label_counts(self, task: Task, splits: Splits) -> Table:
        numbers = [golds_of(examples) for examples in splits.values()]
        rows: list[tuple[object, ...]] = [
            ("least", *map(min, numbers)),
            ("greatest", *map(max, numbers)),
            ("mean", *(sum(values) / len(values) for values in numbers)),
        ]
        return Table("numbers", (task.label_word, "train", "dev"), rows)


def _show_number(number: Any) -> str:
    return f"{number:.2f}" if isinstance(number, float) else str(number)


def number_table(title: str, keys: Sequence[str], golds: Sequence[float], answers: Sequence[float]) -> Table:
    """Return the correlation and the errors of each group of examples."""
    rows: list[tuple[object, ...]] = []
    for key in sorted(set(keys)):
        gold, answer = (np.array([v for v, k in zip(side, keys, strict=True) if k == key]) for side in (golds, answers))
        error = answer - gold
        rows.append(
            (key, len(gold), pearson(list(gold), list(answer)).value(), float(error.mean()), float(abs(error).mean()))
        )
    return Table(title, (title.removeprefix("per "), "n", "Pearson", "mean error", "mean |error|"), rows)


class NumberCombiner(Combiner):
    """Returns the weighted median for votes, and the mean for every other method."""

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        self.table = np.array([[float(p.answer) for p in m.predictions] for m in members.members])

    def __call__(self, weights: Array) -> Combined:
        normal = normalize_weights(weights)
        numbers = weighted_median(self.table, normal) if self.method == "vote" else normal @ self.table
        return [Prediction(g, round(n, 6)) for g, n in zip(self.guids, numbers.tolist(), strict=True)], None


def weighted_median(table: Array, weights: Array) -> Array:
    """Return the weighted median of every column: half of the weight is on either side; between two, their middle."""
    order = table.argsort(axis=0, kind="stable")
    sorted_, before = np.take_along_axis(table, order, axis=0), np.cumsum(weights[order], axis=0)
    columns = np.arange(table.shape[1])
    low = sorted_[(before < 0.5 - 1e-9).sum(axis=0), columns]
    high = sorted_[np.minimum((before < 0.5 + 1e-9).sum(axis=0), len(table) - 1), columns]
    middle: Array = (low + high) / 2
    return middle


TYPE = Regression()
