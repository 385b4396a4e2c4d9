"""Question-answering prompts: an answer copied from the passage, or none."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.formats.tagging import NfcText, make_substring_rule
from danseo.models.llm.reply import MalformedReply, Reply
from danseo.records import QuestionExample
from danseo.text.normalization import compose

NO_ANSWER = "\N{REPLACEMENT CHARACTER}"
"""Answer of a failed reply: "" would say that the question has no answer, which may be right."""
_OVERLAP = 100
"""Number of characters that neighbouring windows of a long passage share."""


class QuestionAnsweringFormat(PromptFormat):
    """A span of the passage that answers the question."""

    fields: ClassVar = ("text", "question")
    reply_tokens: ClassVar[int] = 96

    def get_fields(self, example: QuestionExample) -> dict[str, str]:
        return {"text": example.text, "question": example.question}

    def schema(self, example: Any) -> Schema:
        return object_schema(answer={"type": ["string", "null"]})

    def grammar(self, example: QuestionExample) -> str:
        """Allow null or a span of the passage."""
        text = make_substring_rule("TEXT", compose(example.text))
        return f'start: "{{\\"answer\\":" (NULL | "\\"" TEXT "\\"") "}}"\nNULL: "null"\n{text}'

    def gold_reply(self, example: QuestionExample) -> str:
        return to_compact_json({"answer": compose(example.gold[0]) if example.gold else None})

    def failed_answer(self, example: Any) -> str:
        return NO_ANSWER

    def _parse(self, example: QuestionExample, text: str, finish: str | None) -> Reply:
        found, errors = read_key_value(text, "answer", finish)
        if found is None or found == "":
            return Reply("", errors)
        if not isinstance(found, str):
            raise MalformedReply
        passage, part = NfcText(example.text), compose(found).strip()
        start = passage.text.find(part) if part else -1
        if start < 0:
            return Reply(None, errors + Counter(["not_in_text"]))
        first, last = passage.original(start, start + len(part))
        return Reply(example.text[first:last], errors, (first, last))

    def split_example(self, example: QuestionExample, excess: int) -> list[Any]:
        """Return windows of the passage."""
        width = len(example.text) - excess
        if width <= 2 * _OVERLAP:
            return []
        starts = range(0, max(1, len(example.text) - _OVERLAP), width - _OVERLAP)
        return [replace(example, text=example.text[start : start + width]) for start in starts]

    def join_replies(self, example: QuestionExample, replies: Sequence[Reply]) -> Reply:
        """Return the answer of the first window that has one."""
        errors = sum((reply.errors for reply in replies), Counter[str]())
        answered = next((reply.answer for reply in replies if reply.answer), None)
        if answered is None:
            return Reply(None if any(reply.has_failed for reply in replies) else "", errors)
        start = example.text.find(answered)
        return Reply(answered, errors, (start, start + len(answered)))
