"""danseo tune, sweep and mine: many runs, to search settings, to try all of a file, to find hard examples."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import (
    PATH,
    POSITIVE,
    FullHelpGroup,
    MultiValueCommand,
    print_notes_unless,
    show_tables,
)
from danseo.cli.pretrain import coref_command, pretrain_command, require_checkpoint, require_text
from danseo.cli.train import train_command
from danseo.display.escaping import say
from danseo.display.progress import Waiting
from danseo.errors import DanseoError, PartlyDone
from danseo.extras import require

if TYPE_CHECKING:
    pass

_SEARCH_OPTIONS = (
    click.Option(
        ["--space"],
        required=True,
        type=PATH,
        help="TOML file: learning_rate = {low = 1e-5, high = 1e-4, log = true}, or setting = [choices].",
    ),
    click.Option(["--trials"], default=20, type=POSITIVE, help="Total number of trials."),
    click.Option(
        ["--storage"],
        default="",
        show_default=False,
        help="File or database URL; several processes may share it. [default: STUDY.study in the folder of runs]",
    ),
    click.Option(
        ["--study"],
        default="",
        show_default=False,
        metavar="NAME",
        help="Name of the study in the storage. [default: from settings, space and data]",
    ),
    click.Option(
        ["--pruner"],
        type=click.Choice(["median", "halving", "hyperband", "none"]),
        default="median",
        help="How to stop bad trials early.",
    ),
    click.Option(
        ["--sampler"], type=click.Choice(["tpe", "random", "qmc"]), default="tpe", help="How the next trial is chosen."
    ),
    click.Option(["--startup"], default=4, type=POSITIVE, help="Number of random trials at the start."),
    click.Option(["--search-seed"], default=0, type=int, help="Seed of the search."),
    click.Option(
        ["--results"], type=PATH, metavar="DIR", help="Folder for the best settings and plots. [default: tune/STUDY]"
    ),
)
_PROBE_OPTIONS = (
    click.Option(
        ["--probe-items", "probes"],
        type=PATH,
        metavar="DIR|sample",
        required=True,
        help="Folder with dev.jsonl, to compare trials, and test.jsonl, used once at the end.",
    ),
    click.Option(
        ["--metric"],
        type=click.Choice(["composite", "strict@1", "strict@5"]),
        default="composite",
        help="Score on the dev items to maximise.",
    ),
)


@click.group("tune", cls=FullHelpGroup)
def tune_command() -> None:
    """Search for good settings of a training command (Optuna).

    The same command resumes; several may run in parallel.
    """


def _register_tuned(
    command: click.Command, added: Sequence[click.Parameter], left_out: Sequence[str]
) -> Callable[[Callable[..., None]], None]:
    """Register a function as the tuned form of a training command: its parameters, and those of the search."""

    def register(function: Callable[..., None]) -> None:
        removed = {"force", "no_wait", "as_json", "listing", *left_out}
        params = [parameter for parameter in command.params if parameter.name not in removed]
        params += [*added, *_SEARCH_OPTIONS]
        tuned = MultiValueCommand(command.name, params=params, callback=function, help=function.__doc__)
        tune_command.add_command(options.as_json(tuned))

    return register


@_register_tuned(train_command, (), ("select_on", "prompt_file", "dry_run", "track"))
def tune_train(
    task: Any,
    model: str,
    data_dir: str | None,
    runs: Path,
    recipe: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    device: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Tune danseo train: trials are compared on the select split of dev, the best one is scored on the report split."""
    from danseo.api.training import configure_training
    from danseo.data.find import data_root
    from danseo.models.registry import get_family
    from danseo.sweeps.tuning_targets import TrainTarget

    search = _take_search_options(arguments)
    require("optuna", *get_family(model).required_packages(model, task.settings_name))
    config = configure_training(task, model, recipe, file, settings, arguments, say)
    _check_not_searched(search["space"], type(config), {**arguments, "model": model}, settings)
    _run_search(TrainTarget(config, data_root(data_dir), runs, device), search, as_json)


