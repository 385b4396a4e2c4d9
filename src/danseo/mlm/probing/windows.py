"""Token windows: the gap in the middle of as much text as fits the model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from unicodedata import normalize

from danseo.errors import DanseoError
from danseo.mlm.probing.items import ProbeItem, Span


class WordTokenizer:
    """Tokenizes words as at the start of a word or inside one."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.vocabulary: dict[str, int] = tokenizer.get_vocab()
        self.has_marks = any(token.startswith("##") for token in self.vocabulary)
        self.cache: dict[tuple[str, bool], tuple[int, ...]] = {}

    def tokenize(self, word: str, inside: bool) -> tuple[int, ...]:
        """Return the tokens of a word, empty if unknown; inside: it follows another letter without a space."""
        if (word, inside) not in self.cache:
            tokenize = self._tokenize_inside if inside else self._tokenize_initial
            self.cache[word, inside] = tuple(tokenize(normalize("NFC", word)))
        return self.cache[word, inside]

    def tokenize_in_gap(self, word: str, item: ProbeItem) -> tuple[int, ...]:
        """Return the tokens of a word in an item's gap; punctuation separates words only for WordPiece."""
        starts_word = not item.left or item.left[-1].isspace()
        return self.tokenize(word, item.left[-1:].isalnum() if self.has_marks else not starts_word)

    def _tokenize_initial(self, word: str) -> Sequence[int]:
        if self.has_marks:
            return self._drop_unknown(self.tokenizer(word, add_special_tokens=False)["input_ids"])
        return self._tokenize_after("( ", word)

    def _tokenize_inside(self, word: str) -> Sequence[int]:
        return self._match_longest(word) if self.has_marks else self._tokenize_after("(", word)

    def _tokenize_after(self, left: str, word: str) -> Sequence[int]:
        """Tokenize a word after an opening bracket, which never joins Hangul; a blank belongs to the word."""
        encoded = self.tokenizer(f"{left}{word}", add_special_tokens=False, return_offsets_mapping=True)
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return self._drop_unknown([token for token, (_, end) in pairs if end > 1])

    def _match_longest(self, word: str) -> Sequence[int]:
        """Tokenize from the middle of a word as WordPiece does: always the longest token that fits."""
        tokens, start = list[int](), 0
        while start < len(word):
            ends = range(len(word), start, -1)
            end = next((end for end in ends if f"##{word[start:end]}" in self.vocabulary), 0)
            if not end:
                return ()
            tokens.append(self.vocabulary[f"##{word[start:end]}"])
            start = end
        return tokens

    def _drop_unknown(self, tokens: Sequence[int]) -> Sequence[int]:
        return () if self.tokenizer.unk_token_id in tokens else tokens


BUCKETS = ((0, 64, "<64"), (64, 256, "64-256"), (256, 512, "256-512"), (512, 1024, "512-1k"), (1024, None, ">1k"))
NO_ANTECEDENT = "none"
_WORD = re.compile(r"[^\W_]+")
Spelling = Literal["natural", "separate"]


