"""What a language model is asked about a kind of task, the shape of its reply, and how the reply becomes an answer."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from danseo.models.llm.reply import Malformed, Reply, json_object, spoken
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.template import Template, filled
from danseo.tasks.task import Task

Message = dict[str, str]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """A training example as it is shown before the question."""

    user: str
    reply: str
    guid: str


def listed(task: Task, labels: Sequence[str]) -> str:
    """A line per label, with its meaning where the task has one in words."""
    return "\n".join(f"- {label}: {words}" if (words := task.meanings.get(label)) else f"- {label}" for label in labels)


class Asking(ABC):
    """One kind of task for language models; it needs no torch and holds no model."""

    fields: ClassVar[tuple[str, ...]] = ("text",)
    """What a prompt has to show of an example."""
    further: ClassVar[tuple[str, ...]] = ()
    """What it may show besides."""
    reply_tokens: ClassVar[int] = 64
    """The longest reply, where the settings name none."""

    def __init__(self, task: Task, config: PromptConfig, template: Template) -> None:
        self.task, self.config, self.template = task, config, template
        shown = [name for field in self.fields for name in (field, f"{field}_json")]
        template.check(["labels", *shown, *self.further], self.fields)

    @property
    def ends(self) -> str:
        """Where a reply that nothing holds to its shape is over: after an object, a line, or lines before a blank."""
        return {"json": "object", "inline": "line", "tsv": "blank"}[self.config.shape]

    # What is asked

    def prepare(self, train: Sequence[Any]) -> None:
        """Take from the training examples what questions need."""

    def state(self) -> dict[str, Any]:
        """What prepare found, as plain JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what state gave."""

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that are listed in the prompt."""
        return self.task.labels

    def system(self) -> str:
        """What is said of the task."""
        return filled(self.template.system, {"labels": listed(self.task, self.names)})

    @abstractmethod
    def shown(self, example: Any) -> dict[str, str]:
        """What the prompt shows of an example, by place."""

    def user(self, example: Any) -> str:
        """What is said of an example."""
        values = self.shown(example)
        quoted = {f"{name}_json": json.dumps(value, ensure_ascii=False) for name, value in values.items()}
        return filled(self.template.user, {"labels": listed(self.task, self.names), **quoted, **values})

    def messages(self, example: Any, shots: Sequence[Any] = ()) -> list[Message]:
        """The conversation that ends with the question."""
        told = [{"role": "system", "content": self.system()}]
        for shot in map(self.told, shots):
            told += [{"role": "user", "content": shot.user}, {"role": "assistant", "content": shot.reply}]
        return [*told, {"role": "user", "content": self.user(example)}]

    def told(self, shot: Any) -> "Told":
        """A training example as it is shown; one that was saved is shown as it was."""
        return shot if isinstance(shot, Told) else Told(self.user(shot), self.gold(shot), shot.guid)

    # What is replied

    @abstractmethod
    def schema(self, example: Any) -> Schema | None:
        """The JSON schema of the reply; None where it is no JSON."""

    def grammar(self, example: Any) -> str | None:
        """A Lark grammar that says more than the schema, such as which texts may be copied."""
        return None

    def choices(self, example: Any) -> dict[str, str] | None:
        """Every possible reply by its label, where they are few enough to be weighed one by one."""
        return None

    @abstractmethod
    def gold(self, example: Any) -> str:
        """The right reply."""

    @abstractmethod
    def wrong(self, example: Any) -> Any:
        """The empty answer of a reply that failed: it is never right."""

    @abstractmethod
    def _read(self, example: Any, text: str, finish: str | None) -> Reply:
        """The answer in what was spoken; Malformed where there is none."""

    def read(self, example: Any, text: str, finish: str | None = None) -> Reply:
        """The reply as an answer; whatever is wrong with it is counted, and nothing is skipped."""
        try:
            return self._read(example, spoken(text, finish), finish)
        except Malformed as malformed:
            return Reply(None, malformed.errors)

    # Examples that are too long

    def pieces(self, example: Any, excess: int) -> list[Any]:
        """The example in parts that are shorter by so many characters; none where it cannot be cut."""
        return []

    def joined(self, example: Any, replies: Sequence[Reply]) -> Reply:
        """One reply from those of the parts."""
        return replies[0]


def compact(document: Any) -> str:
    """JSON in one line without blanks, as replies are written."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def object_schema(**properties: Any) -> Schema:
    """An object with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def only_key(text: str, key: str, finish: str | None) -> tuple[Any, Counter[str]]:
    """What stands under the one key that is due."""
    document, repeated = json_object(text, finish)
    if key not in document:
        raise Malformed
    return document[key], Counter({"duplicate": repeated} if repeated else {})
