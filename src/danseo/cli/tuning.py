"""danseo tune: the options of a training command, and those of a search over its settings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from danseo.cli.common import ManyValues, WholeHelp, as_json_option, show
from danseo.cli.pretraining import configured, coref_command, pretrain_command, require_text
from danseo.cli.training import train_command, train_config
from danseo.display.escaping import say
from danseo.errors import DanseoError, PartlyDone
from danseo.extras import require

_SEARCH = (
    click.Option(["--space"], required=True, type=click.Path(path_type=Path), help="TOML: setting = range or choices."),
    click.Option(["--trials"], default=20, show_default=True, type=click.IntRange(min=1), help="Trials in all."),
    click.Option(
        ["--storage"],
        default="",
        help="File or database URL; several processes may share it. [default: STUDY.study in the folder of runs]",
    ),
    click.Option(["--study"], metavar="NAME", help="Name in the storage. [default: by settings, space and data]"),
    click.Option(
        ["--pruner"],
        type=click.Choice(["median", "halving", "hyperband", "none"]),
        default="median",
        show_default=True,
        help="Stop bad trials.",
    ),
    click.Option(
        ["--sampler"],
        type=click.Choice(["tpe", "random", "qmc"]),
        default="tpe",
        show_default=True,
        help="Who chooses.",
    ),
    click.Option(["--startup"], default=4, show_default=True, type=click.IntRange(min=1), help="Random trials first."),
    click.Option(["--search-seed"], default=0, show_default=True, type=int, help="Seed of the search."),
    click.Option(
        ["--results"], type=click.Path(path_type=Path), metavar="DIR", help="Best settings and plots. [tune/STUDY]"
    ),
)
_PROBES = (
    click.Option(
        ["--probe-items", "probes"],
        type=click.Path(path_type=Path),
        metavar="DIR|sample",
        required=True,
        help="Folder with dev.jsonl, which judges trials, and test.jsonl, which is looked at once.",
    ),
    click.Option(
        ["--metric"],
        type=click.Choice(["composite", "strict@1", "strict@5"]),
        default="composite",
        show_default=True,
        help="The score of the dev items that is maximised.",
    ),
)
_OWN = ("space", "trials", "storage", "study", "pruner", "sampler", "startup", "search_seed", "results")


@click.group("tune", cls=WholeHelp)
def tune() -> None:
    """Search for good settings of a training command with Optuna; the same command goes on, also in parallel."""


def _tunable(command: click.Command, more: Sequence[click.Parameter], without: Sequence[str]) -> Callable[..., Any]:
    """Register a tuned form of a training command: its parameters, and those of the search."""

    def register(callback: Callable[..., Any]) -> click.Command:
        gone = {"force", "no_wait", "as_json", "listing", *without}
        kept = [parameter for parameter in command.params if parameter.name not in gone]
        made = ManyValues(
            command.name,
            params=[*kept, *more, *_SEARCH],
            callback=callback,
            help=callback.__doc__,
            no_args_is_help=False,
        )
        as_json_option(made)
        tune.add_command(made)
        return made

    return register


@_tunable(train_command, (), ("select_on",))
def train(as_json: bool, **given: Any) -> None:
    """Tune danseo train: trials are judged on the select half of dev, the best one is reported on the other half."""
    from danseo.data.find import data_root
    from danseo.models.families import family_of
    from danseo.tuning.targets import TrainTarget

    search = {name: given.pop(name) for name in _OWN}
    root, runs, device = data_root(given.pop("data_dir")), given.pop("runs"), given.pop("device")
    task, model, recipe, file = (given.pop(name) for name in ("task", "model", "recipe", "file"))
    require("optuna", *family_of(model).packages(model, task.called))
    settings = given.pop("settings")
    config = train_config(task, model, recipe, file, settings, given)
    _check_apart(search["space"], type(config), {**given, "model": model}, settings)
    _search(TrainTarget(config, root, runs, device), search, as_json)


@_tunable(pretrain_command, _PROBES, ("probes", "out"))
def pretrain(as_json: bool, **given: Any) -> None:
    """Tune danseo pretrain: trials are judged by the dev probe, the best checkpoint is reported on the test probe."""
    from danseo.pretraining.config import PretrainConfig

    require_text(given["texts"])
    _tune_masked("pretrain", PretrainConfig(), as_json, given)


@_tunable(coref_command, _PROBES, ("probes", "out", "ablate", "save_dataset"))
def coref(as_json: bool, **given: Any) -> None:
    """Tune danseo coref: trials are judged by the dev probe, the best checkpoint is reported on the test probe."""
    from danseo.pretraining.config import CorefConfig

    checkpoint = given.pop("checkpoint")
    if checkpoint is None:
        raise DanseoError("no checkpoint; name a folder or a Hub id of a masked language model")
    if given["objective"] == "all":
        raise DanseoError(
            "--objective all is three trainings; tune one of target, mlm and both, or put it in the space"
        )
    _tune_masked("coref", CorefConfig(checkpoint=checkpoint), as_json, given)


def _tune_masked(command: str, config: Any, as_json: bool, given: dict[str, Any]) -> None:
    from danseo.models.encoder.facts import PACKAGES
    from danseo.probing.items import read_items, shipped_items
    from danseo.tuning.targets import MaskedTarget

    search = {name: given.pop(name) for name in _OWN}
    probes, score, texts, device = (given.pop(name) for name in ("probes", "metric", "texts", "device"))
    file, settings, dataset = given.pop("file"), given.pop("settings"), given.pop("dataset", None)
    if not probes.is_dir() and str(probes) != "sample":
        raise DanseoError(f"--probe-items {probes}: name the folder that `danseo data probes` wrote, or sample")
    items = {
        split: shipped_items(split) if str(probes) == "sample" else read_items(probes, split)
        for split in ("dev", "test")
    }
    config = configured(config, file, settings, given)
    _check_apart(search["space"], type(config), given, settings)
    require("optuna", *PACKAGES, "kiwipiepy")
    target = MaskedTarget(config, texts, items, Path("runs") / "tune", score, dataset, device, command)
    target.check()
    _search(target, search, as_json)


def _check_apart(space: Path, cls: type, options: dict[str, Any], assignments: tuple[str, ...]) -> None:
    """What the command line gives is not searched for; what a file or a recipe says is only where the search starts."""
    from danseo.search.space import read_space_file
    from danseo.settings.precedence import said

    given = said(cls, options=options, assignments=assignments, file=None)
    if both := sorted(given.keys() & read_space_file(space, cls).keys()):
        raise DanseoError(f"{both[0]} is given on the command line, and searched for by {space}; leave one out")


def _search(target: Any, search: dict[str, Any], as_json: bool) -> None:
    from danseo.files import check_writable
    from danseo.runs.locks import owned
    from danseo.tuning.study import TuneOptions, tune
    from danseo.tuning.tables import study_tables, write_results

    check_writable(search["results"] or Path("tune"))
    options = TuneOptions(
        search["space"],
        search["trials"],
        search["storage"],
        search["study"] or "",
        search["search_seed"],
        search["pruner"],
        search["startup"],
        sampler=search["sampler"],
    )
    study = tune(target, options, on_note=lambda line: None if as_json else say(line))
    results = search["results"] or Path("tune") / study.study_name
    with owned(results, inside=True):  # the processes that share a study end one after the other
        document = write_results(study, target, results)
    show(study_tables(document), as_json, document)
    if failed := [row for row in document["trials"] if row["error"]]:
        raise PartlyDone(
            f"{len(failed)} of {len(document['trials'])} trials failed, the last one: {failed[-1]['error']}"
        )
