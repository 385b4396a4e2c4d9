"""The families of language models: local ones (llm:FOLDER or llm:HUB-ID) and servers."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.find import load
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import quote, read_json, read_json_lines
from danseo.hub import resolve_model
from danseo.models.base import FailedExample, Family, LoadOptions, Model, TrainableModel, uses_sections
from danseo.models.checkpoint import apply_trust
from danseo.models.encoder.model_info import known_positions, size_of
from danseo.models.llm.backend import CallLimits
from danseo.models.llm.formats import check_settings, make_format
from danseo.models.llm.formats.base import Message
from danseo.models.llm.prompt_template import PromptTemplate, load_saved_template, load_template
from danseo.models.llm.reply import is_thought_opened_by_prompt, mark_unclosed
from danseo.runs.store import Run
from danseo.tasktypes.base import Task

if TYPE_CHECKING:
    from danseo.models.llm.server_process import ServerProcess

LOCAL, SERVER = "llm:", "server:"
URL_VARIABLE = "DANSEO_API_URL"
"""Environment variable with the server's address; --url sets it."""


def get_checkpoint(model: str) -> str:
    """Return the folder or Hub id of a name such as llm:FOLDER."""
    return model.removeprefix(LOCAL)


def make_server_backend(config: RunConfig, limits: CallLimits, *, is_url_given: bool) -> Any:
    """Return the server of a config; a key goes only to an address that the command or the environment gives."""
    from danseo.models.llm.server_backend import ServerBackend, read_key

    given = os.environ.get(URL_VARIABLE, "")
    if given and not is_url_given:
        config = update_config(config, {"prompt.url": given})
    elif not is_url_given and read_key(limits.key_name):
        raise DanseoError(
            f"the key in {limits.key_name} is not sent to an address from a run folder; add --url "
            f"{quote(config.prompt.url, 70)} if it is right, or unset the key"
        )
    return ServerBackend(config.model.removeprefix(SERVER), config.prompt, limits)


def make_backend(config: RunConfig, device: str | None, limits: CallLimits, *, is_url_given: bool) -> Any:
    """Return the backend of a prompted model: a server, or the loaded local model.

    `is_url_given`: whether prompt.url comes from this command. Only then may the API key go there.
    """
    if config.model.startswith(SERVER):
        return make_server_backend(config, limits, is_url_given=is_url_given)
    from danseo.models.llm.local_backend import load_local_backend

    return load_local_backend(config, get_checkpoint(config.model), device)


def check_prompt(config: RunConfig, task: Task) -> None:
    """Refuse settings that the task does not use; a prompt file was checked when it was read."""
    check_settings(task, config.prompt)
    if not config.prompt.template_hash:
        make_format(task, config.prompt, load_template(task, config.prompt.output_format, None, config.prompt.language))


def check_local(config: RunConfig, task: Task) -> None:
    """Refuse settings that the task does not use, and models that are not causal."""
    from danseo.models.llm.loading import check_causal_model

    if not get_checkpoint(config.model):
        raise DanseoError("llm: names no model; write llm:FOLDER or llm:HUB-ID")
    if config.prompt.thinking == "on" and config.prompt.mode == "likelihood":
        raise DanseoError(
            "prompt.thinking = on: label probabilities are computed without reasoning; use prompt.mode=generate"
        )
    if config.llm.quantization != "none":
        require("bitsandbytes")
        if config.run_type == "training" and not config.llm.lora_rank:
            raise DanseoError("llm.quantization: quantized weights cannot be trained; add --set llm.lora_rank=16")
    check_prompt(config, task)
    resolve_model(get_checkpoint(config.model))
    check_causal_model(get_checkpoint(config.model), config.trust_remote_code)


def check_server(config: RunConfig, task: Task) -> None:
    """Refuse training on a server, and settings that servers do not support."""
    from danseo.models.llm.server_backend import check_url

    if config.run_type != "prompt":
        raise DanseoError(
            f"{config.model} cannot be trained here; prompt it: danseo prompt {task.settings_name} -m {config.model}"
        )
    if config.prompt.mode == "likelihood":
        raise DanseoError(
            "prompt.mode = likelihood: a server does not return the probability of every label; use generate"
        )
    check_prompt(config, task)
    check_url(config.prompt.url)


def make_local(config: RunConfig, task: Task, device: str | None) -> TrainableModel:
    """Create a model to prompt or to fine-tune, by the run type."""
    if config.run_type == "prompt":
        return make_prompted(config, task, device)
    from danseo.models.llm.tuned_model import TunedModel

    return TunedModel(config, task, device)


def with_template(config: RunConfig, task: Task, template: PromptTemplate) -> RunConfig:
    """Return the settings with the hash of a prompt that fits the task."""
    make_format(task, config.prompt, template)
    return update_config(config, {"prompt.template_hash": template.sha256})


def make_prompted(config: RunConfig, task: Task, device: str | None) -> TrainableModel:
    """Create a model to prompt."""
    from danseo.models.llm.prompted_model import PromptedModel

    return PromptedModel(config, task, make_backend(config, device, CallLimits(), is_url_given=False))


def load_saved(run: Run, task: Task, loading: LoadOptions) -> Model:
    """Load the model of a run with its prompt and shots."""
    from danseo.models.llm.prompted_model import PromptedModel

    config, folder = apply_trust(run, loading.trust_remote_code), run.path / "model"
    if loading.precision == "int8":
        raise DanseoError(f"{run.path} is a language model, which is not computed in int8; leave --precision out")
    if loading.precision:
        config = update_config(config, {"train.precision": loading.precision})
    if config.run_type == "prompt":
        backend = make_backend(config, loading.device, CallLimits(), is_url_given=False)
        if config.model.startswith(SERVER):
            backend.takes_grammar = run.read_json("environment.json").get("grammar") == "gbnf"
    else:
        from danseo.models.llm.tuned_model import load_tuned_backend

        backend = load_tuned_backend(config, folder, loading.device)
    model = PromptedModel(config, task, backend, load_saved_template(folder))
    model.restore(folder)
    return model


