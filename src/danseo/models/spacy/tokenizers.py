"""Korean tokenizers for spaCy: Kiwi morphemes or characters, registered as entry points."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from danseo.extras import require
from danseo.models.entity_spans import split_characters
from danseo.text.normalization import normalize_text

KIWI, CHARACTERS = "danseo.Kiwi.v1", "danseo.Characters.v1"
NAMES = {"kiwi": KIWI, "characters": CHARACTERS}
CharSpan = tuple[int, int]


def kiwi_tokenizer() -> Callable[[Any], "KoreanTokenizer"]:
    """Return a tokenizer of morphemes; those that share a syllable, as in 했, become characters."""
    return lambda nlp: KoreanTokenizer(nlp.vocab, MorphemeSplitter())


def character_tokenizer() -> Callable[[Any], "KoreanTokenizer"]:
    """Return a tokenizer of characters without spaces."""
    return lambda nlp: KoreanTokenizer(nlp.vocab, split_characters)


def register() -> None:
    """Register both tokenizers if the entry points are not installed."""
    import spacy

    for name, make in ((KIWI, kiwi_tokenizer), (CHARACTERS, character_tokenizer)):
        if not spacy.registry.has("tokenizers", name):
            spacy.registry.tokenizers.register(name, func=make)


class KoreanTokenizer:
    """A spaCy tokenizer without state."""

    def __init__(self, vocab: Any, cut: Callable[[str], Iterable[CharSpan]]) -> None:
        self.vocab, self.cut = vocab, cut

    def __call__(self, text: str) -> Any:
        from spacy.tokens import Doc

        words, spaces = split_words_and_spaces(text, list(self.cut(text)))
        return Doc(self.vocab, words=words, spaces=spaces)

    def pipe(self, texts: Iterable[str], **options: Any) -> Iterable[Any]:
        """Tokenize texts one by one."""
        return map(self, texts)

    def to_disk(self, path: Any, **options: Any) -> None:
        """Do nothing: the tokenizer has no state."""

    def from_disk(self, path: Any, **options: Any) -> "KoreanTokenizer":
        return self

    def to_bytes(self, **options: Any) -> bytes:
        return b""

    def from_bytes(self, data: bytes, **options: Any) -> "KoreanTokenizer":
        return self


class MorphemeSplitter:
    """Returns the spans of Kiwi's morphemes; loads Kiwi with the first text."""

    def __init__(self) -> None:
        require("kiwipiepy")

    def __call__(self, text: str) -> list[CharSpan]:
        letters = normalize_text(text)
        found = [(token.start, token.start + token.len) for token in _kiwi().tokenize(letters.text)]
        return letters.to_original(resolve_morphemes(letters.text, found))


@cache
def _kiwi() -> Any:
    """Return the shared Kiwi, which takes seconds to load."""
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=1)


def resolve_morphemes(text: str, found: Sequence[CharSpan]) -> list[CharSpan]:
    """Return spans without overlaps, and single characters everywhere else."""
    times = [0] * len(text)
    for start, end in found:
        for position in range(start, end):
            times[position] += 1
    kept = [
        (start, end)
        for start, end in dict.fromkeys(found)
        if start < end and max(times[start:end]) == 1 and not any(map(str.isspace, text[start:end]))
    ]
    covered = {position for start, end in kept for position in range(start, end)}
    single = [(k, k + 1) for k, letter in enumerate(text) if k not in covered and not letter.isspace()]
    return sorted(kept + single)


def split_words_and_spaces(text: str, stretches: Sequence[CharSpan]) -> tuple[list[str], list[bool]]:
    """Return words and whether a space follows each; other whitespace becomes words."""
    words: list[str] = []
    spaces: list[bool] = []
    position = 0
    for start, end in [*stretches, (len(text), len(text))]:
        gap = text[position:start]
        if words and gap.startswith(" "):
            spaces[-1], gap = True, gap[1:]
        for word in (gap, text[start:end]):
            if word:
                words.append(word)
                spaces.append(False)
        position = end
    return words, spaces
