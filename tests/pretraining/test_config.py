"""Which settings a masked training has."""

from pathlib import Path

import pytest

from danseo.cli.pretraining import configured
from danseo.errors import DanseoError
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


def test_an_option_that_says_how_long_silences_what_a_file_says_in_another_measure(tmp_path: Path):
    file = tmp_path / "long.toml"
    file.write_text("steps = 6250\n", encoding="utf-8")
    unsaid = {"steps": None, "epochs": None, "minutes": None}
    assert configured(PretrainConfig(), file, (), unsaid).steps == 6250
    by_epochs = configured(PretrainConfig(), file, (), {**unsaid, "epochs": 2.0})
    assert (by_epochs.steps, by_epochs.minutes, by_epochs.train.epochs) == (0, 0.0, 2.0)
    by_minutes = configured(PretrainConfig(), file, (), {**unsaid, "minutes": 3.0})
    assert (by_minutes.steps, by_minutes.minutes) == (0, 3.0)
    assert configured(PretrainConfig(), file, (), {**unsaid, "steps": 9}).steps == 9
    with pytest.raises(DanseoError, match="--steps and --epochs are both given; choose one"):
        configured(PretrainConfig(), file, (), {**unsaid, "steps": 9, "epochs": 1.0})
