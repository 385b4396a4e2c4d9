"""Settings of spaCy pipelines."""

from typing import Literal

from danseo.config.base import Count, Section, Text


class SpacySettings(Section):
    """Tokens, training length and entity names of a spaCy pipeline."""

    tokenizer: Literal["kiwi", "characters"] = "kiwi"
    """Tokens: Kiwi's morphemes, or single characters."""
    max_steps: Count = 0
    """Maximum number of optimiser steps; 0 is 20,000, or no limit if max_epochs is set."""
    max_epochs: Count = 0
    """Maximum number of passes over the training examples; 0 is no limit."""
    ner: Literal["auto", "new", "continued", "frozen"] = "auto"
    """spacy:FOLDER: train a new NER, continue its own, or score it (frozen); auto continues it if it has all labels."""
    label_names: Text = ""
    """spacy:FOLDER: names of the pipeline for our entity types, as PS=PERSON,LC=GPE+LOC."""
