"""Multilabel classification: any number of the task's labels for a text or a pair of texts."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from danseo.display.table import Table
from danseo.errors import DataError
from danseo.files import quote
from danseo.language import _
from danseo.metrics.classification import set_counts
from danseo.metrics.statistic import Counts, Metric, index_metrics, mean, micro_f1_or_zero
from danseo.records import Prediction
from danseo.rows import Row
from danseo.tasktypes.base import (
    Confidences,
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    OutputRow,
    Predictions,
    Rows,
    Splits,
    Statistics,
    Systems,
    Task,
    TextTaskType,
)
from danseo.tasktypes.classification import label_shares
from danseo.tasktypes.combination import Combined, Combiner, Members, label_table, normalize_weights
from danseo.tasktypes.decoding import Array, fit_label_threshold
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import check_known, normalize_label, read_cell
from danseo.tasktypes.rendering import (
    MAX_CONFUSIONS,
    NOTHING,
    EarlierTurns,
    RenderedExample,
    RenderedLine,
    TextSpan,
    compare_sets,
    count_sets,
    found_table,
    join_parts,
    note_most_frequent,
    percent,
    plain_line,
    show_confidence,
    show_percent,
    source_tables,
    zip_counts,
)

_SMALLEST = 1e-7  # replaces probabilities of 0 and 1, whose logits are infinite
_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class Multilabel(TextTaskType):
    """The answer is a tuple of labels, in the task's order."""

    name = "multilabel"
    has_label_probabilities = True
    related = "classification"
    hub_pipeline = "text-classification"
    legend = _("✓ right, − missed, ✗ wrong")
    csv_columns: ClassVar[tuple[str, ...]] = ("answer", "confidence")
    custom_title = "texts with several labels"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("labels/micro_f1@1", "F1 pooled over all labels"),
        Metric("labels/macro_f1@1", "mean F1 over the labels that occur", average="macro"),
        Metric("labels/subset_accuracy@1", "share of the texts with exactly the gold labels", average="subset"),
    )
    required_columns: ClassVar[tuple[str, ...]] = ("text",)

    def validate(self, task: Task, example: Any, answer: Any) -> tuple[str, ...]:
        if not isinstance(answer, list | tuple):
            raise ValueError(_("the answer should be a list of labels, not {answer}").format(answer=quote(answer)))
        if unknown := [label for label in answer if label not in task.labels]:
            text = _("unknown label {label}; known: {names}")
            raise ValueError(text.format(label=quote(unknown[0]), names=", ".join(task.labels[:30])))
        if len(set(answer)) < len(answer):
            raise ValueError("a label is in the answer twice; keep one")
        return tuple(label for label in task.labels if label in answer)

    # Baselines

    def most_frequent(self, golds: Sequence[Any]) -> Any:
        return Counter(golds).most_common(1)[0][0]

    def is_most_frequent(self, task: Task, value: Any) -> bool:
        return isinstance(value, tuple) and all(label in task.labels for label in value)

    def chance_level(self, task: Task, examples: Sequence[Any]) -> float:
        shares = label_shares(examples).values()
        return 100 * sum(share * share for share in shares) / max(1e-9, sum(shares))

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        pairs = [(set(e.gold), set(p.answer)) for e, p in zip(examples, predictions, strict=True)]
        per_label = found_table("per label", "label", zip_counts(task.labels, *count_sets(pairs)))
        tables = [per_label, count_table(pairs), confused_labels(pairs)]
        return [*tables, *source_tables(task, examples, predictions)]

    def confidences(self, task: Task, examples: Examples, predictions: Predictions, rows: Rows) -> Confidences | None:
        chances = np.array(label_table(predictions, task.labels))
        golds = np.array([[label in example.gold for label in task.labels] for example in examples])
        values = np.maximum(chances, 1 - chances).ravel()
        return Confidences("labels, whether a text has them", values, ((chances >= 0.5) == golds).ravel())

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        gold, answer = set(example.gold), set(prediction.answer)
        if gold == answer:
            return None
        chances = prediction.probabilities or {}
        answered = join_parts(show_confidence(label, chances.get(label)) for label in prediction.answer)
        parts = dict(self.list_texts(task, example)) | {"gold": join_parts(example.gold), "answer": answered}
        return ErrorDescription(float(len(gold ^ answer)), parts)

    def is_correct(self, example: Any, answer: Any) -> bool:
        return set(answer) == set(example.gold)

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        lines = [*self.render_texts(task, example), plain_line("gold", ", ".join(example.gold) or NOTHING, "gold")]
        wrong: set[str] = set()
        for name, prediction in answers.items():
            states = sorted(compare_sets(example.gold, prediction.answer), key=lambda pair: task.labels.index(pair[0]))
            chances = prediction.probabilities or {}
            spans = [TextSpan(label + show_percent(chances.get(label)), state=state) for label, state in states]
            lines.append(RenderedLine(name, tuple(spans) or (TextSpan(NOTHING, state="right"),), "state"))
            wrong |= {label for label, state in states if state != "right"}
        return RenderedExample(example.guid, tuple(lines), tuple(sorted(wrong)))

    # Ensembles and output

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return LabelSetCombiner(members, method)

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        if not prediction.probabilities:
            return {"answer": prediction.answer}
        chances = dict(prediction.probabilities)
        confidence = {label: chances[label] for label in prediction.answer}
        return {"answer": prediction.answer, "confidence": confidence, "probabilities": chances}

    # Custom tasks

    def check_description(self, description: TaskDescription) -> str:
        if problem := super().check_description(description):
            return problem
        if not description.label and len(description.labels) < 2:
            return "name the column of the labels (label), or the columns that hold 0 or 1 (labels)"
        return ""

    def read_gold(self, row: Row, description: TaskDescription, is_known: IsKnown) -> Any:
        labels = _read_label_list(row, description) if description.label else _read_flags(row, description)
        names = {check_known(label, row, description, is_known) for label in labels}
        position = {label: number for number, label in enumerate(description.labels)}
        return tuple(sorted(names, key=lambda label: (position.get(label, 0), label)))

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        counts = set_counts(golds, answers, custom.labels)
        return {
            "labels/micro_f1@1": Counts(counts.table, micro_f1_or_zero),
            "labels/macro_f1@1": counts,
            "labels/subset_accuracy@1": mean([set(g) == set(a) for g, a in zip(golds, answers, strict=True)]),
        }

    def find_labels(self, gold: Any) -> Iterable[str]:
        return tuple(gold)

    def rename_labels(self, answer: Any, names: Mapping[str, str]) -> Any:
        return tuple(dict.fromkeys(names[label] for label in answer if label in names))

    def stratify(self, gold: Any) -> str:
        return ", ".join(gold)

    def check_labels(self, names: Sequence[str], train: Counter[str], description: TaskDescription) -> None:
        if len(train) < 2:
            raise DataError(
                f"{description.train}: {names[0]} is the only label; write two or more, or type = classification"
            )

    def describe_columns(self, description: TaskDescription) -> list[tuple[object, ...]]:
        if description.label:
            return [("labels are lists, or have between them", description.label_separator)]
        return [("columns that hold 0 or 1", ", ".join(description.labels))]

    def count_oddities(self, splits: Splits) -> list[tuple[object, ...]]:
        return [("texts without any label", *(sum(not e.gold for e in examples) for examples in splits.values()))]


