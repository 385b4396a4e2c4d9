"""The registry of model families: the only place that maps model names to classes."""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from danseo.config.recipes import apply_recipe
from danseo.config.run import BASELINES, RunConfig
from danseo.data.augmentation import parse_augmentations
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.hub import BUNDLED_MODELS, resolve_model
from danseo.language import _
from danseo.models import baselines
from danseo.models.base import Family, LoadOptions, Model, TrainableModel, uses_sections
from danseo.models.checkpoint import apply_trust, refuse_code
from danseo.models.encoder import model_info
from danseo.models.llm import family as llm
from danseo.models.remote_code import no_model_code
from danseo.runs.store import Run
from danseo.tasktypes.base import Task


def _import_later(target: str) -> Callable[..., Any]:
    """Return a function, named as module:function, that imports its module when it is called."""
    return lambda *arguments: pkgutil.resolve_name(f"danseo.models.{target}")(*arguments)


def _create_encoder(config: RunConfig, task: Task, device: str | None) -> TrainableModel:
    from danseo.models.encoder.model import Encoder
    from danseo.training.distributed import Workers

    return Encoder(config, task, Workers(device))


_ENCODER = Family(
    name="encoder",
    matches=lambda model: True,
    required_packages=lambda model, task: model_info.PACKAGES,
    check_config=model_info.check_encoder,
    create=_create_encoder,
    uses_setting=uses_sections("encoder"),
    load=_import_later("encoder.model:load_encoder"),
    count_parameters=model_info.size_of,
    supports_example_weights=True,
    supports_distillation=True,
    export_formats=("onnx",),
    check_available=model_info.find,
    load_config=model_info.configuration,
    estimate_memory=_import_later("memory_estimate:estimate_encoder"),
    max_positions=model_info.known_positions,
)

FAMILIES = (
    Family(
        name="baseline",
        matches=lambda model: model in BASELINES,
        required_packages=lambda model, task: () if model == "majority" else ("scikit-learn",),
        check_config=baselines.check_baseline,
        create=lambda config, task, device: baselines.make_baseline(config.model, task, config.seed),
        load=baselines.load_baseline,
        count_parameters=lambda model, trust_remote_code, offline: 1e3 if model == "majority" else 1e5,
        uses_setting=lambda name: "." not in name or name in ("train.select_on", "train.num_threads", "train.augment"),
        trains_with_torch=False,
    ),
    Family(
        name="spacy",
        matches=lambda model: model == "spacy" or model.startswith("spacy:"),
        required_packages=lambda model, task: ("spacy", "kiwipiepy") if model == "spacy" else ("spacy",),
        check_config=_import_later("spacy.model:check"),
        create=_import_later("spacy.model:make"),
        uses_setting=lambda name: (
            uses_sections("spacy")(name)
            and (not name.startswith("train.") or name in ("train.patience", "train.select_on", "train.augment"))
        ),
        load=_import_later("spacy.model:load"),
        count_parameters=lambda model, trust_remote_code, offline: 1e6,
        trains_with_torch=False,
        locate_checkpoint=_import_later("spacy.pipeline:locate_pipeline"),
    ),
    *llm.FAMILIES,
    Family(
        name="gliner",
        matches=lambda model: model.startswith("gliner:"),
        required_packages=lambda model, task: ("gliner2", "torch", "transformers"),
        check_config=_import_later("gliner.model:check"),
        create=_import_later("gliner.model:make"),
        uses_setting=uses_sections("gliner"),
        load=_import_later("gliner.model:load"),
        count_parameters=lambda model, trust_remote_code, offline: 8.5e7,  # of a base encoder
        check_available=lambda model: resolve_model(model.removeprefix("gliner:")),
        locate_checkpoint=lambda model: model.removeprefix("gliner:"),
    ),
    Family(
        name="ensemble",
        matches=lambda model: model.startswith("ensemble-") and " of " in model,
        required_packages=lambda model, task: (),
        check_config=_import_later("ensemble:check_ensemble"),
        create=_import_later("ensemble:check_ensemble"),
        load=_import_later("ensemble:load_ensemble"),
        count_parameters=lambda model, trust_remote_code, offline: None,
        trains_with_torch=False,
        saved_in="members.json",
    ),
    replace(_ENCODER, matches=lambda model: model in BUNDLED_MODELS, recipe="small"),
    _ENCODER,  # last: any other name is a folder or a Hub id
)


