"""A word as pieces of a vocabulary, as they would stand in its place in the text."""

from collections.abc import Sequence
from typing import Any
from unicodedata import normalize

from danseo.probing.items import ProbeItem


class WordPieces:
    """Turns words into pieces: those that begin a word, or those that go on inside one."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.vocabulary: dict[str, int] = tokenizer.get_vocab()
        self.has_marks = any(piece.startswith("##") for piece in self.vocabulary)
        self.known: dict[tuple[str, bool], tuple[int, ...]] = {}

    def of(self, word: str, inside: bool) -> tuple[int, ...]:
        """The pieces of a word; inside: it follows another letter without a space. Empty where the word is unknown."""
        if (word, inside) not in self.known:
            spelled = self._inside if inside else self._initial
            self.known[word, inside] = tuple(spelled(normalize("NFC", word)))
        return self.known[word, inside]

    def in_gap(self, word: str, item: ProbeItem) -> tuple[int, ...]:
        """The pieces of a word in the gap of an item: signs part words for WordPiece, only blanks for others."""
        parted = not item.left or item.left[-1].isspace()
        return self.of(word, continues(item.left) if self.has_marks else not parted)

    def _initial(self, word: str) -> Sequence[int]:
        if self.has_marks:
            return self._known(self.tokenizer(word, add_special_tokens=False)["input_ids"])
        return self._behind("( ", word)

    def _inside(self, word: str) -> Sequence[int]:
        return self._marked(word) if self.has_marks else self._behind("(", word)

    def _behind(self, left: str, word: str) -> Sequence[int]:
        """The pieces behind an opening bracket, which never joins a Hangul piece; a blank counts to the word."""
        encoded = self.tokenizer(f"{left}{word}", add_special_tokens=False, return_offsets_mapping=True)
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return self._known([piece for piece, (_, end) in pairs if end > 1])

    def _marked(self, word: str) -> Sequence[int]:
        """WordPiece from the middle of a word: always the longest piece that fits."""
        pieces, start = list[int](), 0
        while start < len(word):
            ends = range(len(word), start, -1)
            end = next((end for end in ends if f"##{word[start:end]}" in self.vocabulary), 0)
            if not end:
                return ()
            pieces.append(self.vocabulary[f"##{word[start:end]}"])
            start = end
        return pieces

    def _known(self, pieces: Sequence[int]) -> Sequence[int]:
        return () if self.tokenizer.unk_token_id in pieces else pieces


def continues(left: str) -> bool:
    """Whether what follows stands inside a word: letters and digits join, blanks and signs part."""
    return bool(left) and left[-1].isalnum()
