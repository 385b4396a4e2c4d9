"""Korean tokens for spaCy: Kiwi's morphemes, or characters; spaCy finds both by the names in the project's file."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from danseo.extras import require
from danseo.models.spans import characters
from danseo.text.letters import letters_of

KIWI, CHARACTERS = "danseo.Kiwi.v1", "danseo.Characters.v1"
NAMES = {"kiwi": KIWI, "characters": CHARACTERS}
Stretch = tuple[int, int]


def kiwi_tokenizer() -> Callable[[Any], "Tokens"]:
    """Morphemes; where several share a syllable, as in 했, its characters."""
    return lambda nlp: Tokens(nlp.vocab, Morphemes())


def character_tokenizer() -> Callable[[Any], "Tokens"]:
    """Every character that is no space."""
    return lambda nlp: Tokens(nlp.vocab, characters)


def register() -> None:
    """Make both known to spaCy where the installed project does not yet."""
    import spacy

    for name, make in ((KIWI, kiwi_tokenizer), (CHARACTERS, character_tokenizer)):
        if not spacy.registry.has("tokenizers", name):
            spacy.registry.tokenizers.register(name, func=make)


class Tokens:
    """A tokenizer as spaCy wants one: text in, Doc out, nothing to be saved."""

    def __init__(self, vocab: Any, cut: Callable[[str], Iterable[Stretch]]) -> None:
        self.vocab, self.cut = vocab, cut

    def __call__(self, text: str) -> Any:
        from spacy.tokens import Doc

        words, spaces = laid_out(text, list(self.cut(text)))
        return Doc(self.vocab, words=words, spaces=spaces)

    def pipe(self, texts: Iterable[str], **options: Any) -> Iterable[Any]:
        """One after the other."""
        return map(self, texts)

    def to_disk(self, path: Any, **options: Any) -> None:
        """Nothing: the name of the tokenizer says all."""

    def from_disk(self, path: Any, **options: Any) -> "Tokens":
        return self

    def to_bytes(self, **options: Any) -> bytes:
        return b""

    def from_bytes(self, data: bytes, **options: Any) -> "Tokens":
        return self


class Morphemes:
    """Where Kiwi's morphemes stand; it is loaded with the first text."""

    def __init__(self) -> None:
        require("kiwipiepy")

    def __call__(self, text: str) -> list[Stretch]:
        letters = letters_of(text)
        found = [(token.start, token.start + token.len) for token in _kiwi().tokenize(letters.text)]
        return letters.given(whole(letters.text, found))


@cache
def _kiwi() -> Any:
    """One for all pipelines: it takes seconds to load."""
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=1)


def whole(text: str, found: Sequence[Stretch]) -> list[Stretch]:
    """The stretches that share no character with others, and single characters everywhere else."""
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


def laid_out(text: str, stretches: Sequence[Stretch]) -> tuple[list[str], list[bool]]:
    """Words, and whether a space follows each, that make up the text; other blanks are words of their own."""
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
