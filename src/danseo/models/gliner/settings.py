"""Settings of GLiNER models."""

from danseo.config.base import Section, Text


class GlinerSettings(Section):
    """How a GLiNER model names entity types, and whether it learns."""

    label_names: Text = ""
    """Names of the entity types for the model, as PS=person,LC=place+city; empty takes common names."""
    zero_shot: bool = False
    """Predict without training; training examples only tune the thresholds."""
