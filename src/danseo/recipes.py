"""Ready settings per task: danseo's own, and KLUE's official ones; a TOML file each."""

from pathlib import Path
from typing import Any

from danseo.config import RunConfig, read_settings, with_settings
from danseo.errors import DanseoError
from danseo.hub import pretrained


def recipe_folder() -> Path:
    """configs/, inside the installed package or beside its source."""
    package = Path(__file__).parent
    return package / "configs" if (package / "configs").is_dir() else package.parents[1] / "configs"


def recipe_file(name: str, task: str, encoder: Any = None) -> Path:
    """The file of a recipe: default, official (by the encoder's size and family), or a path of the user's."""
    if name.endswith(".toml"):
        return Path(name)
    folder = recipe_folder() / name
    if not (folder / f"{task}.toml").is_file():
        known = ", ".join(sorted(path.parent.name for path in recipe_folder().glob(f"*/{task}.toml")))
        raise DanseoError(f"no recipe {name!r}; known: {known}, or the path of a .toml file")
    variants = []
    if encoder is not None and getattr(encoder, "hidden_size", 0) >= 1024:
        variants.append(f"{task}-large.toml")
    if encoder is not None:
        variants.append(f"{task}-{encoder.model_type}.toml")
    return next((folder / v for v in variants if (folder / v).is_file()), folder / f"{task}.toml")


def configured(task: str, model: str, recipe: str, settings: dict[str, Any], encoder: Any = None) -> RunConfig:
    """The config of a run: the recipe, then the given settings."""
    base = RunConfig(task=task, model=model, recipe=recipe)
    return with_settings(with_settings(base, read_settings(recipe_file(recipe, task, encoder))), settings)


def encoder_facts(model: str, recipe: str, trust_remote_code: bool = False) -> Any:
    """The configuration of the encoder, where the recipe depends on it; None for models that are no encoders."""
    from danseo.models.floor import FLOORS

    if model in FLOORS or recipe != "official":
        return None
    pretrained(model)  # what is wrong with the name shows before torch is loaded
    from danseo.models.encoder.network import load_encoder_config

    return load_encoder_config(model, trust_remote_code)
