"""The tokenizer of an encoder: texts to tokens with character offsets, and tokens to inputs."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

from danseo.errors import DanseoError
from danseo.text.normalization import NormalizedText, normalize_text


class TokenizedText:
    """A tokenized text; offsets refer to the original text."""

    def __init__(self, text: str, letters: NormalizedText, encoding: Any) -> None:
        self.text, self.letters, self.encoding = text, letters, encoding

    def __len__(self) -> int:
        return len(self.encoding)

    @property
    def ids(self) -> list[int]:
        found: list[int] = self.encoding.ids
        return found

    @property
    def tokens(self) -> list[str]:
        found: list[str] = self.encoding.tokens
        return found

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return self.letters.to_original(_drop_overlaps(self.encoding.offsets))

    def trimmed_offsets(self) -> list[tuple[int, int]]:
        """Return offsets without leading spaces; an empty token is (0, 0)."""
        trimmed = []
        for start, end in self.offsets:
            while start < end and self.text[start].isspace():
                start += 1
            trimmed.append((start, end) if start < end else (0, 0))
        return trimmed

    def truncate(self, limit: int) -> None:
        """Keep this many tokens."""
        self.encoding.truncate(limit)

    def windows(self, limit: int, overlap: int) -> list["TokenizedText"]:
        """Return itself, or overlapping windows of up to limit tokens."""
        if len(self) <= limit:
            return [self]
        self.encoding.truncate(limit, stride=overlap)
        return [TokenizedText(self.text, self.letters, part) for part in (self.encoding, *self.encoding.overflowing)]


def _drop_overlaps(offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Assign a syllable whose bytes are in two tokens to the first token."""
    found, reached = [], 0
    for start, end in offsets:
        found.append((reached, end) if start < reached < end else (start, end))
        reached = max(reached, end)
    return found


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens around one or two texts, and the segment ids."""

    before: list[int]
    middle: list[int]
    after: list[int]
    segments: list[int]

    def __len__(self) -> int:
        return len(self.before) + len(self.middle) + len(self.after)

    def fill(self, texts: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        """Return ids and segments of one or two texts with special tokens."""
        middle = [self.middle] * (len(texts) - 1)
        parts = [self.before, *(part for pair in zip_longest(texts, middle) for part in pair if part is not None)]
        parts.append(self.after)
        segments = [segment for part, segment in zip(parts, self.segments, strict=True) for _ in part]
        return [id for part in parts for id in part], segments


class EncoderTokenizer:
    """The fast tokenizer of a checkpoint and its maximum input length."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise DanseoError(f"{tokenizer.name_or_path} has no fast tokenizer (tokenizer.json); convert it first")
        self.hf_tokenizer, self.max_length = tokenizer, max_length
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.pad_id, self.unk_id = tokenizer.pad_token_id, tokenizer.unk_token_id
        added = self.backend.get_added_tokens_decoder()
        self._special = {*tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)}
        self._special.discard(self.unk_id)
        self._special_tokens: dict[bool, SpecialTokens] = {}
        self.normalizes = True

    def without_normalization(self) -> "EncoderTokenizer":
        """Return a copy that does not normalize texts, as KLUE's own code."""
        found = copy(self)
        found.normalizes = False
        return found

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Tokenize texts; text never becomes a special token."""
        read = [normalize_text(text) if self.normalizes else NormalizedText(text) for text in texts]
        encodings = self._encode([letters.text for letters in read])
        return [self._avoid_special_tokens(TokenizedText(*parts)) for parts in zip(texts, read, encodings, strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        self.backend.encode_special_tokens = True  # a call of the tokenizer itself sets it back
        encodings: list[Any] = self.backend.encode_batch(texts, add_special_tokens=False)
        return encodings

    def _avoid_special_tokens(self, cut: TokenizedText) -> TokenizedText:
        """Tokenize again without special tokens: SentencePiece may contain "<s>" as a word."""
        if self._special.isdisjoint(cut.ids):
            return cut
        letters = cut.letters.insert_spaces(self._inside_specials(cut))
        return TokenizedText(cut.text, letters, self._encode([letters.text])[0])

    def _inside_specials(self, cut: TokenizedText) -> list[int]:
        """Return the position of the second character of every special token."""
        found, text = [], cut.letters.text
        for id, (start, end) in zip(cut.ids, cut.encoding.offsets, strict=True):
            written = text[start:end].lstrip()
            if id in self._special and len(written) > 1:
                found.append(end - len(written) + 1)
        return found

    def add_special_tokens(self, first: TokenizedText, second: TokenizedText | None = None) -> Any:
        """Add the special tokens of the model to one or two texts."""
        return self.backend.post_process(first.encoding, None if second is None else second.encoding, True)

    def get_special_tokens(self, *, pair: bool = False) -> SpecialTokens:
        """Return the special tokens around one text, or around and between two."""
        if pair not in self._special_tokens:
            texts = [self.tokenize(["가"])[0] for _ in range(1 + pair)]
            joined = self.add_special_tokens(*texts)
            known = list(zip(joined.ids, joined.type_ids, joined.special_tokens_mask, strict=True))
            runs = [list(run) for _, run in groupby(known, key=lambda token: token[2])]
            special = [[id for id, _, _ in run] for run in runs if run[0][2]]
            middle = special[1] if pair else []
            self._special_tokens[pair] = SpecialTokens(special[0], middle, special[-1], [run[0][1] for run in runs])
        return self._special_tokens[pair]

    def count_special_tokens(self, pair: bool = False) -> int:
        """Return the number of special tokens of an input."""
        count: int = self.backend.num_special_tokens_to_add(pair)
        return count

    def token_id(self, token: str) -> int:
        """Return the id of a token, or of the unknown token."""
        found: int | None = self.backend.token_to_id(token)
        return self.unk_id if found is None else found
