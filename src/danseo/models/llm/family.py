"""Language models as families: those that run here (llm:FOLDER or llm:HUB-ID) and those behind a server."""

from dataclasses import replace
from typing import Any

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.hub import pretrained
from danseo.models.encoder.facts import size_of
from danseo.models.llm.source import Limits
from danseo.models.llm.template import Template, load_template
from danseo.models.protocol import Family, Loading, Model, Trainable
from danseo.runs.directory import Run
from danseo.tasks.task import Task

HERE, SERVER = "llm:", "server:"


def checkpoint_of(model: str) -> str:
    """The folder or Hub id behind a name such as llm:FOLDER."""
    return model.removeprefix(HERE)


def served_by(config: RunConfig, limits: Limits | None = None) -> Any:
    """The server of a config."""
    from danseo.models.llm.server import Server

    return Server(config.model.removeprefix(SERVER), config.prompt, limits)


def _here(config: RunConfig, device: str | None) -> Any:
    """The model of a config, in memory; a server needs none of what that imports."""
    from danseo.models.llm.here import load_here

    return load_here(config, checkpoint_of(config.model), device)


def check_here(config: RunConfig, task: Task) -> None:
    """Refuse settings that the task has no use for, and models that do not write."""
    from danseo.models.llm.kinds import make_asking
    from danseo.models.llm.loading import check_kind

    if not checkpoint_of(config.model):
        raise DanseoError("llm: names no model; write llm:FOLDER or llm:HUB-ID")
    if config.prompt.think == "on" and config.prompt.mode == "likelihood":
        raise DanseoError("prompt.think = on: a model that weighs replies does not think; use prompt.mode=generate")
    make_asking(task, config.prompt, load_template(task, config.prompt.shape))
    pretrained(checkpoint_of(config.model))
    check_kind(checkpoint_of(config.model), config.trust_remote_code)


def check_server(config: RunConfig, task: Task) -> None:
    """Refuse training, which is not ours to do there, and what a server cannot be asked."""
    from danseo.models.llm.kinds import make_asking
    from danseo.models.llm.server import checked_url

    if config.kind != "prompt":
        raise DanseoError(f"{config.model} is not trained here; ask it: danseo prompt {task.name} -m {config.model}")
    if config.prompt.mode == "likelihood":
        raise DanseoError("prompt.mode = likelihood: a server does not tell what every reply weighs; use generate")
    make_asking(task, config.prompt, load_template(task, config.prompt.shape))
    checked_url(config.prompt.url)


def make_here(config: RunConfig, task: Task, device: str | None) -> Trainable:
    """A model to be asked, or one to be fine-tuned, by the kind of the run."""
    if config.kind == "prompt":
        from danseo.models.llm.here import load_here
        from danseo.models.llm.prompted import Prompted

        return Prompted(config, task, load_here(config, checkpoint_of(config.model), device))
    from danseo.models.llm.tuned import Tuned

    return Tuned(config, task, device)


def with_template(config: RunConfig, task: Task, template: Template) -> RunConfig:
    """The settings with the hash of a prompt that fits the task."""
    from danseo.models.llm.kinds import make_asking

    make_asking(task, config.prompt, template)
    return replace(config, prompt=replace(config.prompt, template=template.sha256))


def make_server(config: RunConfig, task: Task, device: str | None) -> Trainable:
    """A model to be asked."""
    from danseo.models.llm.prompted import Prompted

    return Prompted(config, task, served_by(config))


def load_saved(run: Run, task: Task, loading: Loading) -> Model:
    """The model of a run: asked as it was in the run, fine-tuned with what it learned."""
    from danseo.models.llm.prompted import Prompted, saved_template

    config, folder = run.config, run.path / "model"
    if config.trust_remote_code and not loading.trust_remote_code:
        raise DanseoError(f"{run.path} runs code of its checkpoint; if you trust it, add --trust-remote-code")
    if loading.precision == "int8":
        raise DanseoError(f"{run.path} is a language model, which is not computed in int8; leave --precision out")
    if loading.precision:
        config = replace(config, train=replace(config.train, precision=loading.precision))  # type: ignore[arg-type]
    if config.model.startswith(SERVER):
        source: Any = served_by(config)
    elif config.kind == "prompt":
        from danseo.models.llm.here import load_here

        source = load_here(config, checkpoint_of(config.model), loading.device)
    else:
        from danseo.models.llm.tuned import tuned_here

        source = tuned_here(config, folder, loading.device)
    model = Prompted(config, task, source, saved_template(folder))
    model.restore(folder)
    return model


def prompting(family: Family, template: Template, limits: Limits) -> Family:
    """The family of one `danseo prompt`: with a prompt of the user's and what may be spent."""

    def make(config: RunConfig, task: Task, device: str | None) -> Trainable:
        from danseo.models.llm.prompted import Prompted

        is_server = config.model.startswith(SERVER)
        source = served_by(config, limits) if is_server else _here(config, device)
        model = Prompted(config, task, source, template)
        model.limits = limits
        return model

    return replace(family, make=make)


def tuning(family: Family, template: Template) -> Family:
    """The family of one `danseo train` with a prompt of the user's."""

    def make(config: RunConfig, task: Task, device: str | None) -> Trainable:
        from danseo.models.llm.tuned import Tuned

        return Tuned(config, task, device, template)

    return replace(family, make=make)


ROWS = (
    Family(
        name="llm",
        claims=lambda model: model.startswith(HERE),
        packages=lambda model, task: ("torch", "transformers", "safetensors", "llguidance", "peft"),
        check=check_here,
        make=make_here,
        load=load_saved,
        size=lambda model, trust, offline: size_of(checkpoint_of(model), trust, offline),
        location=checkpoint_of,
        recipe="llm",
    ),
    Family(
        name="server",
        claims=lambda model: model.startswith(SERVER),
        packages=lambda model, task: (),
        check=check_server,
        make=make_server,
        load=load_saved,
        size=lambda model, trust, offline: None,
        is_gradual=False,
    ),
)
