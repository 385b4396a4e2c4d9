"""Settings of spaCy pipelines."""

from dataclasses import dataclass
from typing import Literal

from danseo.settings.declaring import later


@dataclass(frozen=True, kw_only=True)
class SpacyHead:
    """What is tagged."""

    words: Literal["kiwi", "characters"] = later("kiwi")
    """spacy: the tokens, Kiwi's morphemes or single characters."""


@dataclass(frozen=True, kw_only=True)
class SpacyTraining:
    """How long they learn."""

    max_steps: int = later(0)
    """spacy: most optimiser steps; 0 is 20,000."""
