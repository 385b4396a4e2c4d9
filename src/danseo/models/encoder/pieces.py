"""A tokenizer as the encoders use it: text to pieces with character offsets, and pieces to inputs."""

from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError

# Conjoining jamo, which NFKC makes of ㅋㅋ and ㅠㅠ, back to the letters that vocabularies know, one to one.
_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_TAILS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_JAMO = {
    **{0x1100 + k: letter for k, letter in enumerate(_LEADS)},
    **{0x1161 + k: letter for k, letter in enumerate(_VOWELS)},
    **{0x11A8 + k: letter for k, letter in enumerate(_TAILS)},
}


def plain_jamo(text: str) -> str:
    """The text with conjoining jamo as ordinary letters; as many characters as before."""
    return text.translate(_JAMO)


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

    def cut(self, texts: Sequence[str]) -> list[Any]:
        """The texts as pieces, without special ones: encodings with ids, tokens and offsets into the text."""
        encodings: list[Any] = self.backend.encode_batch([plain_jamo(t) for t in texts], add_special_tokens=False)
        return encodings

    def join(self, first: Any, second: Any = None) -> Any:
        """One or two encodings with the special pieces of the model around them."""
        return self.backend.post_process(first, second, True)

    def specials(self, pair: bool = False) -> int:
        """How many special pieces an input has."""
        count: int = self.backend.num_special_tokens_to_add(pair)
        return count

    def id(self, token: str) -> int:
        """The id of a piece; the unknown one when it is not in the vocabulary."""
        found: int | None = self.backend.token_to_id(token)
        return self.unknown if found is None else found


def trimmed_offsets(encoding: Any, text: str) -> list[tuple[int, int]]:
    """Offsets without the space that SentencePiece counts to the word after it; an empty piece is (0, 0)."""
    trimmed = []
    for start, end in encoding.offsets:
        while start < end and text[start].isspace():
            start += 1
        trimmed.append((start, end) if start < end else (0, 0))
    return trimmed
