"""All settings of a run (a family declares its own in `settings.py`), and the bundled recipes in configs/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from danseo.config.base import (
    BY_COMMAND,
    Config,
    Count,
    Seed,
    Text,
    read_saved_settings,
    replace_nested,
)
from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.gliner.settings import GlinerSettings
from danseo.models.llm.settings import LlmSettings, PromptSettings
from danseo.models.spacy.settings import SpacySettings

RunType = Literal["training", "ensemble", "soup", "prompt"]
_EVALUATIONS = "the model is evaluated and saved train.evals_per_epoch times per epoch"


class RunConfig(Config):
    """One run: the same settings give the same directory."""

    task: Text
    """The task, by name."""
    model: Text
    """Hub id, id@revision, folder, or one of majority, linear, linear:entities and linear:sentence."""
    seed: Seed = 42
    """Seed of weights, order and dropout."""
    recipe: Text = "default"
    """The ready settings to start from: default, official, or a .toml file."""
    run_type: Annotated[RunType, BY_COMMAND] = "training"
    """How the run was made."""
    max_train_samples: Count = 0
    """Use only the first N training examples; 0 takes all."""
    n_folds: Count = 0
    """Split the training examples into so many folds; 0 does not."""
    fold: Count = 0
    """The fold that is left out of training, from 0; it selects the best checkpoint instead of dev."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    train: TrainSettings = TrainSettings()
    encoder: EncoderSettings = EncoderSettings()
    llm: LlmSettings = LlmSettings()
    gliner: GlinerSettings = GlinerSettings()
    spacy: SpacySettings = SpacySettings()
    prompt: PromptSettings = PromptSettings()

    HINTS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("save_every", "save_steps", "save_strategy", "eval_every", "eval_steps", "eval_strategy"), _EVALUATIONS
        ),
        "num_train_epochs": "set train.epochs",
        "per_device_train_batch_size": "set train.batch_size",
    }

    @property
    def dev_sample(self) -> tuple[int, int]:
        """How many dev examples are predicted (0: all), and the seed that chooses them."""
        return (self.prompt.max_eval_samples, self.seed) if self.prompt.max_eval_samples else (0, 0)


BASELINES = ("majority", "linear", "linear:entities", "linear:sentence")
"""Models without an encoder; the settings of training change nothing for them."""


def read_config(path: Path) -> RunConfig:
    """Return the config of a run's config.toml."""
    settings = read_saved_settings(path, RunConfig)
    if missing := [name for name in ("task", "model") if name not in settings]:
        raise DanseoError(f"{path}: {' and '.join(missing)} missing; is this a run's config.toml?")
    return replace_nested(RunConfig(task=settings["task"], model=settings["model"]), settings)


"""Recipes that custom tasks share with the KLUE task of the same type."""
