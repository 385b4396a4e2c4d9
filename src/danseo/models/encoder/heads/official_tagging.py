"""KLUE's own alignment of tags, tokens and characters, including its three errors after [UNK].

1. The token after an [UNK] is read twice, and a word that ends in [UNK] leaves its last token to the next word: all
   later tags of the sentence come from a token too early. 2. In a word with [UNK], a token stands for one character,
   however long it is. 3. [UNK] after [UNK] in a word share one prediction.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.tokenizer import TokenizedText
from danseo.tasktypes.decoding import Array
from danseo.text.normalization import NormalizedText
from danseo.training.features import Features

Word = tuple[str, list[str]]
"""A word and its tokens, without continuation marks."""
CopySource = tuple[int, bool]
"""The token that a character takes its tag from, and whether unchanged (else B- becomes I-)."""
_INSIDE = "[+UNK]"


def encode_official(examples: Sequence[Any], task_head: TaskHead) -> list[Features]:
    """Return one truncated input per sentence; words are tokenized one by one."""
    known = sorted({word for example in examples for word in example.text.split(" ")})
    cuts = dict(zip(known, task_head.tokenizer.tokenize(known), strict=True))
    return [_features(number, example.text, cuts, task_head) for number, example in enumerate(examples)]


def _features(number: int, text: str, cuts: dict[str, TokenizedText], task_head: TaskHead) -> Features:
    from tokenizers import Encoding

    words = text.split(" ")
    mark, unknown = get_word_mark(task_head), task_head.tokenizer.hf_tokenizer.unk_token
    parts = [(word, [token.replace(mark, "") for token in cuts[word].tokens]) for word in text.split(" ")]
    whole = TokenizedText(
        text, NormalizedText(text), Encoding.merge([cuts[word].encoding for word in words], growing_offsets=False)
    )
    limit = task_head.max_length - task_head.tokenizer.count_special_tokens()
    truncated = len(whole) > limit
    whole.truncate(limit)
    joined = task_head.tokenizer.add_special_tokens(whole)
    solid = np.flatnonzero([character != " " for character in text])
    owners, firsts = _owners(parts, solid, unknown, len(joined.ids))
    fields = {"positions": _positions(parts, solid, unknown, len(joined.ids)), "owners": owners, "firsts": firsts}
    return Features(number, joined.ids, joined.type_ids, {**fields, "truncated": truncated})


def get_word_mark(task_head: TaskHead) -> str:
    """Return the mark of tokens inside (WordPiece) or at the start (SentencePiece) of a word."""
    model = type(task_head.tokenizer.backend.model).__name__
    if model not in ("WordPiece", "Unigram"):
        raise DanseoError(
            f"KLUE's own NER alignment knows WordPiece and SentencePiece, not {model}; set encoder.architecture=default"
        )
    return "##" if model == "WordPiece" else "▁"


def _positions(words: Sequence[Word], solid: Array, unknown: str, count: int) -> Array:
    """Return the character that labels each token; -1 for special tokens, which are O."""
    labelled = label_positions(words, unknown)[: count - 2]
    positions = np.full(count, -1)
    positions[1 : 1 + len(labelled)] = [solid[p] if 0 <= p < len(solid) else -1 for p in labelled]
    return positions


def _owners(words: Sequence[Word], solid: Array, unknown: str, count: int) -> tuple[Array, Array]:
    """Return the token of every character and whether it keeps its tag; -1 where KLUE's evaluation has none."""
    sources = [source for source in tag_sources(words, unknown) if source[0] < count - 1][: len(solid)]
    length = sum(len(word) + 1 for word, _ in words) - 1
    owners, firsts = np.full(length, -1), np.zeros(length, dtype=bool)
    owners[solid[: len(sources)]] = [token for token, _ in sources]
    firsts[solid[: len(sources)]] = [first for _, first in sources]
    return owners, firsts


def label_positions(words: Sequence[Word], unknown: str) -> list[int]:
    """Return the character (without spaces) that labels each token; in a word with [UNK] the word's first."""
    positions, position = [], 0
    for word, tokens in words:
        start, counted = position, unknown not in tokens
        for token in tokens:
            positions.append(position if token else -1)
            position += len(token) if counted else 0
        position = position if counted else start + len(word)
    return positions


def tag_sources(words: Sequence[Word], unknown: str) -> list[CopySource]:
    """Return the source of every character, without spaces; token 0 is [CLS]."""
    sources: list[CopySource] = []
    pointer = 1
    for word, tokens in words:
        if unknown in tokens:
            found, pointer = _unknown_sources(_units(word, tokens, unknown), pointer, unknown)
            sources += found
        else:
            sources += [(pointer + k, n == 0) for k, token in enumerate(tokens) for n in range(len(token))]
            pointer += len(tokens)
    return sources


def _unknown_sources(units: Sequence[str], pointer: int, unknown: str) -> tuple[list[CopySource], int]:
    """Return the sources in a word with [UNK], and the first token of the next word; KLUE's errors are here."""
    sources, pending = [], False
    for unit in units:
        known = unit not in (unknown, _INSIDE)
        pointer += known and pending
        sources.append((pointer, unit != _INSIDE))
        pointer += known and not pending
        pending = unit == unknown or (pending and not known)
    return sources, pointer


def _units(word: str, tokens: Sequence[str], unknown: str) -> list[str]:
    """Return the tokens, each [UNK] followed by a mark per further character it replaces."""
    units, position = [], 0
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        width = _unknown_width(word, position, after, unknown) if token == unknown else len(token)
        units += [token, *[_INSIDE] * (width - 1)] if token == unknown else [token]
        position += width
    return units


def _unknown_width(word: str, position: int, after: str, unknown: str) -> int:
    """Return the number of characters up to one that looks like the next token, or to the end of the word."""
    if after == unknown:
        return 1
    end = word.find(after[0], position + 1) if after else len(word)
    return max(end - position, 1)


def decode_official_tags(numbers: Array, record: Features, text: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of characters from the best label of every token; spaces inside an entity join it."""
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
