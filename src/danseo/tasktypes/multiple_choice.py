"""Multiple choice: which of several candidates goes with a text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from danseo.errors import DataError
from danseo.metrics.classification import accuracy, label_macro_f1
from danseo.metrics.statistic import Metric, index_metrics
from danseo.records import ChoiceExample
from danseo.rows import Row
from danseo.tasktypes.base import Examples, Golds, IsKnown, Statistics, Task
from danseo.tasktypes.classification import Classification
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import Input, read_cell, read_guid, read_label, read_optional_cell
from danseo.text.perturbations import Change


class MultipleChoice(Classification):
    """A text with candidates; the answer is the label of one of them."""

    name = "multiple_choice"
    has_pairs = False
    related = "classification"
    augmentations: ClassVar[tuple[str, ...]] = ()
    custom_title = "multiple choice"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("choose/accuracy@1", "share of right choices"),
        Metric("choose/macro_f1@1", "mean F1 over the places of the candidates", average="macro"),
    )
    required_columns: ClassVar[tuple[str, ...]] = ("text", "label", "choices")

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        return ChoiceExample(guid, text, tuple(text[: k + 1] for k in range(len(task.labels))), "")

    def request_fields(self, task: Task) -> dict[str, Any]:
        custom = task.custom
        if custom is None:
            return {}
        pair = {"pair": custom.pair} if custom.pair else {}
        return {"text": custom.text, **pair, "choices": list(custom.choices)}

    def change_texts(self, example: Any, change: Change) -> Any:
        choices = tuple(change(each, ()).text for each in example.choices)
        return replace(example, text=change(example.text, ()).text, choices=choices)

    def list_texts(self, task: Task, example: Any) -> list[tuple[str, str]]:
        return [("text", example.text), *zip(task.labels, example.choices, strict=True)]

    # Custom tasks

    def custom_input(self, description: TaskDescription) -> Input:
        names = ", ".join(filter(None, (description.text or "text", description.pair, *description.choices)))
        return Input(names, lambda row, guid: read_choices(row, guid, description))

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        gold, guid = read_label(row, description, is_known), read_guid(row, number, description)
        return replace(
            read_choices(row, guid, description), gold=gold, source=read_optional_cell(row, description.group)
        )

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        return {"choose/accuracy@1": accuracy(golds, answers), "choose/macro_f1@1": label_macro_f1(golds, answers)}

    def check_labels(self, names: Sequence[str], train: Counter[str], description: TaskDescription) -> None:
        if len(names) != len(description.choices):
            labels, count = ", ".join(names[:10]), len(description.choices)
            raise DataError(
                f"{description.train}: {count} choices, but {len(names)} labels ({labels}); write one label per choice"
            )

    def describe_columns(self, description: TaskDescription) -> list[tuple[object, ...]]:
        return [("candidates", f"columns {', '.join(description.choices)}")]


def read_choices(row: Row, guid: str, description: TaskDescription) -> ChoiceExample:
    """Return the text (with the second one appended, if there are two) and its candidates."""
    text, pair = read_cell(row, description.text), read_optional_cell(row, description.pair)
    choices = tuple(read_cell(row, key) for key in description.choices)
    return ChoiceExample(guid, text=f"{text} {pair}" if pair else text, choices=choices, gold="")


TYPE = MultipleChoice()
