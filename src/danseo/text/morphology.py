"""Nouns and pronouns of texts, found by Kiwi in one pass with its own workers."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from danseo.extras import require

NOUNS = ("NNG", "NNP")
PRONOUN = "NP"


class Noun(NamedTuple):
    """A noun (NNG, NNP) or pronoun (NP) and its place in the text."""

    form: str
    tag: str
    start: int
    end: int


class Analyser(Protocol):
    """What finds nouns; tests bring one that needs no Kiwi."""

    @property
    def version(self) -> str: ...

    def words(self, texts: Iterable[str]) -> Iterator[list[Noun]]:
        """The nouns and pronouns of every text, in order."""
        ...


class KiwiAnalyser:
    """Kiwi, loaded when the first text comes."""

    def __init__(self, workers: int | None = None) -> None:
        require("kiwipiepy")
        self.workers = workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or 0
        self.kiwi: Any = None

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return f"kiwipiepy {version('kiwipiepy')}"

    def words(self, texts: Iterable[str]) -> Iterator[list[Noun]]:
        if self.kiwi is None:
            from kiwipiepy import Kiwi

            self.kiwi = Kiwi(num_workers=self.workers)
        for tokens in self.kiwi.tokenize(iter(texts)):
            yield [
                Noun(token.form, token.tag, token.start, token.start + token.len)
                for token in tokens
                if token.tag in NOUNS or token.tag == PRONOUN
            ]


def find_nouns(texts: Iterable[str], analyser: Analyser | None = None) -> Iterator[list[Noun]]:
    """The nouns (NNG, NNP) of every text, in order; texts may be a stream."""
    for words in (analyser or KiwiAnalyser()).words(texts):
        yield [word for word in words if word.tag in NOUNS]
