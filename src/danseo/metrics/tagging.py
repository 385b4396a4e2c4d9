"""Scores of tag sequences: entities by strict IOB2, tags by unit, and the levels of older reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from danseo.metrics.statistic import (
    Array,
    Counts,
    Formula,
    class_table,
    counted,
    macro_f1,
    macro_f1_absent_is_right,
    mean,
    micro_f1,
    share,
)
from danseo.metrics.tag_numbers import tag_numbers

Tags = Sequence[str]
Span = tuple[int, int, str]


@dataclass(frozen=True)
class Tagged:
    """Gold and answer tags of all sentences in one array each, with the sentence of every position."""

    golds: Array
    answers: Array
    sentences: Array
    n: int
    types: tuple[str, ...]

    @classmethod
    def of(cls, golds: Sequence[Tags], answers: Sequence[Tags], types: tuple[str, ...]) -> "Tagged":
        lengths = list(map(len, golds))
        if lengths != list(map(len, answers)):
            raise ValueError("every answer needs as many tags as its gold")
        sentences = np.repeat(np.arange(len(lengths)), lengths)
        return cls(tag_numbers(golds, types), tag_numbers(answers, types), sentences, len(lengths), types)

    def kept(self, mask: Array) -> "Tagged":
        """The same sentences with only the marked positions."""
        return Tagged(self.golds[mask], self.answers[mask], self.sentences[mask], self.n, self.types)

    @cached_property
    def starts_sentence(self) -> Array:
        first = np.ones(len(self.sentences), dtype=bool)
        first[1:] = self.sentences[1:] != self.sentences[:-1]
        return first

    @cached_property
    def gold_spans(self) -> tuple[Array, Array, Array]:
        return strict_spans(self.golds, self.starts_sentence)

    @cached_property
    def answer_spans(self) -> tuple[Array, Array, Array]:
        return strict_spans(self.answers, self.starts_sentence)

    @cached_property
    def found(self) -> Array:
        """Which gold entities were answered with the same borders and type."""
        keys = [
            (start * (len(self.golds) + 1) + end) * len(self.types) + type_
            for start, end, type_ in (self.gold_spans, self.answer_spans)
        ]
        return np.isin(keys[0], keys[1], assume_unique=True)

    @cached_property
    def entity_table(self) -> Array:
        """Per sentence and type: entities found, answered, in gold."""
        return self._span_table(by_length=False)

    @cached_property
    def length_table(self) -> Array:
        """The same, every entity weighted by its length."""
        return self._span_table(by_length=True)

    def _span_table(self, *, by_length: bool) -> Array:
        columns = []
        sides = (self.gold_spans, self.found), (self.answer_spans, slice(None)), (self.gold_spans, slice(None))
        for (start, end, type_), chosen in sides:
            weights = (end - start)[chosen] if by_length else None
            columns.append(counted(self.sentences[start[chosen]], type_[chosen], len(self.types), self.n, weights))
        return np.stack(columns, axis=-1).reshape(self.n, -1)

    @cached_property
    def tag_table(self) -> Array:
        return class_table(self.sentences, self.golds, self.answers, 2 * len(self.types) + 1, self.n)


def strict_spans(tags: Array, starts_sentence: Array) -> tuple[Array, Array, Array]:
    """Start, end and type of every entity: a B- and the I- of its type that follow; other I- belong to nothing."""
    positions = np.flatnonzero(tags > 0)  # most tags are O
    chosen = tags[positions]
    types = (chosen - 1) >> 1
    goes_on = np.zeros(len(positions), dtype=bool)
    goes_on[1:] = (types[1:] == types[:-1]) & (np.diff(positions) == 1)
    begins = chosen & 1 == 1
    goes_on &= ~begins & ~starts_sentence[positions]
    first = np.flatnonzero(begins)
    breaks = np.append(np.flatnonzero(~goes_on), len(positions))
    last = breaks[np.searchsorted(breaks, first, side="right")] - 1
    return positions[first], positions[last] + 1, types[first].astype(np.int64)


def entity_counts(tagged: Tagged, formula: Formula = macro_f1) -> Counts:
    """F1 of entities with the same type and borders; macro over the types that occur, or pooled."""
    return Counts(tagged.entity_table, formula)


def entity_tally(tagged: Tagged) -> tuple[float, float, float]:
    """Entities of all sentences and types: found, answered, in gold."""
    hits, answered, gold = _pooled(tagged).sum(axis=1)
    return float(hits), float(answered), float(gold)


def token_type_tally(tagged: Tagged) -> tuple[float, float, float]:
    """Units inside entities: right by type, answered, in gold."""
    hits, answered, gold = token_type_f1(tagged).table.reshape(tagged.n, -1, 3).sum(axis=(0, 1))
    return float(hits), float(answered), float(gold)


def entity_precision(tagged: Tagged) -> Counts:
    """Share of the answered entities that are right."""
    hits, answered, _ = _pooled(tagged)
    return share(hits, answered)


def entity_recall(tagged: Tagged) -> Counts:
    """Share of the gold entities that were found."""
    hits, _, gold = _pooled(tagged)
    return share(hits, gold)


def _pooled(tagged: Tagged) -> Array:
    """Per sentence, over all types: entities found, answered, in gold; a row each."""
    pooled: Array = tagged.entity_table.reshape(tagged.n, -1, 3).sum(axis=1).T
    return pooled


def tag_macro_f1(tagged: Tagged, *, with_o: bool) -> Counts:
    """Mean F1 over all tags, with or without O; a tag absent from both sides counts as right."""
    return Counts(tagged.tag_table[:, 0 if with_o else 3 :], macro_f1_absent_is_right)


def official_character_f1(tagged: Tagged) -> Counts:
    """Mean F1 over all tags, with an O before and after every sentence: of [CLS] and of the last place."""
    table = tagged.tag_table.copy()
    table[:, :3] += 2  # found, answered and in gold
    return Counts(table, macro_f1_absent_is_right)


def sentence_accuracy(tagged: Tagged) -> Counts:
    """Share of the sentences whose entities are exactly the gold ones."""
    hits, answered, gold = _pooled(tagged)
    return mean((hits == answered) & (hits == gold))


def token_type_f1(tagged: Tagged) -> Counts:
    """F1 over the units inside entities, right when the type is right; B- and I- are not told apart."""
    gold, answer = (tagged.golds + 1) // 2, (tagged.answers + 1) // 2
    table = class_table(tagged.sentences, gold, answer, len(tagged.types) + 1, tagged.n)
    return Counts(table[:, 3:], micro_f1)


def token_length_f1(tagged: Tagged) -> Counts:
    """F1 over units where a unit is right only if its whole entity is: entities weighted by their length."""
    return Counts(tagged.length_table, micro_f1)


def entity_f1(golds: Sequence[Tags], answers: Sequence[Tags], types: tuple[str, ...]) -> float:
    """Macro F1 of entities by strict IOB2, straight from lists of tags."""
    return entity_counts(Tagged.of(golds, answers, types)).value()


def spans_of(tags: Tags) -> Iterator[Span]:
    """The entities of one sentence, by the strict rule: start, end and type."""
    start, kind = -1, ""
    for position, tag in enumerate([*tags, "O"]):
        if start >= 0 and tag != f"I-{kind}":
            yield start, position, kind
            start = -1
        if tag.startswith("B-"):
            start, kind = position, tag[2:]


def without_spaces(
    golds: Sequence[Tags], answers: Sequence[Tags], texts: Sequence[str], types: tuple[str, ...]
) -> Tagged:
    """The tags at the characters that are no spaces: what KLUE scores."""
    characters = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32)
    return Tagged.of(golds, answers, types).kept(characters != ord(" "))


def mend_leading_space(tags: Tags, text: str) -> list[str]:
    """Move a B- that stands on a space to the character after it: an annotation slip that loses the entity."""
    mended = list(tags)
    for position, following in enumerate(tags[1:]):
        tag = mended[position]
        if text[position] == " " and tag.startswith("B-") and following == f"I-{tag[2:]}":
            mended[position : position + 2] = ["O", tag]
    return mended


def piece_tags(tags: Tags, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """The tag of each model piece: that of its first character; an empty piece, such as [CLS], is O."""
    return [tags[start] if end > start else "O" for start, end in offsets]


def padded_rows(lengths: Sequence[int], batch: int) -> list[int]:
    """The sentences that an old evaluation kept: those shorter than the longest of their batch."""
    kept: list[int] = []
    for first in range(0, len(lengths), batch):
        longest = max(lengths[first : first + batch])
        kept += [row for row in range(first, min(first + batch, len(lengths))) if lengths[row] < longest]
    return kept