@_register_tuned(pretrain_command, _PROBE_OPTIONS, ("probes", "out"))
def tune_pretrain(texts: tuple[Path, ...], as_json: bool, **arguments: Any) -> None:
    """Tune danseo pretrain: trials are compared on the dev probe items, the best checkpoint is scored on the test
    items.
    """
    from danseo.config.mlm import PretrainConfig

    require_text(texts)
    _tune_masked_training("pretrain", PretrainConfig(), texts=texts, as_json=as_json, **arguments)


@_register_tuned(coref_command, _PROBE_OPTIONS, ("probes", "out", "ablate", "save_dataset"))
def tune_coref(checkpoint: str | None, as_json: bool, **arguments: Any) -> None:
    """Tune danseo coref: trials are compared on the dev probe items, the best checkpoint is scored on the test
    items.
    """
    from danseo.config.mlm import CorefConfig

    config = CorefConfig(checkpoint=require_checkpoint(checkpoint))
    if arguments["objective"] == "all":
        raise DanseoError(
            "--objective all is three trainings; tune one of target, mlm and both, or put it in the space"
        )
    _tune_masked_training("coref", config, as_json=as_json, **arguments)


def _tune_masked_training(
    command: str,
    config: Any,
    *,
    texts: tuple[Path, ...],
    probes: Path,
    metric: str,
    file: Path | None,
    settings: tuple[str, ...],
    device: str | None,
    as_json: bool,
    dataset: Path | None = None,
    **arguments: Any,
) -> None:
    from danseo.api.training import configure_masked_training, read_probe_splits
    from danseo.models.encoder.model_info import PACKAGES
    from danseo.sweeps.tuning_targets import MaskedTarget

    search = _take_search_options(arguments)
    if not probes.is_dir() and str(probes) != "sample":
        raise DanseoError(f"--probe-items {probes}: name the folder that `danseo data probes` wrote, or sample")
    items = read_probe_splits(probes, needs_test=True)
    config = configure_masked_training(config, file, settings, arguments)
    _check_not_searched(search["space"], type(config), arguments, settings)
    require("optuna", *PACKAGES, "kiwipiepy")
    target = MaskedTarget(config, texts, items, Path("runs") / "tune", metric, dataset, device, command)
    target.check()
    _run_search(target, search, as_json)


def _take_search_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the search from the others, and return them."""
    return {str(option.name): arguments.pop(str(option.name)) for option in _SEARCH_OPTIONS}


def _check_not_searched(space: Path, cls: type, arguments: dict[str, Any], assignments: tuple[str, ...]) -> None:
    """Refuse a setting of the command line that the space varies; a file or recipe may set it as a start."""
    from danseo.config.base import resolve_overrides
    from danseo.sweeps.search_space import read_space_file

    given = resolve_overrides(cls, options=arguments, assignments=assignments, file=None)
    if both := sorted(given.keys() & read_space_file(space, cls).keys()):
        raise DanseoError(f"{both[0]} is given on the command line, and searched for by {space}; leave one out")


def _run_search(target: Any, search: dict[str, Any], as_json: bool) -> None:
    from danseo.files import check_writable
    from danseo.sweeps.tuning import TuneOptions, study_tables, tune, write_results

    results = search.pop("results")
    check_writable(results or Path("tune"))
    with Waiting("running the trials", quiet=as_json):
        study = tune(target, TuneOptions(**search), on_note=print_notes_unless(as_json))
    document = write_results(study, target, results or Path("tune") / study.spec.name)
    show_tables(study_tables(document), as_json, document)
    if failed := [row for row in document["trials"] if row["error"]]:
        raise PartlyDone(
            f"{len(failed)} of {len(document['trials'])} trials failed, the last one: {failed[-1]['error']}"
        )
