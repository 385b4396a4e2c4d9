"""Settings of training and prompt runs, from a recipe or defaults, a file, --set and options."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.base import TRUST, AnyConfig, resolve_overrides, update_config
from danseo.config.recipes import find_settings_file
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.language import _
from danseo.models.llm.family import LOCAL, SERVER, URL_VARIABLE, with_template, with_tuning_prompt
from danseo.models.llm.formats import check_settings
from danseo.models.llm.prompt_template import load_template
from danseo.models.registry import check_family, configure_run, encoder_facts, get_family

if TYPE_CHECKING:
    from danseo.mlm.probing.items import ProbeItem
    from danseo.models.base import Family
    from danseo.models.llm.prompt_template import PromptTemplate
    from danseo.tasktypes.base import Task


def configure_training(
    task: "Task",
    model: str,
    recipe: str | None,
    file: Path | None,
    assignments: Sequence[str],
    options: Mapping[str, Any],
    on_note: Callable[[str], None] = lambda line: None,
) -> RunConfig:
    """Return the config of a training: an option beats --set, which beats the file, which beats the recipe."""
    chosen = resolve_overrides(RunConfig, options={**options, "recipe": recipe}, assignments=assignments, file=file)
    family = get_family(model)
    recipe = chosen.pop("recipe", family.recipe)
    if unused := [name for name in chosen if not family.uses_setting(name)]:
        on_note(f"note: {model} has no use for {', '.join(unused)}")
    encoder = encoder_facts(model, recipe, bool(options.get(TRUST)))
    return configure_run(task.settings_name, model, recipe, chosen, encoder)


def use_prompt_file(config: RunConfig, task: "Task", path: Path) -> "tuple[RunConfig, Family]":
    """Return the config of a training with the user's prompt, and the family that trains with it."""
    if not config.model.startswith(LOCAL):
        raise DanseoError(f"--prompt is for language models that write their answers; write -m {LOCAL}{config.model}")
    template = load_template(task, config.prompt.output_format, path, config.prompt.language)
    return with_template(config, task, template), with_tuning_prompt(get_family(config.model), template)


def configure_prompting(
    task: "Task", model: str, prompt_file: Path | None, assignments: Sequence[str], options: Mapping[str, Any]
) -> "tuple[RunConfig, PromptTemplate]":
    """Return the config of a prompted run, and its prompt."""
    if not model.startswith((LOCAL, SERVER)):
        raise DanseoError(
            _("-m {model}: danseo prompt takes llm:FOLDER, llm:HUB-ID or server:MODEL").format(model=model)
        )
    if options.get("url") and not model.startswith(SERVER):
        raise DanseoError(f"--url and --launch are for server: models; {model} runs on this machine, so leave it out")
    chosen = resolve_overrides(RunConfig, options=options, assignments=assignments, file=None)
    trust = chosen.pop(TRUST, False)
    config = update_config(RunConfig(task=task.settings_name, model=model), {**chosen, "run_type": "prompt"})
    if model.startswith(SERVER) and not config.prompt.url:
        config = update_config(config, {"prompt.url": os.environ.get(URL_VARIABLE, "")})
    check_settings(task, config.prompt)
    template = load_template(task, config.prompt.output_format, prompt_file, config.prompt.language)
    config = update_config(with_template(config, task, template), {TRUST: trust})
    check_family(config, task)
    return config, template


def configure_masked_training(
    config: AnyConfig, file: Path | None, assignments: Sequence[str], options: Mapping[str, Any]
) -> AnyConfig:
    """Return the config of `danseo pretrain` or `coref`: an option beats --set, which beats the file.

    An option that sets the length of the training also replaces other measures of it in the file.
    """
    lengths = [name for name in ("steps", "epochs", "minutes") if options.get(name) is not None]
    if len(lengths) > 1:
        raise DanseoError(
            _("--{one} and --{other} are both given; choose one").format(one=lengths[0], other=lengths[1])
        )
    replaced = {name: 0 for name in ("steps", "minutes") if lengths and name in options and name not in lengths}
    path = find_settings_file(file, "pretrain") if file else None
    chosen = resolve_overrides(type(config), options={**options, **replaced}, assignments=assignments, file=path)
    return update_config(config, chosen)


def read_probe_splits(path: Path | None, *, needs_test: bool = False) -> "dict[str, tuple[ProbeItem, ...]]":
    """Return the dev and test items of a folder, a file (dev only) or the bundled sample; all are empty for None."""
    from danseo.mlm.probing.items import read_bundled_items, read_items

    if path is None:
        return {"dev": (), "test": ()}
    if str(path) == "sample":
        return {split: tuple(read_bundled_items(split)) for split in ("dev", "test")}
    has_test = needs_test or (path / "test.jsonl").is_file()
    return {"dev": tuple(read_items(path)), "test": tuple(read_items(path, "test")) if has_test else ()}