def _read_label_list(row: Row, description: TaskDescription) -> Iterator[str]:
    """Yield the labels of a list, of a JSON list, or of a text with a separator; an empty one has none."""
    key = description.label
    value = row.values.get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value if '"' in value else value.replace("'", '"'))
        except (ValueError, RecursionError):
            raise row.error(f"column {key!r} should be a list of labels, not {quote(value)}") from None
    if value is None and key in row.values:
        value = []
    items = value if isinstance(value, list) else read_cell(row, key).split(description.label_separator)
    for item in items:
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise row.error(f"column {key!r} should hold labels, not {quote(item)}")
        if label := normalize_label(str(item), description):
            yield label


def _read_flags(row: Row, description: TaskDescription) -> Iterator[str]:
    """Yield the labels whose columns hold 1."""
    for label in description.labels:
        flag = read_cell(row, label).strip().lower()
        if flag not in _FLAGS:
            raise row.error(f"column {label!r} should be 0 or 1, not {quote(flag)}")
        if _FLAGS[flag]:
            yield label


def count_table(pairs: Sequence[tuple[set[str], set[str]]]) -> Table:
    """Return whether too many labels are answered, or too few."""
    rows: list[tuple[object, ...]] = []
    for size in sorted({len(pair[0]) for pair in pairs}):
        mine = [(gold, answer) for gold, answer in pairs if len(gold) == size]
        answered = sum(len(pair[1]) for pair in mine) / len(mine)
        rows.append((size, len(mine), answered, percent(sum(gold == answer for gold, answer in mine), len(mine))))
    return Table("per number of gold labels", ("gold labels", "n", "answered labels", "exactly right %"), rows)


def confused_labels(pairs: Sequence[tuple[set[str], set[str]]]) -> Table:
    """Return which wrong label is answered if which one is missed."""
    wrong = Counter((g, a) for gold, answer in pairs for g in gold - answer for a in answer - gold).most_common()
    rows = [(gold, answer, count) for (gold, answer), count in wrong[:MAX_CONFUSIONS]]
    columns = ("missed", "answered instead", "count")
    return Table("confusion", columns, list(rows), note_most_frequent(len(wrong)))


class LabelSetCombiner(Combiner):
    """Averages the probability of each label, or votes on each; fits the threshold again on the select split."""

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        self.votes = np.array([[[n in p.answer for n in self.labels] for p in m.predictions] for m in members.members])
        probabilities = self.read_probabilities()
        self.tables = self.votes.astype(float) if probabilities is None else probabilities
        self.select = members.select_positions
        self.golds = np.array([[n in members.examples[position].gold for n in self.labels] for position in self.select])

    def __call__(self, weights: Array) -> Combined:
        if self.method == "vote":
            votes = normalize_weights(self.weight_votes(weights))
            counted = np.tensordot(votes, self.votes.astype(float), axes=1)
            table = np.tensordot(normalize_weights(weights), self.tables, axes=1)
            return self._predict(counted > 0.5, table), None
        table = self._average(normalize_weights(weights))
        if self.select:
            task = self.members.task
            self.threshold = fit_label_threshold(table[self.select], self.golds, task.metrics[task.headline].average)
        elif self.threshold is None:
            self.threshold = 0.5
        return self._predict(table > self.threshold, table), None

    def _average(self, weights: Array) -> Array:
        """Return the mean of the probabilities, or that of their logits."""
        if self.method == "prob":
            return np.tensordot(weights, self.tables, axes=1)
        chances = np.clip(self.tables, _SMALLEST, 1 - _SMALLEST)
        table: Array = 1 / (1 + np.exp(-np.tensordot(weights, np.log(chances) - np.log1p(-chances), axes=1)))
        return table

    def _predict(self, chosen: Array, table: Array) -> list[Prediction]:
        return [
            Prediction(
                guid,
                tuple(label for label, is_in in zip(self.labels, row, strict=True) if is_in),
                dict(zip(self.labels, chances, strict=True)),
            )
            for guid, row, chances in zip(self.guids, chosen.tolist(), table.tolist(), strict=True)
        ]


TYPE = Multilabel()
