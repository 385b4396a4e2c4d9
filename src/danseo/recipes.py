"""Ready settings, a TOML file each: danseo's own and KLUE's official ones per task, sweeps and pre-trainings."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.files import write_atomically
from danseo.settings.values import with_settings
from danseo.settings.written import read_settings
from danseo.tasks import TASKS, get_task
from danseo.tasks.task import NEWEST_HALVES, Task


def recipe_folder() -> Path:
    """configs/, inside the installed package or beside its source."""
    package = Path(__file__).parent
    return package / "configs" if (package / "configs").is_dir() else package.parents[1] / "configs"


def ready_files(*folders: str) -> dict[str, Path]:
    """The files that come with danseo, or those of some folders, by name: sweeps/ner-seeds."""
    root = recipe_folder()
    names = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.glob("*/*.toml")}
    return {name: names[name] for name in sorted(names) if not folders or names[name].parent.name in folders}


def ready_file(name: str, *folders: str) -> Path:
    """A file that comes with danseo, by its name or the last part of it."""
    asked, files = name.removeprefix("configs/").removesuffix(".toml"), ready_files(*folders)
    found = [asked] if asked in files else [each for each in files if each.split("/")[1] == asked]
    if len(found) == 1:
        return files[found[0]]
    if found:
        raise DanseoError(f"{name} may be {' or '.join(found)}; name one of them")
    known = [each.split("/")[1] for each in files] if len(folders) == 1 else list(files)
    near = get_close_matches(asked, [*known, *files], 1, cutoff=0.7)
    hint = f"did you mean {near[0]}? " if near else f"{', '.join(known)} come with danseo; " if len(known) < 10 else ""
    raise DanseoError(f"{name}: no such file; {hint}`danseo configs` lists the ready ones")


def settings_file(path: Path, *folders: str) -> Path:
    """The file itself, or where there is none, the ready one of that name."""
    return path if path.exists() else ready_file(str(path), *folders)


def copy_ready(name: str | None, out: Path) -> list[Path]:
    """Copy one file, or all of them in their folders, to where they can be edited; nothing is overwritten."""
    if name:
        source = ready_file(name)
        copies = {out if out.suffix == ".toml" and not out.is_dir() else out / source.name: source}
    else:
        copies = {out / f"{each}.toml": source for each, source in ready_files().items()}
    for target, source in copies.items():
        if target.exists() and target.read_bytes() != source.read_bytes():
            raise DanseoError(f"{target} is already there with other content; move it away, or choose another --out")
    for target, source in copies.items():
        write_atomically(target, source.read_bytes())
    return list(copies)


def purpose(path: Path) -> str:
    """What a settings file is for: its first line."""
    return path.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def recipe_file(name: str, task: str, encoder: Any = None) -> Path:
    """The file of a recipe: default, official (by the encoder's size and family), or a path of the user's."""
    if name.endswith(".toml"):
        return settings_file(Path(name), "default", "official", "small")
    folder = recipe_folder() / name
    task = _with_recipe(folder, get_task(task)) if name in ("default", "small") else task
    if not (folder / f"{task}.toml").is_file():
        known = ", ".join(sorted(path.parent.name for path in recipe_folder().glob(f"*/{task}.toml")))
        raise DanseoError(f"no recipe {name!r}; known: {known}, or the path of a .toml file")
    variants = []
    if encoder is not None and getattr(encoder, "hidden_size", 0) >= 1024:
        variants.append(f"{task}-large.toml")
    if encoder is not None:
        variants.append(f"{task}-{encoder.model_type}.toml")
    return next((folder / v for v in variants if (folder / v).is_file()), folder / f"{task}.toml")


def _with_recipe(folder: Path, task: Task) -> str:
    """The task itself or, where it has no recipe, the first with such examples and answers."""
    kind = "classify" if task.kind == "labels" else task.kind  # KLUE has no texts with several labels
    related = [other.name for other in TASKS.values() if (other.kind, other.form) == (kind, task.form)]
    related += [other.name for other in TASKS.values() if other.kind == kind]
    return next((name for name in (task.name, *related) if (folder / f"{name}.toml").is_file()), task.name)


def configured(task: str, model: str, recipe: str, settings: Mapping[str, Any], encoder: Any = None) -> RunConfig:
    """The config of a run: the recipe, then the given settings; task, model and recipe are as they are named here."""
    named = {"task": task, "model": model, "recipe": recipe}
    started = {**newest_halves(get_task(task)), **read_settings(recipe_file(recipe, task, encoder), RunConfig)}
    return with_settings(RunConfig(task=task, model=model), {**started, **settings, **named})


def newest_halves(task: Task) -> dict[str, Any]:
    """The newest rule by which dev is parted, where it makes a difference: dialogues were always kept together."""
    return {"train.halves": NEWEST_HALVES} if task.cluster and task.kind != "track" else {}


def encoder_facts(model: str, recipe: str, trust_remote_code: bool = False, *, offline: bool = False) -> Any:
    """The configuration of the encoder, where the recipe depends on it; None for models that are no encoders."""
    from danseo.models.families import family_of

    if not model or recipe != "official":
        return None
    return family_of(model).facts(model, trust_remote_code, offline)