@dataclass(frozen=True)
class Window:
    """The tokens around one gap, with special tokens; `position` is that of the mask."""

    ids: tuple[int, ...]
    position: int
    limit: int
    frame: tuple[int, int]
    antecedent_in_window: bool
    distance: int | None
    respelled: bool = False

    def fill(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Return the window with these tokens in place of the mask, truncated to fit, and where they start."""
        left, right = list(self.ids[: self.position]), list(self.ids[self.position + 1 :])
        excess = max(0, len(left) + len(tokens) + len(right) - self.limit)
        from_right = min(excess, len(right) - self.frame[1])
        del right[len(right) - self.frame[1] - from_right : len(right) - self.frame[1]]
        del left[self.frame[0] : self.frame[0] + excess - from_right]
        return (*left, *tokens, *right), len(left)


def name_bucket(distance: int | None) -> str:
    """Return the name of the distance bucket, in tokens."""
    if distance is None:
        return NO_ANTECEDENT
    return next(name for low, high, name in BUCKETS if distance >= low and (high is None or distance < high))


def fit_context(before: int, after: int, room: int) -> Span:
    """Return how many tokens before and after the mask fit; one side may use what the other leaves."""
    side = (room - 1) // 2
    left = min(before, max(side, room - 1 - after))
    return left, min(after, room - 1 - left)


class WindowBuilder:
    """Builds windows with one tokenizer and one length.

    natural tokenizes the unchanged text, as training did, and puts the mask in place of the noun's tokens: [MASK] ##는.
    If a token holds the noun and more, the noun is removed first and the rest is tokenized as inside a word; such a
    window is respelled. separate writes the mask into the text, so that most tokenizers start a new word after it:
    [MASK] 는.
    """

    def __init__(self, tokenizer: Any, seq_len: int, spelling: Spelling = "natural") -> None:
        from danseo.models.encoder.tokenizer import EncoderTokenizer

        if not getattr(tokenizer, "is_fast", False):
            raise DanseoError(
                "the checkpoint has no tokenizer.json: character positions are unknown; save it with a fast tokenizer"
            )
        self.tokenizer, self.seq_len, self.spelling = tokenizer, seq_len, spelling
        self.word_tokenizer, self.text_tokenizer = WordTokenizer(tokenizer), EncoderTokenizer(tokenizer, 0)
        marks = tokenizer("가", return_special_tokens_mask=True)
        flags, ids = marks["special_tokens_mask"], marks["input_ids"]
        head = flags.index(0) if 0 in flags else 1
        tail = flags[::-1].index(0) if 0 in flags else 1
        self.head, self.tail = ids[:head], ids[len(ids) - tail :]
        self.room = seq_len - len(self.head) - len(self.tail)
        if self.room < 2:
            raise DanseoError(f"a sequence length of {seq_len} leaves no room for text; give a larger --seq-len")
        specials = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self.literal = re.compile("|".join(map(re.escape, specials)))

    def build(self, items: Sequence[ProbeItem]) -> Iterator[Window]:
        """Yield one window per item."""
        for start in range(0, len(items), 256):
            part = items[start : start + 256]
            natural = self._build_natural(part) if self.spelling == "natural" else [None] * len(part)
            others = self._build_masked([item for item, window in zip(part, natural, strict=True) if window is None])
            yield from (window or next(others) for window in natural)

    def _build_natural(self, items: Sequence[ProbeItem]) -> list[Window | None]:
        """Return windows of items whose noun has the same tokens in the text as alone; None for the others."""
        built: list[Window | None] = []
        for item, encoded in zip(items, self.text_tokenizer.tokenize([item.text for item in items]), strict=True):
            offsets, word = encoded.trimmed_offsets(), self.word_tokenizer.tokenize_in_gap(item.target, item)
            first, last = find_tokens(offsets, item.span) or (0, 0)
            covers_noun = last > 0 and (offsets[first][0], offsets[last - 1][1]) == item.span
            first = last - len(word)  # SentencePiece may have a token for the blank before a word
            is_same = bool(word) and first >= 0 and tuple(encoded.ids[first:last]) == word
            gap = (first, last)
            built.append(self._make_window(item, encoded.ids, offsets, gap) if covers_noun and is_same else None)
        return built

    def _build_masked(self, items: Sequence[ProbeItem]) -> Iterator[Window]:
        """Yield windows of texts with the mask written into them; natural ones join the suffix to it."""
        if not items:
            return
        encoded = self.tokenizer(
            [self.mask_text(item) for item in items],
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=False,
            verbose=False,
        )
        for item, ids, offsets in zip(items, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            position = ids.index(self.tokenizer.mask_token_id)
            if self.spelling == "separate":
                yield self._make_window(item, ids, offsets, (position, position + 1))
                continue
            suffix = _WORD.match(item.right)
            joined = self._join_suffix(ids, offsets, position, suffix[0]) if suffix else ids
            blank = position > 0 and item.text[slice(*offsets[position - 1])].isspace()  # of the word, if set apart
            yield self._make_window(item, joined, offsets, (position - blank, position + 1), respelled=True)

    def mask_text(self, item: ProbeItem) -> str:
        """Return the text with the mask token in the gap; other special tokens in the text are replaced by dots."""
        return f"{self._escape_specials(item.left)}{self.tokenizer.mask_token}{self._escape_specials(item.right)}"

    def _escape_specials(self, text: str) -> str:
        return self.literal.sub(lambda match: "·" * len(match[0]), text)

    def _make_window(
        self, item: ProbeItem, ids: list[int], offsets: list[Span], gap: Span, *, respelled: bool = False
    ) -> Window:
        first, last = gap
        left, right = fit_context(first, len(ids) - last, self.room)
        span = find_tokens(offsets[:first], item.antecedent) if item.antecedent else None
        return Window(
            ids=(
                *self.head,
                *ids[first - left : first],
                self.tokenizer.mask_token_id,
                *ids[last : last + right],
                *self.tail,
            ),
            position=len(self.head) + left,
            limit=self.seq_len,
            frame=(len(self.head), len(self.tail)),
            antecedent_in_window=span is not None and span[0] >= first - left,
            distance=None if span is None else max(0, first - span[1]),
            respelled=respelled,
        )

    def _join_suffix(self, ids: list[int], offsets: list[Span], position: int, suffix: str) -> list[int]:
        """Return the ids with the suffix after the mask tokenized as inside a word; unchanged if it is unknown."""
        start = offsets[position][1]
        count = sum(start <= first < start + len(suffix) for first, _ in offsets[position + 1 :])
        tokens = self.word_tokenizer.tokenize(suffix, inside=True)
        return [*ids[: position + 1], *tokens, *ids[position + 1 + count :]] if tokens else ids


def find_tokens(offsets: Sequence[Span], span: Span) -> Span | None:
    """Return the range of tokens that overlap a span of text, or None."""
    start, end = span
    tokens = [k for k, (first, last) in enumerate(offsets) if first < end and last > start]
    return (tokens[0], tokens[-1] + 1) if tokens else None


def remove_mentions(item: ProbeItem) -> ProbeItem:
    """Delete every other mention of the target (the control: the model cannot copy it)."""
    left, right = item.left.replace(item.target, ""), item.right.replace(item.target, "")
    text = f"{left}{item.target}{right}"
    span = (len(left), len(left) + len(item.target))
    return replace(item, text=text, span=span, antecedent=None, distance=None)
