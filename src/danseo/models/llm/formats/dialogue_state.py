"""Dialogue-state prompts: the slots that are set so far, with their values."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.reply import MalformedReply, Reply
from danseo.records import DialogueExample

_SPEAKERS = {"ko": ("사용자", "안내원"), "en": ("user", "agent")}


class DialogueStateFormat(PromptFormat):
    """Slots and values of a dialogue."""

    fields: ClassVar = ("turns",)
    reply_tokens: ClassVar[int] = 512

    def get_fields(self, example: DialogueExample) -> dict[str, str]:
        # the user speaks last, so that truncated dialogues keep their speakers
        first = (len(example.turns) + 1) % 2
        speakers = _SPEAKERS[self.config.language]
        lines = (f"{speakers[(first + position) % 2]}: {turn}" for position, turn in enumerate(example.turns))
        return {"turns": "\n".join(lines)}

    def schema(self, example: Any) -> Schema:
        slots = {slot: {"type": "string", "minLength": 1, "maxLength": 40} for slot in self.task.labels}
        return object_schema(state={"type": "object", "properties": slots, "additionalProperties": False})

    def gold_reply(self, example: DialogueExample) -> str:
        state = dict(_parts(value) for value in example.gold)
        return to_compact_json({"state": {slot: state[slot] for slot in self.task.labels if slot in state}})

    def failed_answer(self, example: Any) -> tuple[str, ...]:
        """Return a slot without a value; an empty state may be right."""
        return (f"{self.task.labels[0]}-",)

    def _parse(self, example: Any, text: str, finish: str | None) -> Reply:
        state, errors = read_key_value(text, "state", finish)
        if not isinstance(state, dict) or any(not isinstance(value, str) for value in state.values()):
            raise MalformedReply
        known = {slot: value.strip() for slot, value in state.items() if slot in self.task.labels}
        errors += Counter({"unknown_type": len(state) - len(known)})
        return Reply(tuple(f"{slot}-{value}" for slot, value in known.items() if value), +errors)

    def split_example(self, example: DialogueExample, excess: int) -> list[Any]:
        """Return the dialogue without its oldest turns."""
        turns = list(example.turns)
        while excess > 0 and len(turns) > 1:
            excess -= len(turns.pop(0)) + 1
        return [replace(example, turns=tuple(turns))] if excess <= 0 else []


def _parts(value: str) -> tuple[str, str]:
    """Split an entry into slot and value; the value may contain hyphens."""
    domain, slot, rest = value.split("-", 2)
    return f"{domain}-{slot}", rest
