"""Prompts that fit what a model reads: shots go first, then the example is cut, and all of it is counted."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.models.llm.asking import Asking, Message
from danseo.models.llm.source import Source

_MOST_CUTS = 12


def fitting(
    asking: Asking, source: Source, example: Any, shots: Sequence[Any], reply: int, counts: Counter[str]
) -> list[tuple[Any, list[Message]]]:
    """The parts of an example with their messages; one part where all fits, as it mostly does."""
    room = source.room()
    messages = asking.messages(example, shots)
    if room is None or source.count(messages) + reply <= room:
        return [(example, messages)]
    for kept in range(len(shots) - 1, -1, -1):  # the last ones are the nearest
        messages = asking.messages(example, shots[len(shots) - kept :])
        if source.count(messages) + reply <= room:
            counts["shots_dropped"] += 1
            return [(example, messages)]
    counts["shots_dropped"] += bool(shots)
    return _cut(asking, source, example, room - reply, counts)


def _cut(
    asking: Asking, source: Source, example: Any, room: int, counts: Counter[str]
) -> list[tuple[Any, list[Message]]]:
    """The example in parts that fit."""
    tokens, excess = source.count(asking.messages(example)), 0
    characters = max(1, len(asking.user(example)))
    for _ in range(_MOST_CUTS):
        excess += max(16, (tokens - room) * characters // max(1, tokens))
        parts = [(part, asking.messages(part)) for part in asking.pieces(example, excess)]
        if not parts:
            break
        tokens = max(source.count(messages) for _, messages in parts)
        if tokens <= room:
            counts["cut"] += 1
            counts["windows"] += len(parts)
            return parts
    raise DanseoError(
        f"the model reads {room} tokens before its reply, and the prompt of {example.guid} is longer, even without "
        "shots; use a model that reads more, or a shorter --prompt"
    )
