"""Examples in decomposed text (NFD)."""

from dataclasses import replace
from unicodedata import normalize

from danseo.records import DialogueExample, ParseExample, QuestionExample, RelationExample


def decompose(text: str) -> str:
    return normalize("NFD", text)


def decompose_example(example):
    """Return the example in decomposed text."""
    if isinstance(example, DialogueExample):
        return replace(example, turns=tuple(map(decompose, example.turns)))
    if isinstance(example, ParseExample):
        return replace(example, words=tuple(map(decompose, example.words)))
    if isinstance(example, QuestionExample):
        return replace(example, text=decompose(example.text), question=decompose(example.question))
    if isinstance(example, RelationExample):
        entities = {role: _decompose_entity(example.text, getattr(example, role)) for role in ("subject", "object")}
        return replace(example, text=decompose(example.text), **entities)
    pair = example.pair and decompose(example.pair)
    return replace(example, text=decompose(example.text), pair=pair)


def _decompose_entity(text, entity):
    start, end = (len(decompose(text[:position])) for position in (entity.start, entity.end))
    return replace(entity, word=decompose(entity.word), start=start, end=end)
