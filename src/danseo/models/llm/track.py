"""What a user wants so far: the slots that are set, with their values."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from danseo.models.llm.asking import Asking, Schema, compact, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply
from danseo.records import DialogueExample

_SPEAKERS = ("사용자", "안내원")


class Track(Asking):
    """A dialogue and an object of slots and values."""

    fields: ClassVar = ("turns",)
    reply_tokens: ClassVar[int] = 512

    def shown(self, example: DialogueExample) -> dict[str, str]:
        # the user speaks last, so that cut dialogues keep their speakers
        first = (len(example.turns) + 1) % 2
        lines = (f"{_SPEAKERS[(first + position) % 2]}: {turn}" for position, turn in enumerate(example.turns))
        return {"turns": "\n".join(lines)}

    def schema(self, example: Any) -> Schema:
        slots = {slot: {"type": "string", "minLength": 1, "maxLength": 40} for slot in self.task.labels}
        return object_schema(state={"type": "object", "properties": slots, "additionalProperties": False})

    def gold(self, example: DialogueExample) -> str:
        state = dict(_parts(value) for value in example.gold)
        return compact({"state": {slot: state[slot] for slot in self.task.labels if slot in state}})

    def wrong(self, example: Any) -> tuple[str, ...]:
        """A slot without a value; an empty state may be right."""
        return (f"{self.task.labels[0]}-",)

    def _read(self, example: Any, text: str, finish: str | None) -> Reply:
        state, errors = only_key(text, "state", finish)
        if not isinstance(state, dict) or any(not isinstance(value, str) for value in state.values()):
            raise Malformed
        known = {slot: value.strip() for slot, value in state.items() if slot in self.task.labels}
        errors += Counter({"unknown_type": len(state) - len(known)})
        return Reply(tuple(f"{slot}-{value}" for slot, value in known.items() if value), +errors)

    def pieces(self, example: DialogueExample, excess: int) -> list[Any]:
        """The dialogue without its oldest turns."""
        turns = list(example.turns)
        while excess > 0 and len(turns) > 1:
            excess -= len(turns.pop(0)) + 1
        return [replace(example, turns=tuple(turns))] if excess <= 0 else []


def _parts(value: str) -> tuple[str, str]:
    """A slot and its value; the value may hold hyphens."""
    domain, slot, rest = value.split("-", 2)
    return f"{domain}-{slot}", rest
