"""Relation prompts: the relation between two entities of a sentence."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from danseo.models.llm.formats.base import list_labels
from danseo.models.llm.formats.classification import ClassificationFormat
from danseo.records import RelationExample

_CHOICES = {"ko": "\n고를 수 있는 관계:\n", "en": "\nPossible relations:\n"}


class RelationFormat(ClassificationFormat):
    """The relation between the subject and the object of a sentence."""

    has_entity_types: ClassVar[bool] = True
    fields: ClassVar = ("text", "subject", "object")
    optional_fields: ClassVar = ("subject_type", "object_type", "choices")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.allowed: dict[str, list[str]] = {}

    def prepare(self, train: Sequence[RelationExample]) -> None:
        """Learn which labels the training examples have for each pair of entity types."""
        if not self.config.allowed_labels_only:
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

    def get_fields(self, example: Any) -> dict[str, str]:
        few = self.labels_for(example)
        return {
            "text": example.text,
            "subject": example.subject.word,
            "object": example.object.word,
            "subject_type": self.task.meanings.get(example.subject.type, example.subject.type),
            "object_type": self.task.meanings.get(example.object.type, example.object.type),
            "choices": _CHOICES[self.config.language] + list_labels(self.task, few) if self.allowed else "",
        }

    @property
    def label_names(self) -> tuple[str, ...]:
        return () if self.allowed else self.task.labels


def _types(example: RelationExample) -> str:
    return f"{example.subject.type}-{example.object.type}"
