"""Parsing prompts: the head and the relation of every word."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.reply import MalformedReply, Reply
from danseo.records import ParseExample


class ParsingFormat(PromptFormat):
    """A list of [head, relation] for numbered words."""

    fields: ClassVar = ("words",)
    optional_fields: ClassVar = ("count", "text")
    reply_tokens: ClassVar[int] = 768

    def get_fields(self, example: ParseExample) -> dict[str, str]:
        words = "\n".join(f"{number} {word}" for number, word in enumerate(example.words, 1))
        return {"words": words, "count": str(len(example.words)), "text": example.text}

    def schema(self, example: ParseExample) -> Schema:
        count = len(example.words)
        pair = [{"type": "integer", "minimum": 0, "maximum": count}, {"type": "string", "enum": list(self.task.labels)}]
        item = {"type": "array", "prefixItems": pair, "items": False, "minItems": 2, "maxItems": 2}
        return object_schema(words={"type": "array", "items": item, "minItems": count, "maxItems": count})

    def grammar(self, example: ParseExample) -> str:
        """Require exactly one pair per word."""
        count = len(example.words)
        relations = " | ".join(json.dumps(json.dumps(label)) for label in self.task.labels)
        heads = " | ".join(f'"{head}"' for head in range(count + 1))
        return (
            f'start: "{{\\"words\\":[" pair ("," pair){{{count - 1}}} "]}}"\n'
            f'pair: "[" HEAD "," RELATION "]"\nHEAD: {heads}\nRELATION: {relations}\n'
        )

    def gold_reply(self, example: ParseExample) -> str:
        return to_compact_json({"words": [list(pair) for pair in example.gold]})

    def failed_answer(self, example: ParseExample) -> tuple[tuple[int, str], ...]:
        """Return every word as its own head, which is never right."""
        return tuple((number, self.task.labels[0]) for number in range(1, len(example.words) + 1))

    def _parse(self, example: ParseExample, text: str, finish: str | None) -> Reply:
        found, errors = read_key_value(text, "words", finish)
        if not isinstance(found, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in found):
            raise MalformedReply
        if len(found) != len(example.words):
            return Reply(None, errors + Counter(["wrong_length"]))
        own = self.failed_answer(example)
        return Reply(tuple(self._word(pair, own, position, errors) for position, pair in enumerate(found)), errors)

    def _word(self, pair: list[Any], own: Sequence[tuple[int, str]], position: int, errors: Counter[str]) -> Any:
        """Return head and relation of one word; an unknown one counts as an error of this word."""
        head, relation = pair
        if isinstance(head, bool) or not isinstance(head, int) or not isinstance(relation, str):
            raise MalformedReply
        if relation not in self.task.labels:
            errors["unknown_type"] += 1
        elif not 0 <= head <= len(own):
            errors["out_of_range"] += 1
        else:
            return head, relation
        return own[position]
