"""A tokenizer as the encoders use it: text to pieces with character offsets, and pieces to inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

from danseo.errors import DanseoError
from danseo.text.letters import Letters, letters_of


class Cut:
    """A text as pieces; their offsets are about the text as it was given."""

    def __init__(self, text: str, letters: Letters, encoding: Any) -> None:
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
        return self.letters.given(_apart(self.encoding.offsets))

    def trimmed_offsets(self) -> list[tuple[int, int]]:
        """Offsets without the space that SentencePiece counts to the word after it; an empty piece is (0, 0)."""
        trimmed = []
        for start, end in self.offsets:
            while start < end and self.text[start].isspace():
                start += 1
            trimmed.append((start, end) if start < end else (0, 0))
        return trimmed

    def truncate(self, limit: int) -> None:
        """Leave that many pieces."""
        self.encoding.truncate(limit)

    def windows(self, limit: int, overlap: int) -> list["Cut"]:
        """Itself, or parts of up to that many pieces that share some with the next."""
        if len(self) <= limit:
            return [self]
        self.encoding.truncate(limit, stride=overlap)
        return [Cut(self.text, self.letters, part) for part in (self.encoding, *self.encoding.overflowing)]


def _apart(offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A syllable whose bytes lie in two pieces belongs to the one that begins it; the other has what follows."""
    found, reached = [], 0
    for start, end in offsets:
        found.append((reached, end) if start < reached < end else (start, end))
        reached = max(reached, end)
    return found


@dataclass(frozen=True)
class Frame:
    """The special pieces around one text or two, and the segments of those pieces and texts in their order."""

    before: list[int]
    middle: list[int]
    after: list[int]
    segments: list[int]

    def __len__(self) -> int:
        return len(self.before) + len(self.middle) + len(self.after)

    def filled(self, texts: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        """Ids and segments of one text or two with the special pieces around them."""
        middle = [self.middle] * (len(texts) - 1)
        parts = [self.before, *(part for pair in zip_longest(texts, middle) for part in pair if part is not None)]
        parts.append(self.after)
        segments = [segment for part, segment in zip(parts, self.segments, strict=True) for _ in part]
        return [id for part in parts for id in part], segments


class Pieces:
    """The fast tokenizer of a checkpoint and the longest input its encoder takes."""

    def __init__(self, tokenizer: Any, longest: int) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise DanseoError(f"{tokenizer.name_or_path} has no fast tokenizer (tokenizer.json); convert it first")
        self.tokenizer, self.longest = tokenizer, longest
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.pad, self.unknown = tokenizer.pad_token_id, tokenizer.unk_token_id
        added = self.backend.get_added_tokens_decoder()
        self._special = {*tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)}
        self._special.discard(self.unknown)
        self._frames: dict[bool, Frame] = {}

    def cut(self, texts: Sequence[str], *, plain: bool = True) -> list[Cut]:
        """The texts as pieces, none of them special whatever the texts say; plain as in letters_of."""
        read = [letters_of(text, plain=plain) for text in texts]
        encodings = self._encode([letters.text for letters in read])
        return [self._ordinary(Cut(*parts)) for parts in zip(texts, read, encodings, strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        self.backend.encode_special_tokens = True  # a call of the tokenizer itself sets it back
        encodings: list[Any] = self.backend.encode_batch(texts, add_special_tokens=False)
        return encodings

    def _ordinary(self, cut: Cut) -> Cut:
        """The text cut so that no piece is special: SentencePiece may know "<s>" as a word like any other."""
        if self._special.isdisjoint(cut.ids):
            return cut
        letters = cut.letters.parted(self._inside_specials(cut))
        return Cut(cut.text, letters, self._encode([letters.text])[0])

    def _inside_specials(self, cut: Cut) -> list[int]:
        """The second character of every special piece."""
        found, text = [], cut.letters.text
        for id, (start, end) in zip(cut.ids, cut.encoding.offsets, strict=True):
            written = text[start:end].lstrip()
            if id in self._special and len(written) > 1:
                found.append(end - len(written) + 1)
        return found

    def join(self, first: Cut, second: Cut | None = None) -> Any:
        """One or two texts with the special pieces of the model around them."""
        return self.backend.post_process(first.encoding, None if second is None else second.encoding, True)

    def frame(self, *, pair: bool = False) -> Frame:
        """What stands around one text, or around two and between them."""
        if pair not in self._frames:
            texts = [self.cut(["가"])[0] for _ in range(1 + pair)]
            joined = self.join(*texts)
            known = list(zip(joined.ids, joined.type_ids, joined.special_tokens_mask, strict=True))
            runs = [list(run) for _, run in groupby(known, key=lambda piece: piece[2])]
            special = [[id for id, _, _ in run] for run in runs if run[0][2]]
            middle = special[1] if pair else []
            self._frames[pair] = Frame(special[0], middle, special[-1], [run[0][1] for run in runs])
        return self._frames[pair]

    def specials(self, pair: bool = False) -> int:
        """How many special pieces an input has."""
        count: int = self.backend.num_special_tokens_to_add(pair)
        return count

    def id(self, token: str) -> int:
        """The id of a piece; the unknown one when it is not in the vocabulary."""
        found: int | None = self.backend.token_to_id(token)
        return self.unknown if found is None else found
