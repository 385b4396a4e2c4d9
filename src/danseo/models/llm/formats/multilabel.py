"""Multilabel prompts: any number of labels of a list."""

from collections import Counter
from typing import Any, ClassVar

from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.reply import MalformedReply, Reply


class MultilabelFormat(PromptFormat):
    """The labels of a text or a pair of texts."""

    optional_fields: ClassVar[tuple[str, ...]] = ("pair", "pair_json")
    reply_tokens: ClassVar[int] = 256

    def schema(self, example: Any) -> Schema:
        item = {"type": "string", "enum": list(self.task.labels)}
        return object_schema(labels={"type": "array", "items": item, "maxItems": len(self.task.labels)})

    def gold_reply(self, example: Any) -> str:
        return to_compact_json({"labels": list(example.gold)})

    def failed_answer(self, example: Any) -> tuple[str, ...]:
        """Return no label; if that would be right, a wrong one."""
        return self.task.labels[:1] if example.gold == () else ()

    def _parse(self, example: Any, text: str, finish: str | None) -> Reply:
        found, errors = read_key_value(text, "labels", finish)
        if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
            raise MalformedReply
        names = [label.strip() for label in found]
        chosen = tuple(label for label in self.task.labels if label in names)
        unknown = sum(name not in self.task.labels for name in names)
        errors += Counter({"unknown_type": unknown, "duplicate": len(names) - unknown - len(chosen)})
        return Reply(chosen, +errors)
