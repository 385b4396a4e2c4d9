"""Classification prompts: one label of a list."""

from collections import Counter
from typing import Any, ClassVar

from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.reply import MalformedReply, Reply
from danseo.tasktypes.base import NO_LABEL


class ClassificationFormat(PromptFormat):
    """One label for a text or a pair of texts."""

    optional_fields: ClassVar[tuple[str, ...]] = ("pair", "pair_json")
    reply_tokens: ClassVar[int] = 32

    def labels_for(self, example: Any) -> tuple[str, ...]:
        """Return the labels that an example may have."""
        return self.task.labels

    def schema(self, example: Any) -> Schema:
        return object_schema(label={"type": "string", "enum": list(self.labels_for(example))})

    def choices(self, example: Any) -> dict[str, str]:
        return {label: to_compact_json({"label": label}) for label in self.labels_for(example)}

    def gold_reply(self, example: Any) -> str:
        return to_compact_json({"label": example.gold})

    def failed_answer(self, example: Any) -> str:
        return NO_LABEL

    def _parse(self, example: Any, text: str, finish: str | None) -> Reply:
        label, errors = read_key_value(text, "label", finish)
        if not isinstance(label, str):
            raise MalformedReply
        if label.strip() not in self.task.labels:
            return Reply(None, errors + Counter(["unknown_type"]))
        return Reply(label.strip(), errors)
