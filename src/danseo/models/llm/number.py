"""How similar two sentences are, as a number."""

from collections import Counter
from typing import Any, ClassVar

from danseo.models.llm.asking import Asking, Schema, compact, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply
from danseo.records import TextExample

_HIGHEST = 5


class Number(Asking):
    """A pair of texts and a number from 0 to 5."""

    fields: ClassVar = ("text", "pair")
    reply_tokens: ClassVar[int] = 16

    def shown(self, example: TextExample) -> dict[str, str]:
        return {"text": example.text, "pair": example.pair or ""}

    def schema(self, example: Any) -> Schema:
        return object_schema(score={"enum": [step / 10 for step in range(10 * _HIGHEST + 1)]})

    def gold(self, example: Any) -> str:
        return compact({"score": round(float(example.gold), 1)})

    def wrong(self, example: Any) -> float:
        """0, which says that the sentences have nothing in common: a correlation has no answer that is always wrong."""
        return 0.0

    def _read(self, example: Any, text: str, finish: str | None) -> Reply:
        number, errors = only_key(text, "score", finish)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise Malformed
        if not 0 <= number <= _HIGHEST:
            return Reply(None, errors + Counter(["out_of_range"]))
        return Reply(float(number), errors)
