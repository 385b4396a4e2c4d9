"""One label out of a list."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from danseo.models.llm.asking import Asking, Schema, compact, listed, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply
from danseo.records import RelationExample
from danseo.tasks.task import NO_LABEL


class Classify(Asking):
    """A text, or a pair of texts, and one label."""

    further: ClassVar[tuple[str, ...]] = ("pair", "pair_json")
    reply_tokens: ClassVar[int] = 32

    def labels_for(self, example: Any) -> tuple[str, ...]:
        """The labels that come into question."""
        return self.task.labels

    def shown(self, example: Any) -> dict[str, str]:
        return {"text": example.text, "pair": example.pair or ""}

    def schema(self, example: Any) -> Schema:
        return object_schema(label={"type": "string", "enum": list(self.labels_for(example))})

    def choices(self, example: Any) -> dict[str, str]:
        return {label: compact({"label": label}) for label in self.labels_for(example)}

    def gold(self, example: Any) -> str:
        return compact({"label": example.gold})

    def wrong(self, example: Any) -> str:
        return NO_LABEL

    def _read(self, example: Any, text: str, finish: str | None) -> Reply:
        label, errors = only_key(text, "label", finish)
        if not isinstance(label, str):
            raise Malformed
        if label.strip() not in self.task.labels:
            return Reply(None, errors + Counter(["unknown_type"]))
        return Reply(label.strip(), errors)


class Relate(Classify):
    """A sentence with two entities, and their relation."""

    fields: ClassVar = ("text", "subject", "object")
    further: ClassVar = ("subject_type", "object_type", "choices")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.allowed: dict[str, list[str]] = {}

    def prepare(self, train: Sequence[RelationExample]) -> None:
        """Which labels the training examples have for each pair of types."""
        if not self.config.allowed_only:
            return
        found: dict[str, set[str]] = defaultdict(set)
        for example in train:
            found[_types(example)].add(example.gold)
        self.allowed = {types: [name for name in self.task.labels if name in seen] for types, seen in found.items()}

    def state(self) -> dict[str, Any]:
        return {"allowed": self.allowed}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.allowed = dict(state.get("allowed", {}))

    def labels_for(self, example: RelationExample) -> tuple[str, ...]:
        return tuple(self.allowed.get(_types(example), self.task.labels))

    def shown(self, example: Any) -> dict[str, str]:
        few = self.labels_for(example)
        return {
            "text": example.text,
            "subject": example.subject.word,
            "object": example.object.word,
            "subject_type": self.task.meanings.get(example.subject.type, example.subject.type),
            "object_type": self.task.meanings.get(example.object.type, example.object.type),
            "choices": "\n고를 수 있는 관계:\n" + listed(self.task, few) if self.allowed else "",
        }

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.allowed else self.task.labels


def _types(example: RelationExample) -> str:
    return f"{example.subject.type}-{example.object.type}"
