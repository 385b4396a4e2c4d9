"""Base class of prompt formats: the prompt of an example, the format of its reply, and how replies are parsed."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from danseo.models.base import Answers
from danseo.models.llm.prompt_template import PromptTemplate, fill_template
from danseo.models.llm.reply import MalformedReply, Reply, json_object, strip_thoughts
from danseo.models.llm.settings import PromptSettings
from danseo.records import Prediction
from danseo.tasktypes.base import Task

Message = dict[str, str]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Shot:
    """A training example rendered as a question and its gold reply (few-shot)."""

    user: str
    reply: str
    guid: str


def list_labels(task: Task, labels: Sequence[str]) -> str:
    """Return a line per label, with its meaning if the task describes it."""
    return "\n".join(f"- {label}: {words}" if (words := task.meanings.get(label)) else f"- {label}" for label in labels)


class PromptFormat(ABC):
    """Prompts and replies of one task type; holds no model and needs no torch."""

    fields: ClassVar[tuple[str, ...]] = ("text",)
    """Placeholders of the example that a prompt must have."""
    optional_fields: ClassVar[tuple[str, ...]] = ()
    """Further placeholders that a prompt may have."""
    reply_tokens: ClassVar[int] = 64
    """Maximum number of tokens of a reply, unless the settings say otherwise."""
    output_formats: ClassVar[tuple[str, ...]] = ("json",)
    """Formats in which replies can be written."""
    has_entity_types: ClassVar[bool] = False
    """Whether the types of two entities restrict the labels."""

    def __init__(self, task: Task, config: PromptSettings, template: PromptTemplate) -> None:
        self.task, self.config, self.template = task, config, template
        shown = [name for field in self.fields for name in (field, f"{field}_json")]
        template.check(["labels", *shown, *self.optional_fields], self.fields)

    @property
    def ends(self) -> str:
        """Where an unconstrained reply ends: after an object, a line, or before an empty line."""
        return {"json": "object", "inline": "line", "tsv": "blank"}[self.config.output_format]

    # Prompts

    def prepare(self, train: Sequence[Any]) -> None:
        """Learn from the training examples what prompts need."""

    def state(self) -> dict[str, Any]:
        """Return what prepare learned as JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what state returned."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """Labels that are listed in the prompt."""
        return self.task.labels

    def system_message(self) -> str:
        """Return the system message, which describes the task."""
        return fill_template(self.template.system, {"labels": list_labels(self.task, self.label_names)})

    def get_fields(self, example: Any) -> dict[str, str]:
        """Return placeholder -> text of an example."""
        return {"text": example.text, "pair": getattr(example, "pair", None) or ""}

    def user_message(self, example: Any) -> str:
        """Return the user message of an example."""
        values = self.get_fields(example)
        quoted = {f"{name}_json": json.dumps(value, ensure_ascii=False) for name, value in values.items()}
        return fill_template(
            self.template.user, {"labels": list_labels(self.task, self.label_names), **quoted, **values}
        )

    def messages(self, example: Any, shots: Sequence[Any] = ()) -> list[Message]:
        """Return the conversation: the task, the shots, and the example."""
        conversation = [{"role": "system", "content": self.system_message()}]
        for shot in map(self.make_shot, shots):
            conversation += [{"role": "user", "content": shot.user}, {"role": "assistant", "content": shot.reply}]
        return [*conversation, {"role": "user", "content": self.user_message(example)}]

    def make_shot(self, shot: Any) -> Shot:
        """Return a training example as a shot; a shot that was saved is returned unchanged."""
        return shot if isinstance(shot, Shot) else Shot(self.user_message(shot), self.gold_reply(shot), shot.guid)

    # Replies

    @abstractmethod
    def schema(self, example: Any) -> Schema | None:
        """Return the JSON schema of the reply; None if it is not JSON."""

    def grammar(self, example: Any) -> str | None:
        """Return a Lark grammar that is stricter than the schema, such as texts that must be copied."""
        return None

    def choices(self, example: Any) -> dict[str, str] | None:
        """Return label -> reply, if there are few enough to compare their probabilities."""
        return None

    @abstractmethod
    def gold_reply(self, example: Any) -> str:
        """Return the gold reply."""

    @abstractmethod
    def failed_answer(self, example: Any) -> Any:
        """Return the answer of a failed reply, which is never right."""

    @abstractmethod
    def _parse(self, example: Any, text: str, finish: str | None) -> Reply:
        """Parse a reply without its reasoning; raise MalformedReply if there is no answer."""

    def parse_reply(self, example: Any, text: str, finish: str | None = None) -> Reply:
        """Parse a reply into an answer and count what is wrong with it."""
        try:
            return self._parse(example, strip_thoughts(text, finish), finish)
        except MalformedReply as malformed:
            return Reply(None, malformed.errors)

    # Examples that are too long

    def split_example(self, example: Any, excess: int) -> list[Any]:
        """Return the example in parts that are shorter by this many characters; empty if it cannot be split."""
        return []

    def join_replies(self, example: Any, replies: Sequence[Reply]) -> Reply:
        """Join the replies to the parts of an example."""
        return replies[0]

    # Few-shot examples and predictions

    def make_answers(self, examples: Sequence[Any], predictions: list[Prediction]) -> Answers:
        """Return predictions with what ensembles need."""
        return Answers(predictions)


def to_compact_json(document: Any) -> str:
    """Return JSON in one line without spaces, as replies are written."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def object_schema(**properties: Any) -> Schema:
    """Return the schema of an object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_key_value(text: str, key: str, finish: str | None) -> tuple[Any, Counter[str]]:
    """Return the value of the one expected key."""
    document, repeated = json_object(text, finish)
    if key not in document:
        raise MalformedReply
    return document[key], Counter({"duplicate": repeated} if repeated else {})
