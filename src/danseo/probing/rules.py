"""When does a guess hit the word that was there?"""

import unicodedata
from collections.abc import Callable, Sequence

RULES = ("strict", "lenient", "lenient_min2")
CUTS = (1, 5)


def cleaned(piece: str) -> str:
    """A guess as a word: composed, without marks of continuation, trimmed."""
    return unicodedata.normalize("NFC", piece).replace("##", "").strip(" \t\r\n▁Ġ")


def strict(target: str, guess: str) -> bool:
    """The same word."""
    return guess == target


def lenient(target: str, guess: str) -> bool:
    """The old rule: one stands in the other; a single syllable is enough."""
    return guess in target or target in guess


def lenient_min2(target: str, guess: str) -> bool:
    """One stands in the other, and has at least two syllables."""
    return lenient(target, guess) and min(len(guess), len(target)) >= 2


_RULES: dict[str, Callable[[str, str], bool]] = {"strict": strict, "lenient": lenient, "lenient_min2": lenient_min2}


def hits(target: str, guesses: Sequence[str]) -> dict[str, bool]:
    """strict@1, strict@5, lenient@1 and so on of guesses in order; without guesses all are misses."""
    target = cleaned(target)
    words = [cleaned(guess) for guess in guesses[: max(CUTS)]]
    made = {name: [bool(word) and rule(target, word) for word in words] for name, rule in _RULES.items()}
    return {f"{name}@{cut}": any(found[:cut]) for name, found in made.items() for cut in CUTS}
