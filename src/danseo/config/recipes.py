"""Bundled settings files (configs/): recipes per task, sweeps, pre-trainings; and the bundled prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.config.base import read_settings, update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError, suggest
from danseo.files import find_path_fault, quote, write_atomically
from danseo.language import _
from danseo.tasks import TASKS, get_task
from danseo.tasktypes.base import Task

_GENERAL = ("default", "small", "llm")
"""Recipes that custom tasks share with the KLUE task of the same type."""


def find_configs_folder() -> Path:
    """Return configs/ of the installed package, or of the checkout."""
    package = Path(__file__).parents[1]
    return package / "configs" if (package / "configs").is_dir() else package.parents[1] / "configs"


def list_bundled_files(*folders: str) -> dict[str, Path]:
    """Return the bundled files by name (sweeps/ner-seeds, prompts/ner), of some folders or of all."""
    root, prompts = find_configs_folder(), Path(__file__).parents[1] / "models" / "llm" / "templates"
    files = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.glob("*/*.toml")}
    files |= {f"prompts/{path.stem}": path for path in prompts.glob("*.txt")}
    return {name: files[name] for name in sorted(files) if not folders or name.split("/")[0] in folders}


def find_bundled_file(name: str, *folders: str) -> Path:
    """Return a bundled file by its name, or by the last part of it."""
    key = name.removeprefix("configs/").removesuffix(".toml").removesuffix(".txt")
    files = list_bundled_files(*folders)
    matches = [key] if key in files else [each for each in files if each.split("/")[1] == key]
    if len(matches) == 1:
        return files[matches[0]]
    if matches:
        raise DanseoError(f"{name} may be {' or '.join(matches)}; name one of them")
    known = [each.split("/")[1] for each in files] if len(folders) == 1 else list(files)
    hint = suggest(key, [*known, *files], 0.7) or (
        _("{names} are bundled; ").format(names=", ".join(known)) if len(known) < 10 else ""
    )
    raise DanseoError(
        _("no such file: {name}; {hint}`danseo configs` lists the bundled ones").format(name=name, hint=hint)
    )


def find_settings_file(path: Path, *folders: str) -> Path:
    """Return the path if it exists, else the bundled file of that name."""
    return path if path.exists() else find_bundled_file(str(path), *folders)


def copy_bundled_files(name: str | None, out: Path) -> list[Path]:
    """Copy one bundled file, or all of them in their folders; a file with other content is not overwritten."""
    if name:
        source = find_bundled_file(name)
        copies = {out if out.suffix == source.suffix and not out.is_dir() else out / source.name: source}
    else:
        copies = {out / f"{each}{source.suffix}": source for each, source in list_bundled_files().items()}
    for target, source in copies.items():
        if target.exists() and target.read_bytes() != source.read_bytes():
            raise DanseoError(f"{target} exists with other content; move it away, or choose another --out")
    for target, source in copies.items():
        write_atomically(target, source.read_bytes())
    return list(copies)


def read_purpose(path: Path) -> str:
    """Return the purpose of a bundled file: the first line of a settings file."""
    if path.suffix == ".txt":
        return f"The prompt for {path.stem}." if path.stem != "classify" else "The prompt for own classification tasks."
    return path.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def find_recipe_file(name: str, task: str, encoder: Any = None) -> Path:
    """Return the file of a recipe: default, official (by the encoder's size and family), or the user's path."""
    if fault := find_path_fault(name):
        raise DanseoError(f"recipe {quote(name)} {fault}; name a recipe or the path of a .toml file")
    if name.endswith(".toml"):
        return find_settings_file(Path(name), "default", "official", "small")
    found, folder = get_task(task), find_configs_folder() / name
    stem = _recipe_stem(folder, found)
    if not (folder / f"{stem}.toml").is_file():
        folders = sorted({path.parent for path in find_configs_folder().glob("*/*.toml")})
        known = [each.name for each in folders if (each / f"{_recipe_stem(each, found)}.toml").is_file()]
        raise DanseoError(
            _("no recipe {name!r}; known: {names}, or the path of a .toml file").format(
                name=name, names=", ".join(known)
            )
        )
    variants = []
    if encoder is not None:
        is_large = getattr(encoder, "hidden_size", 0) >= 1024
        variants = [f"{stem}-large.toml"] * is_large + [f"{stem}-{encoder.model_type}.toml"]
    return next((folder / each for each in variants if (folder / each).is_file()), folder / f"{stem}.toml")


def _recipe_stem(folder: Path, task: Task) -> str:
    """Return the task's name or, if it has no general recipe, that of the first KLUE task of its type."""
    if folder.name not in _GENERAL:
        return task.settings_name
    type_ = task.type.related or task.type.name
    same = [other for other in TASKS.values() if other.type.name == type_]
    related = [other.name for other in sorted(same, key=lambda other: other.is_pair != task.is_pair)]
    return next((name for name in (task.name, *related) if (folder / f"{name}.toml").is_file()), task.name)


def apply_recipe(task: str, model: str, recipe: str, settings: Mapping[str, Any], encoder: Any = None) -> RunConfig:
    """Return the config of a run: the recipe, changed by the given settings."""
    recipe_settings = read_settings(find_recipe_file(recipe, task, encoder), RunConfig)
    named = {"task": task, "model": model, "recipe": recipe}
    return update_config(RunConfig(task=task, model=model), {**recipe_settings, **settings, **named})
