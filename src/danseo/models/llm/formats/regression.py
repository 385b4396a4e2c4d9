"""Regression prompts: a number on the scale of the task."""

from collections import Counter
from typing import Any, ClassVar

from danseo.models.llm.formats.base import (
    PromptFormat,
    Schema,
    list_labels,
    object_schema,
    read_key_value,
    to_compact_json,
)
from danseo.models.llm.prompt_template import PromptTemplate, fill_template
from danseo.models.llm.reply import MalformedReply, Reply
from danseo.records import TextExample
from danseo.tasktypes.base import Task

_MOST_STEPS = 200
"""If a scale has more steps, any number on it is allowed."""


class RegressionFormat(PromptFormat):
    """A number for a text or a pair of texts."""

    reply_tokens: ClassVar[int] = 16
    optional_fields: ClassVar = ("pair", "pair_json", "low", "high")

    def __init__(self, task: Task, config: Any, template: PromptTemplate) -> None:
        self.low, self.high = task.scale
        self.digits = 1 if self.high - self.low >= 2 else 2
        self.fields = ("text", "pair") if task.is_pair else ("text",)  # type: ignore[misc]
        super().__init__(task, config, template)

    def system_message(self) -> str:
        values = {"low": f"{self.low:g}", "high": f"{self.high:g}", "labels": list_labels(self.task, self.label_names)}
        return fill_template(self.template.system, values)

    def get_fields(self, example: TextExample) -> dict[str, str]:
        return {**super().get_fields(example), "low": f"{self.low:g}", "high": f"{self.high:g}"}

    def schema(self, example: Any) -> Schema:
        unit = 10**self.digits
        first, last = round(self.low * unit), round(self.high * unit)
        if last - first > _MOST_STEPS:
            return object_schema(score={"type": "number", "minimum": self.low, "maximum": self.high})
        return object_schema(score={"enum": [step / unit for step in range(first, last + 1)]})

    def gold_reply(self, example: Any) -> str:
        return to_compact_json({"score": round(float(example.gold), self.digits)})

    def failed_answer(self, example: Any) -> float:
        """Return the lowest number: no number is always wrong for a correlation."""
        return self.low

    def _parse(self, example: Any, text: str, finish: str | None) -> Reply:
        number, errors = read_key_value(text, "score", finish)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise MalformedReply
        if not self.low <= number <= self.high:
            return Reply(None, errors + Counter(["out_of_range"]))
        return Reply(float(number), errors)
