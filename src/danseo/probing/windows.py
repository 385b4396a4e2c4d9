"""Token windows: the gap in the middle of as much text as the model reads."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from danseo.errors import DanseoError
from danseo.probing.items import ProbeItem, Span
from danseo.probing.pieces import WordPieces

BUCKETS = ((0, 64, "<64"), (64, 256, "64-256"), (256, 512, "256-512"), (512, 1024, "512-1k"), (1024, None, ">1k"))
NO_ANTECEDENT = "none"
_WORD = re.compile(r"[^\W_]+")
Spelling = Literal["natural", "separate"]


@dataclass(frozen=True)
class Window:
    """The pieces around one gap, the frame of special pieces included; `place` is that of the mask."""

    ids: tuple[int, ...]
    position: int
    limit: int
    frame: tuple[int, int]
    antecedent_in_window: bool
    distance: int | None
    respelled: bool = False

    def filled(self, pieces: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The window with these pieces in place of the mask, and where they start; what no longer fits is cut."""
        left, right = list(self.ids[: self.position]), list(self.ids[self.position + 1 :])
        excess = max(0, len(left) + len(pieces) + len(right) - self.limit)
        from_right = min(excess, len(right) - self.frame[1])
        del right[len(right) - self.frame[1] - from_right : len(right) - self.frame[1]]
        del left[self.frame[0] : self.frame[0] + excess - from_right]
        return (*left, *pieces, *right), len(left)


def bucket_of(distance: int | None) -> str:
    """The distance as one of a few ranges of pieces."""
    if distance is None:
        return NO_ANTECEDENT
    return next(name for low, high, name in BUCKETS if distance >= low and (high is None or distance < high))


def clip(before: int, after: int, room: int) -> Span:
    """How many of the pieces before and after the mask fit; what one side does not need goes to the other."""
    side = (room - 1) // 2
    left = min(before, max(side, room - 1 - after))
    return left, min(after, room - 1 - left)


class Windows:
    """Makes windows with one tokenizer and one length.

    natural cuts the text into pieces as it stands, as training did, and puts the mask in place of the noun's: [MASK]
    ##는. Where a piece holds the noun and more, the noun is taken out first and what follows is spelled as inside a
    word; such a window is respelled. separate writes the mask into the text, so that most tokenizers spell the particle
    behind it as a new word: [MASK] 는.
    """

    def __init__(self, tokenizer: Any, seq_len: int, spelling: Spelling = "natural") -> None:
        from danseo.models.encoder.pieces import Pieces

        if not getattr(tokenizer, "is_fast", False):
            raise DanseoError("the checkpoint's tokenizer has no tokenizer.json, so positions in the text are unknown")
        self.tokenizer, self.seq_len, self.spelling = tokenizer, seq_len, spelling
        self.words, self.cutter = WordPieces(tokenizer), Pieces(tokenizer, 0)
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

    def of(self, items: Sequence[ProbeItem]) -> Iterator[Window]:
        """One window per item."""
        for start in range(0, len(items), 256):
            part = items[start : start + 256]
            natural = self._natural(part) if self.spelling == "natural" else [None] * len(part)
            others = self._written([item for item, window in zip(part, natural, strict=True) if window is None])
            yield from (window or next(others) for window in natural)

    def _natural(self, items: Sequence[ProbeItem]) -> list[Window | None]:
        """The items whose noun is spelled in the text as it is alone; None for the others."""
        made: list[Window | None] = []
        for item, cut in zip(items, self.cutter.cut([item.text for item in items]), strict=True):
            offsets, word = cut.trimmed_offsets(), self.words.in_gap(item.target, item)
            first, last = touching(offsets, item.span) or (0, 0)
            is_whole = last > 0 and (offsets[first][0], offsets[last - 1][1]) == item.span
            first = last - len(word)  # SentencePiece may set the blank before a word apart
            is_same = bool(word) and first >= 0 and tuple(cut.ids[first:last]) == word
            made.append(self._window(item, cut.ids, offsets, (first, last)) if is_whole and is_same else None)
        return made

    def _written(self, items: Sequence[ProbeItem]) -> Iterator[Window]:
        """Windows of texts with the mask written into them; natural ones go on behind it as inside a word."""
        if not items:
            return
        encoded = self.tokenizer(
            [self.masked_text(item) for item in items],
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=False,
            verbose=False,
        )
        for item, ids, offsets in zip(items, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            position = ids.index(self.tokenizer.mask_token_id)
            if self.spelling == "separate":
                yield self._window(item, ids, offsets, (position, position + 1))
                continue
            rest = _WORD.match(item.right)
            joined = self._joined(ids, offsets, position, rest[0]) if rest else ids
            blank = position > 0 and item.text[slice(*offsets[position - 1])].isspace()  # of the word, if set apart
            yield self._window(item, joined, offsets, (position - blank, position + 1), respelled=True)

    def masked_text(self, item: ProbeItem) -> str:
        """The text with the tokenizer's own mask in the gap; anything else that looks special is made harmless."""
        return f"{self._harmless(item.left)}{self.tokenizer.mask_token}{self._harmless(item.right)}"

    def _harmless(self, text: str) -> str:
        return self.literal.sub(lambda match: "·" * len(match[0]), text)

    def _window(
        self, item: ProbeItem, ids: list[int], offsets: list[Span], gap: Span, *, respelled: bool = False
    ) -> Window:
        first, last = gap
        left, right = clip(first, len(ids) - last, self.room)
        span = touching(offsets[:first], item.antecedent) if item.antecedent else None
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

    def _joined(self, ids: list[int], offsets: list[Span], position: int, rest: str) -> list[int]:
        start = offsets[position][1]
        count = sum(start <= first < start + len(rest) for first, _ in offsets[position + 1 :])
        spelled = self.words.of(rest, inside=True)
        return [*ids[: position + 1], *spelled, *ids[position + 1 + count :]] if spelled else ids


def touching(offsets: Sequence[Span], span: Span) -> Span | None:
    """The first piece that holds something of a stretch of text, and the one behind the last."""
    start, end = span
    found = [k for k, (first, last) in enumerate(offsets) if first < end and last > start]
    return (found[0], found[-1] + 1) if found else None


def without_mentions(item: ProbeItem) -> ProbeItem:
    """The control: every other mention of the target is deleted, so that nothing is left to copy."""
    left, right = item.left.replace(item.target, ""), item.right.replace(item.target, "")
    text = f"{left}{item.target}{right}"
    span = (len(left), len(left) + len(item.target))
    return replace(item, text=text, span=span, antecedent=None, distance=None)