def with_prompt(
    family: Family, template: PromptTemplate, limits: CallLimits, server: "ServerProcess | None" = None
) -> Family:
    """Return the family for one `danseo prompt`, with the user's prompt and limits, and the server to launch.

    Its config comes from the command, so the API key may go to its prompt.url.
    """

    def make(config: RunConfig, task: Task, device: str | None) -> TrainableModel:
        from danseo.models.llm.prompted_model import PromptedModel

        backend = make_backend(config, device, limits, is_url_given=True)
        model = PromptedModel(config, task, backend, template)
        model.limits, model.server = limits, server
        return model

    return replace(family, create=make)


def with_tuning_prompt(family: Family, template: PromptTemplate) -> Family:
    """Return the family for one `danseo train` with the user's prompt."""

    def make(config: RunConfig, task: Task, device: str | None) -> TrainableModel:
        from danseo.models.llm.tuned_model import TunedModel

        return TunedModel(config, task, device, template)

    return replace(family, create=make)


def estimate_memory(config: RunConfig, task: Task, device: str | None) -> Any:
    """Estimate the memory of a fine-tuning."""
    from danseo.models.memory_estimate import estimate_language_model

    return estimate_language_model(config, task, device)


def list_failed_replies(run: Run, task: Task, examples: Sequence[Any]) -> list[FailedExample]:
    """Return the examples whose last reply has no answer; none if the run kept no replies."""
    calls = [call for call in read_json_lines(run.path / "calls.jsonl") if {"guid", "text"} <= call.keys()]
    last = {str(call["guid"]): call for call in calls}
    is_opened = is_thought_opened_by_prompt(str(call["text"]) for call in calls)
    folder = run.path / "model"
    try:
        prompt_format = make_format(task, run.config.prompt, load_saved_template(folder))
        prompt_format.restore(read_json(folder / "prompt.json")["state"])
    except (DanseoError, OSError, KeyError, TypeError):
        return []  # not saved, or not written by danseo
    failed = []
    for example in examples:
        call = last.get(example.guid)
        if call and not call.get("label_logprobs"):
            text = mark_unclosed(str(call["text"])) if is_opened else str(call["text"])
            reply = prompt_format.parse_reply(example, text, call.get("finish"))
            failed += [FailedExample(example, str(call["text"]), tuple(+reply.errors))] if reply.has_failed else []
    return failed


FAMILIES = (
    Family(
        name="llm",
        uses_setting=uses_sections("llm", "prompt"),
        matches=lambda model: model.startswith(LOCAL),
        required_packages=lambda model, task: ("torch", "transformers", "safetensors", "llguidance", "peft"),
        check_config=check_local,
        create=make_local,
        load=load_saved,
        list_failures=list_failed_replies,
        count_parameters=lambda model, trust, offline: size_of(get_checkpoint(model), trust, offline),
        locate_checkpoint=get_checkpoint,
        estimate_memory=estimate_memory,
        max_positions=lambda model: known_positions(get_checkpoint(model)),
        recipe="llm",
        export_formats=("merged",),
    ),
    Family(
        name="server",
        uses_setting=uses_sections("prompt"),
        matches=lambda model: model.startswith(SERVER),
        required_packages=lambda model, task: (),
        check_config=check_server,
        create=make_prompted,
        load=load_saved,
        list_failures=list_failed_replies,
        count_parameters=lambda model, trust, offline: None,
        trains_with_torch=False,
        is_deterministic=False,
    ),
)


@dataclass(frozen=True)
class Preview:
    """Counts and sample prompts."""

    counts: dict[str, Any]
    prompts: list[tuple[str, list[Message]]]

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = list(self.counts.items())
        shown = [
            Table(f"prompt of {guid}", ("role", "content"), [(m["role"], m["content"]) for m in messages])
            for guid, messages in self.prompts
        ]
        return [*shown, Table("nothing was sent", ("what", "value"), rows)]

    def as_dict(self) -> dict[str, Any]:
        prompts = [{"guid": guid, "messages": messages} for guid, messages in self.prompts]
        return {**self.counts, "prompts": prompts}


def preview(config: RunConfig, task: Task, family: Family, root: Path, device: str | None) -> Preview:
    """Return what a run would send for dev."""
    task = replace(task, dev_sample=config.dev_sample)
    train, dev = (load(task, split, root) for split in ("train", "dev"))
    model: Any = family.create(config, task, device)
    model.prepare(train[: config.max_train_samples or None], dev)
    parts = [part for question in model.make_questions(dev) for part in question.parts]
    tokens = [model.backend.count_tokens(request.messages) for _, request in parts]
    counts = {
        "examples": len(dev),
        "calls": len(parts),
        "prompt tokens": sum(tokens),
        "longest prompt": max(tokens),
        "maximum reply tokens": model.most_tokens * len(parts),
        "counted by": "the model's tokenizer" if model.backend.scores_labels else "an estimate (three bytes per token)",
        **{name.replace("_", " "): count for name, count in model.reply_stats.cuts.items()},
    }
    chosen = [parts[position][1] for position in dict.fromkeys((0, len(parts) // 2, len(parts) - 1))]
    return Preview(counts, [(request.guid, request.messages) for request in chosen])
