"""KLUE's own alignment of tags, pieces and characters, its three mistakes after [UNK] included.

1. The piece after an [UNK] is read twice, and a word that ends in [UNK] leaves its last piece to the next word: all
   later tags of the sentence come from a piece too early. 2. In a word with [UNK], a piece stands for one character,
   however long it is. 3. [UNK] after [UNK] in a word share one prediction.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.models.encoder.kind import Kind
from danseo.models.encoder.pieces import Cut
from danseo.predictions.viterbi import Array
from danseo.text.letters import Letters, letters_of
from danseo.training.features import Features

Word = tuple[str, list[str]]
"""A word and its pieces, without the marks of continuation."""
Source = tuple[int, bool]
"""Which piece a character takes its tag from, and whether as it is (else B- becomes I-)."""
_INSIDE = "[+UNK]"


def encode_official(examples: Sequence[Any], kind: Kind) -> list[Features]:
    """One input per sentence, cut at the limit, made of words that were cut into pieces one by one."""
    sentences = [letters_of(example.text, plain=False) for example in examples]
    known = sorted({word for letters in sentences for word in letters.text.split(" ")})
    cuts = dict(zip(known, kind.pieces.cut(known, plain=False), strict=True))
    return [_features(number, letters, cuts, kind) for number, letters in enumerate(sentences)]


def _features(number: int, letters: Letters, cuts: dict[str, Cut], kind: Kind) -> Features:
    from tokenizers import Encoding

    words = letters.text.split(" ")
    mark, unknown = mark_of(kind), kind.pieces.tokenizer.unk_token
    parts = [(word, [token.replace(mark, "") for token in cuts[word].tokens]) for word in words]
    whole = Cut(letters.text, letters, Encoding.merge([cuts[word].encoding for word in words], growing_offsets=False))
    limit = kind.longest - kind.pieces.specials()
    truncated = len(whole) > limit
    whole.truncate(limit)
    joined = kind.pieces.join(whole)
    solid = np.flatnonzero([character != " " for character in letters.text])
    positions = _positions(parts, solid, unknown, len(joined.ids))
    owners, firsts = _owners(parts, solid, unknown, len(joined.ids))
    fields = _given(letters, positions, owners, firsts) | {"truncated": truncated}
    return Features(number, joined.ids, joined.type_ids, fields)


def _given(letters: Letters, positions: Array, owners: Array, firsts: Array) -> dict[str, Any]:
    """The same about the text as it was given, where a syllable may be several characters."""
    if letters.starts is not None:
        starts = np.array(letters.starts)
        positions = np.where(positions >= 0, starts[positions], positions)
        own = np.repeat(np.arange(len(owners)), np.diff(starts))
        owners, firsts = owners[own], firsts[own] & np.diff(own, prepend=-1).astype(bool)
    return {"positions": positions, "owners": owners, "firsts": firsts}


def mark_of(kind: Kind) -> str:
    """What the tokenizer puts before pieces inside (WordPiece) or at the start (SentencePiece) of a word."""
    model = type(kind.pieces.backend.model).__name__
    if model not in ("WordPiece", "Unigram"):
        raise DanseoError(
            f"KLUE's own NER alignment knows WordPiece and SentencePiece, not {model}; set head.architecture=default"
        )
    return "##" if model == "WordPiece" else "▁"


def _positions(words: Sequence[Word], solid: Array, unknown: str, count: int) -> Array:
    """The character that labels each of the count pieces; -1 for the special ones, which are O."""
    labelled = label_positions(words, unknown)[: count - 2]
    positions = np.full(count, -1)
    positions[1 : 1 + len(labelled)] = [solid[p] if 0 <= p < len(solid) else -1 for p in labelled]
    return positions


def _owners(words: Sequence[Word], solid: Array, unknown: str, count: int) -> tuple[Array, Array]:
    """The piece of every character and whether it keeps its tag; what KLUE's evaluation never reaches has none."""
    sources = [source for source in tag_sources(words, unknown) if source[0] < count - 1][: len(solid)]
    length = sum(len(word) + 1 for word, _ in words) - 1
    owners, firsts = np.full(length, -1), np.zeros(length, dtype=bool)
    owners[solid[: len(sources)]] = [piece for piece, _ in sources]
    firsts[solid[: len(sources)]] = [first for _, first in sources]
    return owners, firsts


def label_positions(words: Sequence[Word], unknown: str) -> list[int]:
    """Which character, spaces not counted, labels each piece: its first, or in a word with [UNK] the word's first."""
    positions, position = [], 0
    for word, pieces in words:
        start, counted = position, unknown not in pieces
        for piece in pieces:
            positions.append(position if piece else -1)
            position += len(piece) if counted else 0
        position = position if counted else start + len(word)
    return positions


def tag_sources(words: Sequence[Word], unknown: str) -> list[Source]:
    """The source of every character, spaces not counted; piece 0 is [CLS]."""
    sources: list[Source] = []
    pointer = 1
    for word, pieces in words:
        if unknown in pieces:
            found, pointer = _unknown_sources(_units(word, pieces, unknown), pointer, unknown)
            sources += found
        else:
            sources += [(pointer + k, n == 0) for k, piece in enumerate(pieces) for n in range(len(piece))]
            pointer += len(pieces)
    return sources


def _unknown_sources(units: Sequence[str], pointer: int, unknown: str) -> tuple[list[Source], int]:
    """The sources in a word with [UNK], and the piece that the next word starts at: the mistakes are here."""
    sources, pending = [], False
    for unit in units:
        known = unit not in (unknown, _INSIDE)
        pointer += known and pending
        sources.append((pointer, unit != _INSIDE))
        pointer += known and not pending
        pending = unit == unknown or (pending and not known)
    return sources, pointer


def _units(word: str, pieces: Sequence[str], unknown: str) -> list[str]:
    """The pieces, each [UNK] followed by one mark for every further character it seems to stand for."""
    units, position = [], 0
    for piece, after in zip(pieces, [*pieces[1:], ""], strict=True):
        width = _unknown_width(word, position, after, unknown) if piece == unknown else len(piece)
        units += [piece, *[_INSIDE] * (width - 1)] if piece == unknown else [piece]
        position += width
    return units


def _unknown_width(word: str, position: int, after: str, unknown: str) -> int:
    """Characters up to the first that looks like the piece after it, or to the end of the word."""
    if after == unknown:
        return 1
    end = word.find(after[0], position + 1) if after else len(word)
    return max(end - position, 1)


def official_tags(numbers: Array, record: Features, text: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Tags of all characters from the best label of every piece; spaces inside an entity join it."""
    owners, firsts = record.fields["owners"], record.fields["firsts"]
    tags = ["O"] * len(text)
    for position in np.flatnonzero(owners >= 0):
        tag = labels[numbers[owners[position]]]
        tags[position] = tag if firsts[position] else tag.replace("B-", "I-")
    return tuple(fill_spaces(tags, text))


def fill_spaces(tags: Sequence[str], text: str) -> list[str]:
    """Give I-x to a space between two characters of the same entity."""
    filled, ahead = list(tags), "O"
    follows = []
    for tag, character in zip(reversed(tags), reversed(text), strict=True):
        ahead = ahead if character == " " else tag
        follows.append(ahead)
    for position, after in enumerate(reversed(follows)):
        if text[position] == " ":
            joins = position > 0 and after.startswith("I-") and filled[position - 1][1:] == after[1:]
            filled[position] = after if joins else "O"
    return filled
