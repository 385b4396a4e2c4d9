"""Classification: one of the task's labels for a text or a pair of texts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from danseo.display.table import Table
from danseo.errors import DataError
from danseo.files import quote
from danseo.language import Message, _
from danseo.metrics.classification import accuracy, label_macro_f1, make_curves
from danseo.metrics.statistic import Metric, index_metrics
from danseo.records import Prediction
from danseo.rows import Row
from danseo.tasktypes.base import (
    NO_LABEL,
    Confidences,
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    OutputRow,
    Predictions,
    Rows,
    Statistics,
    Systems,
    Task,
    TextTaskType,
    answers_of,
    golds_of,
)
from danseo.tasktypes.combination import Combined, Combiner, Members, count_votes, normalize_weights
from danseo.tasktypes.decoding import Array
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import read_label
from danseo.tasktypes.rendering import (
    MAX_CONFUSIONS,
    MAX_MATRIX,
    NOTHING,
    EarlierTurns,
    RenderedExample,
    confusion_table,
    found_table,
    plain_line,
    show_confidence,
    show_percent,
    source_tables,
    zip_counts,
)

_SMALLEST = 1e-7  # replaces a probability of 0, which may come from a file with six decimals
_TIE_BREAK = 1e-9  # the answers decide between probabilities that rounding made equal


class Classification(TextTaskType):
    """One label per example; relation extraction and multiple choice differ only in their inputs."""

    name = "classification"
    has_single_label = True
    has_label_probabilities = True
    augmentations: ClassVar[tuple[str, ...]] = ("aeda",)
    hub_pipeline = "text-classification"
    error_order = _("most confident first")
    ranks_by_confidence = True
    csv_columns: ClassVar[tuple[str, ...]] = ("answer", "confidence")
    custom_title = "text classification"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("classify/macro_f1@1", "mean F1 over the labels that occur", average="macro"),
        Metric("classify/accuracy@1", "share of right labels"),
    )
    required_columns: ClassVar[tuple[str, ...]] = ("text", "label")

    def validate(self, task: Task, example: Any, answer: Any) -> str:
        if not isinstance(answer, str) or answer not in (*task.labels, NO_LABEL):
            raise ValueError(
                _("unknown label {label}; known: {names}").format(label=quote(answer), names=", ".join(task.labels))
            )
        return answer

    # Baselines

    def most_frequent(self, golds: Sequence[Any]) -> Any:
        return Counter(golds).most_common(1)[0][0]

    def is_most_frequent(self, task: Task, value: Any) -> bool:
        return value in task.labels

    def chance_level(self, task: Task, examples: Sequence[Any]) -> float:
        return 100 / len(task.labels)

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        golds, answers = golds_of(examples), answers_of(predictions)
        right = Counter(gold for gold, answer in zip(golds, answers, strict=True) if gold == answer)
        counts = zip_counts(task.labels, right, Counter(answers), Counter(golds))
        per_label = add_average_precision(found_table("per label", "label", counts), task, golds, predictions)
        tables = [per_label, confusion_table(task.labels, golds, answers)]
        if len(task.labels) > MAX_MATRIX:
            tables.append(hardest_pairs(golds, answers))
        if task.nothing:
            word = task.label_word
            none = f"no {word}"
            sides = [[none if label == task.nothing else word for label in rows] for rows in (golds, answers)]
            tables.append(
                confusion_table(
                    (word, none), sides[0], sides[1], title=_("is there a {word}?").format(word=Message(word))
                )
            )
        return [*tables, *source_tables(task, examples, predictions)]

    def confidences(self, task: Task, examples: Examples, predictions: Predictions, rows: Rows) -> Confidences | None:
        values = [(prediction.probabilities or {}).get(prediction.answer, 0.0) for prediction in predictions]
        correct = [p.answer == e.gold for e, p in zip(examples, predictions, strict=True)]
        return Confidences("answers", np.array(values), np.array(correct))

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        if prediction.answer == example.gold:
            return None
        confidence = (prediction.probabilities or {}).get(prediction.answer)
        answer = show_confidence(prediction.answer, confidence)
        parts = dict(self.list_texts(task, example)) | {"gold": example.gold, "answer": answer}
        return ErrorDescription(confidence or 0.0, parts)

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        lines = [*self.render_texts(task, example), plain_line("gold", str(example.gold), "gold")]
        for name, prediction in answers.items():
            confidence = (prediction.probabilities or {}).get(prediction.answer)
            text = (str(prediction.answer) or NOTHING) + show_percent(confidence)
            state = "right" if self.is_correct(example, prediction.answer) else "wrong"
            lines.append(plain_line(name, text, "answer", state))
        given = [_("answer: {label}").format(label=str(p.answer) or NOTHING) for p in answers.values()]
        return RenderedExample(
            example.guid, tuple(lines), (_("gold: {label}").format(label=example.gold), *dict.fromkeys(given))
        )

    # Ensembles and output

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return LabelCombiner(members, method)

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        if not prediction.probabilities:
            return {"answer": prediction.answer}
        probabilities = dict(prediction.probabilities)
        return {"answer": prediction.answer, "confidence": max(probabilities.values()), "probabilities": probabilities}

    def group_shots(self, example: Any) -> str:
        return str(example.gold)

    # Custom tasks

    def read_gold(self, row: Row, description: TaskDescription, is_known: IsKnown) -> Any:
        return read_label(row, description, is_known)

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        return {"classify/macro_f1@1": label_macro_f1(golds, answers), "classify/accuracy@1": accuracy(golds, answers)}

    def find_labels(self, gold: Any) -> Iterable[str]:
        return (gold,)

    def rename_labels(self, answer: Any, names: Mapping[str, str]) -> Any:
        return names.get(answer, NO_LABEL)

    def stratify(self, gold: Any) -> str:
        return str(gold)

    def check_labels(self, names: Sequence[str], train: Counter[str], description: TaskDescription) -> None:
        if len(train) < 2:
            what = f"all {train.total():,} examples are {names[0]}, but two labels are needed"
            raise DataError(f"{description.train}: {what}; is {description.label} the right column?")


def label_shares(examples: Sequence[Any]) -> dict[str, float]:
    """Return each label that occurs in gold -> its share of the examples."""
    golds = ((example.gold,) if isinstance(example.gold, str) else example.gold for example in examples)
    counts = Counter(label for gold in golds for label in gold)
    return {label: count / len(examples) for label, count in counts.items()}


def add_average_precision(table: Table, task: Task, golds: list[Any], predictions: Sequence[Prediction]) -> Table:
    """Return the table with the average precision of each label, if all predictions have probabilities."""
    probabilities = [prediction.probabilities for prediction in predictions if prediction.probabilities is not None]
    if len(probabilities) < len(predictions):
        return table
    areas = make_curves(golds, probabilities, task.labels).plain[1][:, 0]
    values = {label: None if np.isnan(area) else 100 * area for label, area in zip(task.labels, areas, strict=True)}
    rows = [(*row, values[str(row[0])]) for row in table.rows]
    return replace(table, columns=(*table.columns, "AP"), rows=rows, note=_("AP: average precision, by probabilities"))


def hardest_pairs(golds: Sequence[str], answers: Sequence[str]) -> Table:
    """Return the pairs of labels that are confused most, either way, as a share of the golds of both."""
    pairs = Counter(frozenset(pair) for pair in zip(golds, answers, strict=True) if pair[0] != pair[1] and pair[1])
    gold = Counter(golds)
    ranked = sorted(pairs.items(), key=lambda item: (-item[1] / sum(gold[label] for label in item[0]), sorted(item[0])))
    rows: list[tuple[object, ...]] = []
    for pair, count in [(pair, count) for pair, count in ranked if count > 1][:MAX_CONFUSIONS]:
        one, other = sorted(pair, key=lambda label: (-gold[label], label))
        rows.append((one, other, gold[one] + gold[other], count, 100 * count / (gold[one] + gold[other])))
    note = _("mistakes either way, made more than once, as a share of the golds of both labels")
    return Table("hardest pairs of labels", ("label", "and", "gold", "confused", "%"), rows, note)


class LabelCombiner(Combiner):
    """Averages probabilities, or counts votes; logit and logprob are the same once normalized."""

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        positions = {label: position for position, label in enumerate(self.labels)}
        self.votes = [np.array([positions[p.answer] for p in m.predictions]) for m in members.members]
        self.tables = self.read_probabilities()

    def __call__(self, weights: Array) -> Combined:
        normal = normalize_weights(weights)
        votes = count_votes(self.votes, self.weight_votes(normal), len(self.labels))
        if self.tables is None:
            probabilities = votes / votes.sum(axis=1, keepdims=True)
        else:
            probabilities = self._average(self.tables, normal)
        decisive = votes if self.method == "vote" else probabilities + _TIE_BREAK * votes
        rows = zip(self.guids, decisive.argmax(axis=1).tolist(), probabilities.tolist(), strict=True)
        return [Prediction(g, self.labels[k], dict(zip(self.labels, row, strict=True))) for g, k, row in rows], None

    def _average(self, tables: Array, weights: Array) -> Array:
        """Return the mean of the probabilities or, for logs, the normalized mean of logs; votes rank by the mean."""
        if self.method in ("prob", "vote"):
            return np.tensordot(weights, tables, axes=1)
        least = np.where(tables > 0, tables, _SMALLEST).min(axis=(1, 2), keepdims=True)
        table = np.exp(np.tensordot(weights, np.log(np.maximum(tables, least)), axes=1))
        normal: Array = table / table.sum(axis=1, keepdims=True)
        return normal


TYPE = Classification()
