"""Settings of GLiNER models."""

from dataclasses import dataclass

from danseo.settings.declaring import later


@dataclass(frozen=True, kw_only=True)
class GlinerHead:
    """What types are called; brought spaCy pipelines have other words too."""

    label_words: str = later("")
    """gliner, spacy:FOLDER: what the model calls our types, as PS=person,LC=place+city; "" has the usual words."""


@dataclass(frozen=True, kw_only=True)
class GlinerTraining:
    """Whether they learn."""

    zero_shot: bool = later(False)
    """gliner: answer without learning; training examples only tune the thresholds."""
