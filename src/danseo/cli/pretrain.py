"""danseo pretrain and coref: masked language models from text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import PATH, MultiValueCommand, UniqueOption, show_table, show_tables
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.language import _
from danseo.launcher import is_first_process

_PRETRAIN, _COREF = "danseo.config.mlm:PretrainConfig", "danseo.config.mlm:CorefConfig"
_text_option = click.option(
    "--text",
    "texts",
    multiple=True,
    type=PATH,
    metavar="FILES…",
    help="Text files or folders, plain or gzipped: documents between blank lines, or JSON lines.",
)
_config_option = click.option(
    "--config",
    "file",
    type=PATH,
    metavar="FILE.toml",
    help="Settings file, or the name of a bundled one (danseo configs).",
)
_SHARED_OPTIONS = (
    click.option(
        "--probe-items",
        "probes",
        type=PATH,
        metavar="FILE|DIR|sample",
        help="Probe items (in a folder: dev.jsonl). Documents that contain their texts are left out of training.",
    ),
    click.option("--out", type=PATH, metavar="DIR", help="Output folder. [default: runs/…]"),
    click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting; --settings lists all."
    ),
    options.setting("--seed", "seed", config=_PRETRAIN),
    options.trust_remote_code,
    options.device,
    options.force,
    options.no_wait,
    options.timeout,
    click.option("--settings", "listing", is_flag=True, help="List every setting with its default and meaning."),
    options.as_json,
)


def _add_shared_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_SHARED_OPTIONS):
        function = option(function)
    return function


@click.command("pretrain", cls=MultiValueCommand)
@_text_option
@_config_option
@click.option(
    "--from",
    "checkpoint",
    cls=UniqueOption,
    metavar="MODEL",
    help="Continue from this model: Hub id, id@revision or folder.",
)
@options.setting("--seq-len", "text.seq_len", config=_PRETRAIN)
@options.setting("--steps", "steps", config=_PRETRAIN)
@options.setting("--epochs", "train.epochs", config=_PRETRAIN)
@options.setting("--minutes", "minutes", config=_PRETRAIN)
@_add_shared_options
def pretrain_command(
    texts: tuple[Path, ...],
    file: Path | None,
    probes: Path | None,
    out: Path | None,
    settings: tuple[str, ...],
    device: str | None,
    force: bool,
    no_wait: bool,
    listing: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Pre-train a masked language model on text.

    Starts from scratch or from a model. Writes checkpoint-<step> folders; the same command resumes.
    """
    from danseo.api.training import configure_masked_training, read_probe_splits
    from danseo.config.mlm import PretrainConfig
    from danseo.hub import resolve_model
    from danseo.mlm.pretraining import PretrainJob, pretrain
    from danseo.mlm.tables import pretrain_tables
    from danseo.models.encoder.model_info import PACKAGES

    if listing:
        return _list_settings(PretrainConfig(), as_json)
    require_text(texts)
    config = configure_masked_training(PretrainConfig(), file, settings, arguments)
    require(*PACKAGES, *(("kiwipiepy",) if probes or config.mask.whole_word == "morpheme" else ()))
    if config.checkpoint:
        resolve_model(config.checkpoint)
    items = read_probe_splits(probes)
    job = PretrainJob(config, texts, items["dev"], device, quiet=as_json, kept_out=items["test"])
    run = pretrain(job, out, force=force, wait=not no_wait)
    if is_first_process():
        show_tables(pretrain_tables(run), as_json, run.read_json("result.json"))


def _list_settings(config: Any, as_json: bool) -> None:
    from danseo.api.listings import make_settings_table

    show_table(make_settings_table(config), as_json)


def require_text(texts: tuple[Path, ...]) -> None:
    if not texts:
        raise DanseoError(_("no text; name files or folders with --text"))


def require_checkpoint(checkpoint: str | None) -> str:
    if checkpoint is None:
        raise DanseoError(_("no checkpoint; name a folder or a Hub id of a masked language model"))
    return checkpoint


@click.command("coref", cls=MultiValueCommand)
@click.argument("checkpoint", required=False)
@_text_option
@click.option("--dataset", type=PATH, metavar="DIR", help="Prepared dataset, from --save-dataset.")
@click.option("--save-dataset", type=PATH, metavar="DIR", help="Save the prepared dataset here.")
@_config_option
@options.setting("--epochs", "train.epochs", config=_COREF)
@options.setting("--steps", "steps", config=_COREF)
@click.option(
    "--objective",
    cls=UniqueOption,
    type=click.Choice(["target", "mlm", "both", "all"]),
    help="Training objective: recover mentions (target), masked LM (mlm), or both; all trains each. [default: both]",
)
@click.option(
    "--ablate", is_flag=True, help="Same as --objective all: train each objective for the same number of steps."
)
@click.option("--seq-len", cls=UniqueOption, type=click.IntRange(min=8), help="Maximum sequence length in tokens.")
@_add_shared_options
def coref_command(
    checkpoint: str | None,
    texts: tuple[Path, ...],
    dataset: Path | None,
    save_dataset: Path | None,
    file: Path | None,
    objective: str | None,
    ablate: bool,
    probes: Path | None,
    out: Path | None,
    settings: tuple[str, ...],
    device: str | None,
    force: bool,
    no_wait: bool,
    listing: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Fine-tune a masked language model to recover entity mentions.

    Later mentions of an entity are masked and recovered from earlier ones. Probes the model before and after.
    """
    from danseo.api.training import configure_masked_training, read_probe_splits
    from danseo.config.mlm import CorefConfig
    from danseo.hub import resolve_model
    from danseo.mlm.coref import OBJECTIVES, CorefJob, coref
    from danseo.mlm.tables import coref_tables
    from danseo.models.encoder.model_info import PACKAGES

    if listing:
        return _list_settings(CorefConfig(checkpoint=""), as_json)
    objectives = OBJECTIVES if ablate or objective == "all" else None
    if not objectives:
        arguments["objective"] = objective
    config = CorefConfig(checkpoint=require_checkpoint(checkpoint))
    config = configure_masked_training(config, file, settings, arguments)
    require(*PACKAGES, "kiwipiepy")
    resolve_model(config.checkpoint)
    items = read_probe_splits(probes)
    datasets = (dataset, save_dataset)
    job = CorefJob(config, texts, items["dev"], device, as_json, None, items["test"], *datasets)
    document = coref(job, out, objectives, force=force, wait=not no_wait)
    if is_first_process():
        show_tables(coref_tables(document), as_json, document)
