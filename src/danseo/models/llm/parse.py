"""The head and the relation of every word."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from danseo.models.llm.asking import Asking, Schema, compact, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply
from danseo.records import ParseExample


class Parse(Asking):
    """Numbered words and a list of [head, relation]."""

    fields: ClassVar = ("words",)
    further: ClassVar = ("count", "text")
    reply_tokens: ClassVar[int] = 768

    def shown(self, example: ParseExample) -> dict[str, str]:
        words = "\n".join(f"{number} {word}" for number, word in enumerate(example.words, 1))
        return {"words": words, "count": str(len(example.words)), "text": example.text}

    def schema(self, example: ParseExample) -> Schema:
        count = len(example.words)
        pair = [
            {"type": "integer", "minimum": 0, "maximum": count},
            {"type": "string", "enum": list(self.task.labels)},
        ]
        item = {"type": "array", "prefixItems": pair, "items": False, "minItems": 2, "maxItems": 2}
        return object_schema(words={"type": "array", "items": item, "minItems": count, "maxItems": count})

    def grammar(self, example: ParseExample) -> str:
        """One pair per word, no more and no fewer."""
        count = len(example.words)
        relations = " | ".join(json.dumps(json.dumps(label)) for label in self.task.labels)
        heads = " | ".join(f'"{head}"' for head in range(count + 1))
        return (
            f'start: "{{\\"words\\":[" pair ("," pair){{{count - 1}}} "]}}"\n'
            f'pair: "[" HEAD "," RELATION "]"\nHEAD: {heads}\nRELATION: {relations}\n'
        )

    def gold(self, example: ParseExample) -> str:
        return compact({"words": [list(pair) for pair in example.gold]})

    def wrong(self, example: ParseExample) -> tuple[tuple[int, str], ...]:
        """Every word its own head, which no word of a tree is."""
        return tuple((number, self.task.labels[0]) for number in range(1, len(example.words) + 1))

    def _read(self, example: ParseExample, text: str, finish: str | None) -> Reply:
        found, errors = only_key(text, "words", finish)
        if not isinstance(found, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in found):
            raise Malformed
        if len(found) != len(example.words):
            return Reply(None, errors + Counter(["wrong_length"]))
        own = self.wrong(example)
        return Reply(tuple(self._word(pair, own, position, errors) for position, pair in enumerate(found)), errors)

    def _word(self, pair: list[Any], own: Sequence[tuple[int, str]], position: int, errors: Counter[str]) -> Any:
        """Head and relation of one word; what does not exist is a mistake of this word alone."""
        head, relation = pair
        if isinstance(head, bool) or not isinstance(head, int) or not isinstance(relation, str):
            raise Malformed
        if relation not in self.task.labels:
            errors["unknown_type"] += 1
        elif not 0 <= head <= len(own):
            errors["out_of_range"] += 1
        else:
            return head, relation
        return own[position]
