"""Which settings a masked training has."""

import pytest

from danseo.listing import settings_table
from danseo.models.encoder.settings import EncoderLoss
from danseo.models.gliner.settings import GlinerTraining
from danseo.models.llm.settings import LoraSettings
from danseo.models.spacy.settings import SpacyTraining
from danseo.pretraining.config import CorefConfig, PretrainConfig


@pytest.mark.parametrize("config", [PretrainConfig(), CorefConfig(checkpoint="")])
def test_lists_only_what_it_has_a_use_for(config: PretrainConfig | CorefConfig) -> None:
    named = {str(row[0]) for row in settings_table(config).rows}
    families = (EncoderLoss, GlinerTraining, LoraSettings, SpacyTraining)
    foreign = {f"train.{name}" for family in families for name in family.__dataclass_fields__}
    assert foreign
    assert not named & (foreign | {"train.select_on", "train.example_weights"})
    assert {"train.epochs", "train.optimizer", "train.threads"} <= named
