"""Scores of answer texts: exact match, and the overlap that KLUE calls ROUGE-W."""

import re
import string
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from danseo.metrics.statistic import Counts, mean

_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]+")
# The official pattern was to remove brackets and quotes, but its class closes early, so it needs all of this in a row.
_MISTYPED = re.compile("['\"《》<>〈〉]\\(\\)‘’")
_MEANT = str.maketrans("", "", "《》〈〉「」『』‘’“”")
_HEURISTIC_FROM = 200  # difflib drops frequent characters as seeds in texts of this length

Normalize = Callable[[str], str]
Common = Callable[[str, str], int]
"""Return the length of the longest common substring of two texts."""


@lru_cache(maxsize=65536)
def normalize(text: str) -> str:
    """Return the official form: lower case, no ASCII punctuation, single spaces; Korean brackets stay."""
    if text.isalnum():
        return text.lower()  # most answers are a word or a number, with nothing to remove
    if "()‘’" in text:
        text = _MISTYPED.sub("", text)
    return " ".join(_PUNCTUATION.sub("", text.lower()).split())


def normalize_brackets(text: str) -> str:
    """Return the form that the official code intended: without Korean brackets and curly quotes as well."""
    return " ".join(normalize(text).translate(_MEANT).split())


def longest_common_substring(a: str, b: str) -> int:
    """Return the length of the longest common substring."""
    if len(a) > len(b):
        a, b = b, a
    if a in b:
        return len(a)
    best = 0
    for start in range(len(a)):
        while start + best < len(a) and a[start : start + best + 1] in b:
            best += 1
    return best


def official_common_substring(answer: str, gold: str) -> int:
    """Return the same, but for a long gold what difflib finds, whose heuristic may miss the longest."""
    if len(gold) < _HEURISTIC_FROM:
        return longest_common_substring(answer, gold)
    return SequenceMatcher(None, answer, gold).find_longest_match(0, len(answer), 0, len(gold)).size


def overlap(answer: str, gold: str, common: Common = official_common_substring) -> float:
    """Return the F1 of the longest common substring in characters, from 0 to 1; both texts are normalized."""
    if answer == gold:
        return 1.0 if len(gold) < _HEURISTIC_FROM else _f1(common(answer, gold), answer, gold)
    return _f1(common(answer, gold), answer, gold) if answer and gold else 0.0


def _f1(length: int, answer: str, gold: str) -> float:
    return 2 * length / (len(answer) + len(gold))


def exact_match(golds: Sequence[Sequence[str]], answers: Sequence[str], normal: Normalize = normalize) -> Counts:
    """Return the share of answers that equal an accepted one; no accepted one means the empty text."""
    pairs = zip(golds, answers, strict=True)
    return mean([normal(answer) in [normal(text) for text in gold or ("",)] for gold, answer in pairs])


def rouge_w(
    golds: Sequence[Sequence[str]], answers: Sequence[str], common: Common = official_common_substring
) -> Counts:
    """Return the mean over questions of the best overlap with an accepted answer."""
    return mean([best_overlap(gold, answer, common) for gold, answer in zip(golds, answers, strict=True)])


def best_overlap(gold: Sequence[str], answer: str, common: Common = official_common_substring) -> float:
    """Return the best overlap with any accepted answer."""
    accepted = gold or ("",)
    if answer in accepted and 2 * len(answer) < _HEURISTIC_FROM:  # normal forms may be longer, but not by that much
        return 1.0
    return max([overlap(normalize(answer), normalize(text), common) for text in accepted])
