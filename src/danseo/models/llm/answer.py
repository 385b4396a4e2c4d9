"""The answer to a question, copied from its passage, or none."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from danseo.models.llm.asking import Asking, Schema, compact, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply
from danseo.models.llm.spans import Composed, composed
from danseo.models.llm.tag import copied
from danseo.records import QuestionExample

NO_ANSWER = "\N{REPLACEMENT CHARACTER}"
"""What a reply that failed is taken for: "" says that the question has no answer, which may be right."""
_OVERLAP = 100
"""Characters that windows of a long passage share, so that no answer falls between them."""


class Answer(Asking):
    """A passage, a question, and a stretch of the passage."""

    fields: ClassVar = ("text", "question")
    reply_tokens: ClassVar[int] = 96

    def shown(self, example: QuestionExample) -> dict[str, str]:
        return {"text": example.text, "question": example.question}

    def schema(self, example: Any) -> Schema:
        return object_schema(answer={"type": ["string", "null"]})

    def grammar(self, example: QuestionExample) -> str:
        """null, or a stretch of the passage."""
        passage = composed(example.text)
        return f'start: "{{\\"answer\\":" (NULL | "\\"" TEXT "\\"") "}}"\nNULL: "null"\n{copied("TEXT", passage)}'

    def gold(self, example: QuestionExample) -> str:
        return compact({"answer": composed(example.gold[0]) if example.gold else None})

    def wrong(self, example: Any) -> str:
        return NO_ANSWER

    def _read(self, example: QuestionExample, text: str, finish: str | None) -> Reply:
        found, errors = only_key(text, "answer", finish)
        if found is None or found == "":
            return Reply("", errors)
        if not isinstance(found, str):
            raise Malformed
        passage, part = Composed(example.text), composed(found).strip()
        start = passage.text.find(part) if part else -1
        if start < 0:
            return Reply(None, errors + Counter(["not_in_text"]))
        first, last = passage.original(start, start + len(part))
        return Reply(example.text[first:last], errors, (first, last))

    def pieces(self, example: QuestionExample, excess: int) -> list[Any]:
        """Windows of the passage."""
        width = len(example.text) - excess
        if width <= 2 * _OVERLAP:
            return []
        starts = range(0, max(1, len(example.text) - _OVERLAP), width - _OVERLAP)
        return [replace(example, text=example.text[start : start + width]) for start in starts]

    def joined(self, example: QuestionExample, replies: Sequence[Reply]) -> Reply:
        """The first window that has an answer speaks for the passage."""
        errors = sum((reply.errors for reply in replies), Counter[str]())
        answered = next((reply.answer for reply in replies if reply.answer), None)
        if answered is None:
            return Reply(None if any(reply.has_failed for reply in replies) else "", errors)
        start = example.text.find(answered)
        return Reply(answered, errors, (start, start + len(answered)))
