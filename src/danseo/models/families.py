"""The one place where model names meet classes: a row per family, heavy imports inside."""

from dataclasses import replace

from danseo.config import FLOORS, RunConfig
from danseo.data.augmenting import ways_of
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.hub import IN_THE_BOX, pretrained
from danseo.models.encoder import facts
from danseo.models.floor import check_floor, floor_uses, load_floor, new_floor, packages_of_floor, size_of_floor
from danseo.models.llm import family as llm
from danseo.models.protocol import Family, Loading, Model, Trainable
from danseo.runs.directory import Run
from danseo.tasks.task import Task


def _make_encoder(config: RunConfig, task: Task, device: str | None) -> Trainable:
    from danseo.models.encoder.model import Encoder
    from danseo.training.workers import Workers

    return Encoder(config, task, Workers(device))


def _load_encoder(run: Run, task: Task, loading: Loading) -> Model:
    from danseo.models.encoder.model import load_encoder

    return load_encoder(run, task, loading)


def _check_spacy(config: RunConfig, task: Task) -> None:
    from danseo.models.spacy.model import check

    check(config, task)


def _make_spacy(config: RunConfig, task: Task, device: str | None) -> Trainable:
    from danseo.models.spacy.model import make

    return make(config, task)


def _load_spacy(run: Run, task: Task, loading: Loading) -> Model:
    from danseo.models.spacy.model import load

    return load(run, task, loading)


def _check_gliner(config: RunConfig, task: Task) -> None:
    from danseo.models.gliner.model import check

    check(config, task)


def _make_gliner(config: RunConfig, task: Task, device: str | None) -> Trainable:
    from danseo.models.gliner.model import make

    return make(config, task, device)


def _load_gliner(run: Run, task: Task, loading: Loading) -> Model:
    from danseo.models.gliner.model import load

    return load(run, task, loading)


_ENCODER = Family(
    name="encoder",
    claims=lambda model: True,
    packages=facts.packages_of,
    check=facts.check_encoder,
    make=_make_encoder,
    load=_load_encoder,
    size=facts.size_of,
    weighs=True,
    find=facts.find,
    facts=facts.configuration,
)

FAMILIES = (
    Family(
        name="floor",
        claims=lambda model: model in FLOORS,
        packages=packages_of_floor,
        check=check_floor,
        make=new_floor,
        load=load_floor,
        size=size_of_floor,
        uses=floor_uses,
        is_gradual=False,
    ),
    Family(
        name="spacy",
        claims=lambda model: model == "spacy" or model.startswith("spacy:"),
        packages=lambda model, task: ("spacy", "kiwipiepy"),
        check=_check_spacy,
        make=_make_spacy,
        load=_load_spacy,
        size=lambda model, trust_remote_code, offline: 1e6,
        is_gradual=False,
        location=lambda model: model.removeprefix("spacy:"),
    ),
    *llm.ROWS,
    Family(
        name="gliner",
        claims=lambda model: model.startswith("gliner:"),
        packages=lambda model, task: ("gliner2", "torch", "transformers"),  # a classic one needs its own Python besides
        check=_check_gliner,
        make=_make_gliner,
        load=_load_gliner,
        size=lambda model, trust_remote_code, offline: 8.5e7,  # of a base encoder
        find=lambda model: pretrained(model.removeprefix("gliner:")),
        location=lambda model: model.removeprefix("gliner:"),
    ),
    replace(_ENCODER, claims=lambda model: model in IN_THE_BOX, recipe="small"),
    _ENCODER,  # last: every name that no other family claims is a folder or an id of the Hub
)


def family_of(model: str) -> Family:
    """The family of a model's name."""
    return next(family for family in FAMILIES if family.claims(model))


def checked_family(config: RunConfig, task: Task) -> Family:
    """The family of a config, which can do it here: packages, model and task are all there."""
    family = family_of(config.model)
    require(*family.packages(config.model, config.task))
    check_fit(config, task)
    family.find(config.model)
    return family


def check_fit(config: RunConfig, task: Task) -> None:
    """Refuse a metric that the task does not have, and what the family cannot do; asks no network."""
    if config.train.monitor not in ("headline", *task.metrics):
        raise DanseoError(f"train.monitor = {config.train.monitor}: {task.name} has {', '.join(task.metrics)}")
    ways_of(task, config.train.augment)
    family = family_of(config.model)
    if config.train.example_weights and not family.weighs:
        raise DanseoError(
            f"train.example_weights: {config.model} takes every example once; leave it out, or use an encoder"
        )
    family.check(config, task)


def load_model(
    run: Run, device: str | None = None, precision: str | None = None, *, trust_remote_code: bool = False
) -> Model:
    """The saved model of a run, ready to predict; the precision is that of its training where none is named."""
    config = run.config
    if config.kind == "ensemble":
        raise DanseoError(
            f"{run.path} is made of saved predictions and has no model; ask its members (members.json), or make one "
            "model of them with `danseo soup`"
        )
    if not (run.path / "model").is_dir():
        raise DanseoError(
            f"{run.path} has no model; is the run finished? `danseo train` with the same settings goes on"
        )
    return family_of(config.model).load(run, run.task, Loading(device, precision, trust_remote_code))
