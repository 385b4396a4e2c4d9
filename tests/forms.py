"""Examples in decomposed text (NFD)."""

from dataclasses import replace
from unicodedata import normalize

from danseo.records import DialogueExample, ParseExample, QuestionExample, RelationExample


def decomposed(text: str) -> str:
    return normalize("NFD", text)


def apart(example):
    """The same example in decomposed text."""
    if isinstance(example, DialogueExample):
        return replace(example, turns=tuple(map(decomposed, example.turns)))
    if isinstance(example, ParseExample):
        return replace(example, words=tuple(map(decomposed, example.words)))
    if isinstance(example, QuestionExample):
        return replace(example, text=decomposed(example.text), question=decomposed(example.question))
    if isinstance(example, RelationExample):
        entities = {role: _moved(example.text, getattr(example, role)) for role in ("subject", "object")}
        return replace(example, text=decomposed(example.text), **entities)
    pair = example.pair and decomposed(example.pair)
    return replace(example, text=decomposed(example.text), pair=pair)


def _moved(text, entity):
    start, end = (len(decomposed(text[:position])) for position in (entity.start, entity.end))
    return replace(entity, word=decomposed(entity.word), start=start, end=end)
