"""All settings of a run together; those of a family or a task are declared in its own room, in `settings.py`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from danseo.errors import DanseoError
from danseo.models.encoder.settings import EncoderHead, EncoderLoss
from danseo.models.gliner.settings import GlinerHead, GlinerTraining
from danseo.models.llm.settings import LoraSettings, PromptConfig
from danseo.models.spacy.settings import SpacyHead, SpacyTraining
from danseo.settings.declaring import Bounds, later, setting
from danseo.settings.history import Change, Rewritten
from danseo.settings.values import put_in
from danseo.settings.written import read_kept
from danseo.training.settings import FitSettings

Kind = Literal["training", "ensemble", "soup", "prompt"]
SEEDS = Bounds(-(2**63) + 1, 2**63 - 1)  # what torch takes


@dataclass(frozen=True, kw_only=True)
class _CommonHead:
    """What every model that reads pieces has."""

    max_length: int = setting(128, above=0)
    """Longest input in pieces, special ones included."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig(GlinerHead, SpacyHead, EncoderHead, _CommonHead):
    """How examples become inputs, and outputs answers; what the last one has is listed first."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(GlinerTraining, SpacyTraining, LoraSettings, EncoderLoss, FitSettings):
    """How the weights are fitted; what the last one has is listed first."""


def _kind_from_recipe(settings: dict[str, Any]) -> dict[str, Any]:
    """Schema 2: ensembles and soups are kinds of runs; they were said to be recipes."""
    if settings.get("recipe") in ("ensemble", "soup"):
        return {**settings, "kind": settings["recipe"], "recipe": "default"}
    return settings


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: the same settings give the same directory."""

    task: str
    """The task, by name."""
    model: str
    """Hub id, id@revision, folder, or one of majority, linear, linear:entities and linear:sentence."""
    seed: int = setting(42, bounds=SEEDS)
    """Seed of weights, order and dropout."""
    recipe: str = "default"
    """The settings that were started from."""
    kind: Kind = later("training", by_command=True)
    """How the run was made; the command says it."""
    limit: int = 0
    """Only this many training examples; 0 takes all."""
    folds: int = later(0)
    """Part the training examples into so many folds, texts whole and labels evenly; 0 does not."""
    fold: int = later(0)
    """The fold that is left out of training, from 0: it picks the checkpoint, so dev picks nothing."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    head: HeadConfig = field(default_factory=HeadConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)

    CHANGES: ClassVar[tuple[Change, ...]] = (Rewritten(_kind_from_recipe),)


FLOORS = ("majority", "linear", "linear:entities", "linear:sentence")
"""Models that need no encoder; of the settings of training none counts for them."""


def read_config(path: Path) -> RunConfig:
    """The config that to_toml wrote, now or in an earlier version."""
    settings = read_kept(path, RunConfig)
    if missing := [name for name in ("task", "model") if name not in settings]:
        raise DanseoError(f"{path}: {' and '.join(missing)} missing; is this a run's config.toml?")
    return put_in(RunConfig(task=settings["task"], model=settings["model"]), settings)
