"""Which way of asking a task has."""

from danseo.errors import DanseoError
from danseo.models.llm.answer import Answer
from danseo.models.llm.asking import Asking
from danseo.models.llm.classify import Classify, Relate
from danseo.models.llm.number import Number
from danseo.models.llm.parse import Parse
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.tag import Tag
from danseo.models.llm.template import Template
from danseo.models.llm.track import Track
from danseo.tasks.task import Task

KINDS: dict[str, type[Asking]] = {
    "classify": Classify,
    "score": Number,
    "tag": Tag,
    "parse": Parse,
    "answer": Answer,
    "track": Track,
}


def make_asking(task: Task, config: PromptConfig, template: Template) -> Asking:
    """The way of asking of a task; settings that it has no use for are refused."""
    if config.shape != "json" and task.kind != "tag":
        raise DanseoError(f"prompt.shape = {config.shape}: only entities can be written so; {task.name} takes json")
    if config.mode == "likelihood" and task.kind != "classify":
        raise DanseoError(f"prompt.mode = likelihood: only labels can be weighed one by one; {task.name} has none")
    if config.allowed_only and task.form != "relation":
        raise DanseoError(
            f"prompt.allowed_only: only relations go by the types of their entities; {task.name} has none"
        )
    if config.salvage and (task.kind != "tag" or config.shape != "json"):
        raise DanseoError("prompt.salvage: only entities in JSON can be saved from a reply that was cut off")
    if task.kind not in KINDS:
        raise DanseoError(f"{task.name}: language models are not asked for several labels; use an encoder or linear")
    kind = Relate if task.form == "relation" else KINDS[task.kind]
    return kind(task, config, template)
