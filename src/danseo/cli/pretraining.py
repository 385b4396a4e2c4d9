"""danseo pretrain and coref: masked language models from text."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from danseo.cli.common import ManyValues, Once, as_json_option, no_wait_option, show, timeout_option, trust_option
from danseo.errors import DanseoError
from danseo.extras import require

_set = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting (--settings).")
_config = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="Settings; also by name (danseo configs).",
)
_listing = click.option("--settings", "listing", is_flag=True, help="List every setting with its default and meaning.")
_out = click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the training. [runs/…]")
_seed = click.option("--seed", cls=Once, type=int, help="Seed of order, masks and dropout. [default: 42]")
_device = click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")
_force = click.option("--force", is_flag=True, help="Start anew, whatever was there.")
_probes = click.option(
    "--probe-items",
    "probes",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR|sample",
    help="Probe with these items (of a folder: dev); no document that holds their texts is trained on.",
)
_text = click.option(
    "--text",
    "texts",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILES…",
    help="Text files or folders, plain or gzipped: documents between blank lines, or JSON lines.",
)


_OPTIONS = (_probes, _out, _set, _seed, trust_option, _device, _force, no_wait_option, timeout_option)


@dataclass(frozen=True)
class Asked:
    """What both trainings are asked in the same words."""

    file: Path | None
    probes: Path | None
    out: Path | None
    settings: tuple[str, ...]
    device: str | None
    force: bool
    no_wait: bool
    listing: bool
    as_json: bool


def _shared(function: Callable[..., None]) -> Any:
    """The options that both trainings have, in this order."""

    @wraps(function)
    def command(**given: Any) -> None:
        function(Asked(**{each.name: given.pop(each.name) for each in fields(Asked)}), **given)

    made: Any = command
    for option in reversed((*_OPTIONS, _listing, as_json_option)):
        made = option(made)
    return made


@click.command("pretrain", cls=ManyValues)
@_text
@_config
@click.option("--from", "checkpoint", cls=Once, metavar="MODEL", help="Go on from a Hub id, id@revision or folder.")
@click.option("--seq-len", cls=Once, type=int, help="Longest sequence in pieces; positions are extended where needed.")
@click.option("--steps", cls=Once, type=int, help="Optimiser steps.")
@click.option("--epochs", cls=Once, type=float, help="Passes over the text.")
@click.option(
    "--minutes", cls=Once, type=float, help="Time for training, turned into steps by measuring the first ones."
)
@_shared
def pretrain_command(asked: Asked, texts: tuple[Path, ...], **named: Any) -> None:
    """Train a masked language model on text, from scratch or further: checkpoint-<step> folders; resumes."""
    from danseo.hub import pretrained
    from danseo.models.encoder.facts import PACKAGES
    from danseo.pretraining.config import PretrainConfig
    from danseo.pretraining.pretrain import PretrainJob, pretrain
    from danseo.pretraining.tables import pretrain_tables

    if asked.listing:
        return _list_settings(PretrainConfig(), asked.as_json)
    require_text(texts)
    config = configured(PretrainConfig(), asked.file, asked.settings, named)
    require(*PACKAGES, *(("kiwipiepy",) if asked.probes or config.mask.whole_words == "morpheme" else ()))
    if config.checkpoint:
        pretrained(config.checkpoint)
    items, others = _items(asked.probes)
    job = PretrainJob(config, texts, items, asked.device, quiet=asked.as_json, kept_out=others)
    run = pretrain(job, asked.out, force=asked.force, wait=not asked.no_wait)
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks
        show(pretrain_tables(run), asked.as_json, run.read_json("result.json"))


def _list_settings(config: Any, as_json: bool) -> None:
    from danseo.listing import settings_table

    table = settings_table(config)
    show([table], as_json, table.as_dict())


def require_text(texts: tuple[Path, ...]) -> None:
    if not texts:
        raise DanseoError("no text; name files or folders with --text")


def configured(config: Any, file: Path | None, settings: tuple[str, ...], named: dict[str, Any]) -> Any:
    """The defaults, over them the file, over that --set, and over all of them options of their own."""
    from danseo.recipes import settings_file
    from danseo.settings.precedence import said
    from danseo.settings.values import with_settings

    path = settings_file(file, "pretrain") if file else None
    return with_settings(config, said(type(config), options=_one_length(named), assignments=settings, file=path))


def _one_length(named: dict[str, Any]) -> dict[str, Any]:
    """The options, of which the one that says how long silences what a file says in another measure."""
    given = [name for name in ("steps", "epochs", "minutes") if named.get(name) is not None]
    if len(given) > 1:
        raise DanseoError(f"--{given[0]} and --{given[1]} are both given; choose one")
    silent: dict[str, Any] = {name: 0 for name in ("steps", "minutes") if given and name in named and name not in given}
    return {**named, **silent}


def _items(probes: Path | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The items to probe with, and those of the other split, which are left out of the training too."""
    from danseo.probing.items import read_items, shipped_items

    if probes is None:
        return (), ()
    if str(probes) == "sample":
        return tuple(shipped_items("dev")), tuple(shipped_items("test"))
    has_test = (probes / "test.jsonl").is_file()
    return tuple(read_items(probes)), tuple(read_items(probes, "test")) if has_test else ()


@click.command("coref", cls=ManyValues)
@click.argument("checkpoint", required=False)
@_text
@click.option("--dataset", type=click.Path(path_type=Path), metavar="DIR", help="A dataset that was saved before.")
@click.option("--save-dataset", type=click.Path(path_type=Path), metavar="DIR", help="Keep the prepared dataset here.")
@_config
@click.option("--epochs", cls=Once, type=float, help="Passes over the mentions. [default: 5]")
@click.option("--steps", cls=Once, type=int, help="Optimiser steps instead.")
@click.option(
    "--objective", cls=Once, type=click.Choice(["target", "mlm", "both", "all"]), help="What is learned. [both]"
)
@click.option("--ablate", is_flag=True, help="As --objective all: each objective for equally many steps.")
@click.option("--seq-len", cls=Once, type=click.IntRange(min=8), help="Longest sequence in pieces.")
@_shared
def coref_command(
    asked: Asked,
    checkpoint: str | None,
    texts: tuple[Path, ...],
    dataset: Path | None,
    save_dataset: Path | None,
    objective: str | None,
    ablate: bool,
    **named: Any,
) -> None:
    """Teach a masked language model to recover later mentions of an entity from earlier ones; probes before, after."""
    from danseo.hub import pretrained
    from danseo.models.encoder.facts import PACKAGES
    from danseo.pretraining.config import CorefConfig
    from danseo.pretraining.coref import OBJECTIVES, CorefJob, coref
    from danseo.pretraining.tables import coref_tables

    if asked.listing:
        return _list_settings(CorefConfig(checkpoint=""), asked.as_json)
    if checkpoint is None:
        raise DanseoError("no checkpoint; name a folder or a Hub id of a masked language model")
    whole = ablate or objective == "all"
    if objective and not whole:
        named["objective"] = objective
    config = configured(CorefConfig(checkpoint=checkpoint), asked.file, asked.settings, named)
    require(*PACKAGES, "kiwipiepy")
    pretrained(config.checkpoint)
    items, others = _items(asked.probes)
    job = CorefJob(config, texts, dataset, save_dataset, items, asked.device, quiet=asked.as_json, kept_out=others)
    document = coref(job, asked.out, OBJECTIVES if whole else None, force=asked.force, wait=not asked.no_wait)
    if os.environ.get("RANK", "0") == "0":
        show(coref_tables(document), asked.as_json, document)
