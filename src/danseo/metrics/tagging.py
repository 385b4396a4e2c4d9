"""Scores of tag sequences: entities by strict IOB2, tags by unit, and the levels of older reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np

from danseo.metrics.statistic import (
    Array,
    Counts,
    Formula,
    class_table,
    count_classes,
    macro_f1,
    macro_f1_absent_is_right,
    mean,
    micro_f1,
    share,
)

Tags = Sequence[str]
Span = tuple[int, int, str]
_WIDTH = 8  # bytes in a whole number, enough for B-PERSON


@dataclass(frozen=True)
class Tagged:
    """Gold and answer tags of all sentences in one array each, with the sentence of every position."""

    golds: Array
    answers: Array
    sentences: Array
    n: int
    types: tuple[str, ...]

    @classmethod
    def encode(cls, golds: Sequence[Tags], answers: Sequence[Tags], types: tuple[str, ...]) -> "Tagged":
        """Return the tags of all sentences as numbers."""
        lengths = list(map(len, golds))
        if lengths != list(map(len, answers)):
            raise ValueError("every answer needs as many tags as its gold")
        sentences = np.repeat(np.arange(len(lengths)), lengths)
        return cls(encode_tags(golds, types), encode_tags(answers, types), sentences, len(lengths), types)

    def select(self, mask: Array) -> "Tagged":
        """Return the same sentences with only the marked positions."""
        return Tagged(self.golds[mask], self.answers[mask], self.sentences[mask], self.n, self.types)

    @cached_property
    def starts_sentence(self) -> Array:
        first = np.ones(len(self.sentences), dtype=bool)
        first[1:] = self.sentences[1:] != self.sentences[:-1]
        return first

    @cached_property
    def gold_spans(self) -> tuple[Array, Array, Array]:
        return find_spans(self.golds, self.starts_sentence)

    @cached_property
    def answer_spans(self) -> tuple[Array, Array, Array]:
        return find_spans(self.answers, self.starts_sentence)

    @cached_property
    def is_found(self) -> Array:
        """Which gold entities were answered with the same borders and type."""
        keys = [
            (start * (len(self.golds) + 1) + end) * len(self.types) + type_
            for start, end, type_ in (self.gold_spans, self.answer_spans)
        ]
        return np.isin(keys[0], keys[1], assume_unique=True)

    @cached_property
    def moved_ends(self) -> tuple[Array, Array, Array, Array]:
        """Entities with the right start and type but another end: sentence, type, end in gold, answered end."""
        mine, theirs = (start * len(self.types) + type_ for start, _, type_ in (self.gold_spans, self.answer_spans))
        _, golds, answers = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        start, end, type_ = (column[golds] for column in self.gold_spans)
        columns = (self.sentences[start], type_, end, self.answer_spans[1][answers])
        moved = columns[2] != columns[3]
        return columns[0][moved], columns[1][moved], columns[2][moved], columns[3][moved]

    @cached_property
    def entity_table(self) -> Array:
        """Per sentence and type: entities found, answered, in gold."""
        return self._count_spans(by_length=False)

    @cached_property
    def length_table(self) -> Array:
        """The same, every entity weighted by its length."""
        return self._count_spans(by_length=True)

    def _count_spans(self, *, by_length: bool) -> Array:
        columns = []
        sides = (self.gold_spans, self.is_found), (self.answer_spans, slice(None)), (self.gold_spans, slice(None))
        for (start, end, type_), chosen in sides:
            weights = (end - start)[chosen] if by_length else None
            sentences = self.sentences[start[chosen]]
            columns.append(count_classes(sentences, type_[chosen], len(self.types), self.n, weights))
        return np.stack(columns, axis=-1).reshape(self.n, -1)

    @cached_property
    def tag_table(self) -> Array:
        return class_table(self.sentences, self.golds, self.answers, 2 * len(self.types) + 1, self.n)


def find_spans(tags: Array, starts_sentence: Array) -> tuple[Array, Array, Array]:
    """Return start, end and type of every entity: a B- and the I- of its type that follow; other I- are ignored."""
    positions = np.flatnonzero(tags > 0)  # most tags are O
    chosen = tags[positions]
    types = (chosen - 1) >> 1
    continues = np.zeros(len(positions), dtype=bool)
    continues[1:] = (types[1:] == types[:-1]) & (np.diff(positions) == 1)
    begins = chosen & 1 == 1
    continues &= ~begins & ~starts_sentence[positions]
    first = np.flatnonzero(begins)
    breaks = np.append(np.flatnonzero(~continues), len(positions))
    last = breaks[np.searchsorted(breaks, first, side="right")] - 1
    return positions[first], positions[last] + 1, types[first].astype(np.int64)


def entity_counts(tagged: Tagged, formula: Formula = macro_f1) -> Counts:
    """Return the F1 of entities with the same type and boundaries: macro over the types that occur, or pooled."""
    return Counts(tagged.entity_table, formula)


def forgive_ends(tagged: Tagged, forgiven: Array, formula: Formula = macro_f1) -> Counts:
    """Return the same, but the marked ones of `moved_ends` count as found."""
    sentences, types = (column[forgiven] for column in tagged.moved_ends[:2])
    table = tagged.entity_table.copy()
    table[:, ::3] += count_classes(sentences, types, len(tagged.types), tagged.n)
    return Counts(table, formula)


def count_entities(tagged: Tagged) -> tuple[float, float, float]:
    """Return the number of entities that are found, answered and in gold."""
    hits, answered, gold = _pool_types(tagged).sum(axis=1)
    return float(hits), float(answered), float(gold)


def count_entity_tokens(tagged: Tagged) -> tuple[float, float, float]:
    """Return the number of tokens inside entities that have the right type, are answered and are in gold."""
    hits, answered, gold = token_type_f1(tagged).table.reshape(tagged.n, -1, 3).sum(axis=(0, 1))
    return float(hits), float(answered), float(gold)


def entity_precision(tagged: Tagged) -> Counts:
    """Return the share of answered entities that are right."""
    hits, answered, _ = _pool_types(tagged)
    return share(hits, answered, "nothing answered")


def entity_recall(tagged: Tagged) -> Counts:
    """Return the share of gold entities that were found."""
    hits, _, gold = _pool_types(tagged)
    return share(hits, gold, "nothing to find")


def _pool_types(tagged: Tagged) -> Array:
    """Return rows of found, answered and gold entities, per sentence over all types."""
    pooled: Array = tagged.entity_table.reshape(tagged.n, -1, 3).sum(axis=1).T
    return pooled


def tag_macro_f1(tagged: Tagged, *, with_o: bool) -> Counts:
    """Return the mean F1 over all tags, with or without O; a tag absent from both sides counts as right."""
    return Counts(tagged.tag_table[:, 0 if with_o else 3 :], macro_f1_absent_is_right)


def official_character_f1(tagged: Tagged) -> Counts:
    """Return the mean F1 over all tags, with an O before and after every sentence: [CLS] and the last position."""
    table = tagged.tag_table.copy()
    table[:, :3] += 2  # found, answered and in gold
    return Counts(table, macro_f1_absent_is_right)


def sentence_accuracy(tagged: Tagged) -> Counts:
    """Return the share of sentences whose entities are exactly the gold ones."""
    hits, answered, gold = _pool_types(tagged)
    return mean((hits == answered) & (hits == gold))


def token_type_f1(tagged: Tagged) -> Counts:
    """Return the F1 over the tokens inside entities, right if the type is right; B- and I- count as the same."""
    gold, answer = (tagged.golds + 1) // 2, (tagged.answers + 1) // 2
    table = class_table(tagged.sentences, gold, answer, len(tagged.types) + 1, tagged.n)
    return Counts(table[:, 3:], micro_f1)


def token_length_f1(tagged: Tagged) -> Counts:
    """Return the F1 of entities weighted by their length."""
    return Counts(tagged.length_table, micro_f1)


def list_entities(tags: Tags) -> Iterator[Span]:
    """Yield the entities of one sentence, by the strict rule: start, end and type."""
    start, type_ = -1, ""
    for position, tag in enumerate([*tags, "O"]):
        if start >= 0 and tag != f"I-{type_}":
            yield start, position, type_
            start = -1
        if tag.startswith("B-"):
            start, type_ = position, tag[2:]


def encode_characters(
    golds: Sequence[Tags], answers: Sequence[Tags], texts: Sequence[str], types: tuple[str, ...]
) -> Tagged:
    """Return the tags of all characters but spaces: what KLUE scores."""
    return Tagged.encode(golds, answers, types).select(mark_characters("".join(texts)))


def mark_characters(text: str) -> Array:
    """Return which characters of a text are no spaces."""
    return np.asarray(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32) != ord(" "))


def correct_leading_space(tags: Tags, text: str) -> list[str]:
    """Return the tags with a B- on a space moved to the next character; this annotation error loses the entity."""
    corrected = list(tags)
    for position, following in enumerate(tags[1:]):
        tag = corrected[position]
        if text[position] == " " and tag.startswith("B-") and following == f"I-{tag[2:]}":
            corrected[position : position + 2] = ["O", tag]
    return corrected


def get_token_tags(tags: Tags, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """Return the tag of each token, that of its first character; an empty token, such as [CLS], is O."""
    return [tags[start] if end > start else "O" for start, end in offsets]


def find_padded_rows(lengths: Sequence[int], batch: int) -> list[int]:
    """Return the sentences that are shorter than the longest of their batch: older evaluations kept only these."""
    kept: list[int] = []
    for first in range(0, len(lengths), batch):
        longest = max(lengths[first : first + batch])
        kept += [row for row in range(first, min(first + batch, len(lengths))) if lengths[row] < longest]
    return kept


# Tags as numbers: most of the time of a score, so it works on bytes and not tag by tag


@lru_cache
def tag_index(types: tuple[str, ...]) -> dict[str, int]:
    """Return tag -> number: O is 0, B- of the k-th type is 2k+1, and its I- is 2k+2."""
    if len(types) > 127:
        raise ValueError(f"{len(types)} entity types; 127 are possible")
    return {
        "O": 0,
        **{f"{prefix}-{name}": 2 * k + 1 + (prefix == "I") for k, name in enumerate(types) for prefix in "BI"},
    }


def encode_tags(rows: Sequence[Sequence[str]], types: tuple[str, ...]) -> Array:
    """Return the tags of all sentences, one after the other, as bytes; raise KeyError for an unknown tag."""
    numbers = _encode_joined_tags(rows, types)
    if numbers is None:
        numbers = np.fromiter(map(tag_index(types).__getitem__, chain.from_iterable(rows)), dtype=np.uint8)
    return numbers


def _encode_joined_tags(rows: Sequence[Sequence[str]], types: tuple[str, ...]) -> Array | None:
    """Return the same from the joined tags, OOB-PSI-PSO, by their hyphens; None if they are ambiguous."""
    width = len(types[0]) + 2 if types else _WIDTH
    if width > _WIDTH or any(len(name) + 2 != width or "-" in name or not name.isascii() for name in types):
        return None
    text = "".join(map("".join, rows)).encode(errors="replace") + bytes(_WIDTH)
    data = np.frombuffer(text, dtype=np.uint8)
    starts = np.flatnonzero(data == ord("-")) - 1
    keys, known, os = _make_keys(types)
    eights = np.ndarray(
        len(text) - _WIDTH + 1, dtype="<u8", buffer=text, strides=(1,)
    )  # the bytes from each position on
    words = eights[starts] & np.uint64((1 << 8 * width) - 1)
    found = np.searchsorted(keys, words)
    numbers = np.zeros(sum(map(len, rows)), dtype=np.uint8)
    others = len(text) - _WIDTH - width * len(starts)  # all of which should be O
    are_others_o = others == len(numbers) - len(starts) == np.count_nonzero(data == ord("O")) - os[found].sum()
    if not are_others_o or not np.array_equal(keys[found], words):
        return None
    numbers[starts - (width - 1) * np.arange(len(starts))] = known[found]
    return numbers


@lru_cache
def _make_keys(types: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Return of each tag its bytes as a sorted integer (with a sentinel at the end), its number, and its count of O."""
    tags = [(int.from_bytes(tag.encode(), "little"), n, tag.count("O")) for tag, n in tag_index(types).items() if n]
    keys, numbers, os = zip(*sorted(tags), (2**64 - 1, 0, 0), strict=True)
    return np.array(keys, dtype=np.uint64), np.array(numbers, dtype=np.uint8), np.array(os)