def get_family(model: str) -> Family:
    """Return the family of a model name."""
    return next(family for family in FAMILIES if family.matches(model))


def configure_run(task: str, model: str, recipe: str, settings: Mapping[str, Any], encoder: Any = None) -> RunConfig:
    """Return the config of a run: the recipe, changed by the given settings, which the model can follow."""
    length = settings.get("train.max_length", settings.get("max_length"))  # those of recipes are only upper limits
    limit = get_family(model).max_positions(model) if length and model else None
    if limit and isinstance(length, int) and length > limit:
        raise DanseoError(f"train.max_length = {length}: {model} reads at most {limit} tokens; set {limit} or less")
    return apply_recipe(task, model, recipe, settings, encoder)


def encoder_facts(model: str, recipe: str, trust_remote_code: bool = False, *, offline: bool = False) -> Any:
    """Return the configuration of the encoder, if the recipe depends on it; None for models that are no encoders."""
    if not model or recipe != "official":
        return None
    return get_family(model).load_config(model, trust_remote_code, offline)


def check_family(config: RunConfig, task: Task, family: Family | None = None) -> None:
    """Refuse a config without the packages of its family, its model or support for the task."""
    family = family or get_family(config.model)
    require(*family.required_packages(config.model, config.task))
    check_config_for_task(config, task, family)
    family.check_available(config.model)


def estimate_memory(config: RunConfig, task: Task, device: str | None) -> Any:
    """Estimate the memory that a training needs on each device; nothing is loaded but the model's configuration."""
    family = get_family(config.model)
    if family.estimate_memory is None:
        raise DanseoError(f"--dry-run: no memory estimate for {config.model}; it is for encoders and llm: models")
    check_family(config, task, family)
    return family.estimate_memory(config, task, device)


def check_config_for_task(config: RunConfig, task: Task, family: Family | None = None) -> None:
    """Refuse a metric that the task does not have, and what the family does not support; uses no network."""
    if config.train.metric_for_best_model not in ("headline", *task.metrics):
        metric = config.train.metric_for_best_model
        raise DanseoError(f"train.metric_for_best_model = {metric}: {task.name} has {', '.join(task.metrics)}")
    parse_augmentations(task, config.train.augment)
    family = family or get_family(config.model)
    if config.train.example_weights and not family.supports_example_weights:
        raise DanseoError(
            f"train.example_weights: {config.model} takes every example once; leave it out, or use an encoder"
        )
    if config.train.distill_targets and not family.supports_distillation:
        raise DanseoError(f"train.distill_targets: {config.model} learns from labels only; use an encoder")
    if config.train.sharding == "full":
        _check_sharding(config, family)
    family.check_config(config, task)


def _check_sharding(config: RunConfig, family: Family) -> None:
    """Refuse settings and families that need whole weights or gradients in every step."""
    train = config.train
    needing = {
        f"-m {config.model}": family.estimate_memory is None,  # neither an encoder nor a language model
        "train.optimizer = muon": train.optimizer == "muon",
        "train.fgm_epsilon": train.fgm_epsilon,
        "train.awp_epsilon": train.awp_epsilon,
        "train.precision = fp16": train.precision == "fp16",
        "llm.quantization": config.llm.quantization != "none",
    }
    if named := next((name for name, is_set in needing.items() if is_set), None):
        raise DanseoError(f"{named} does not work with train.sharding = full; leave one of them out")


def load_model(
    run: Run,
    device: str | None = None,
    precision: str | None = None,
    *,
    trust_remote_code: bool = False,
    on_note: Callable[[str], None] = lambda line: None,
) -> Model:
    """Load the model of a run; the precision is that of its training by default."""
    family = get_family(run.config.model)
    saved = run.path / family.saved_in
    if not saved.exists():
        raise DanseoError(
            _("{path} has no model; is the run finished? `danseo train` with the same settings resumes it").format(
                path=run.path
            )
        )
    apply_trust(run, trust_remote_code)
    refuse_code(saved, trust_remote_code)
    with no_model_code(trust_remote_code):
        return family.load(run, run.task, LoadOptions(device, precision, trust_remote_code, on_note))
