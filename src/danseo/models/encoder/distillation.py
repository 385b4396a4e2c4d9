"""Learn from a teacher: the loss of a head mixed with the distance to soft targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.language import _
from danseo.models.encoder.heads.base import TaskHead
from danseo.runs.soft_targets import SoftTargets
from danseo.training.features import Array, Features, Outputs

if TYPE_CHECKING:
    from torch import Tensor


class Distillation:
    """The objective of a head whose training examples also have soft targets."""

    def __init__(self, task_head: TaskHead, train: TrainSettings) -> None:
        self.task_head, self.weight = task_head, train.distill_weight
        self.targets = SoftTargets(Path(train.distill_targets))
        self.summary: dict[str, Any] = {}

    def add_soft_targets(self, train: Sequence[Any], features: Sequence[Features]) -> None:
        """Add the soft targets to the features of the training examples."""
        task, head = self.task_head.task, self.task_head
        answers = self.targets.read_answers(task, train)
        if not answers:
            raise DanseoError(f"{self.targets.folder} is for other training examples; run `danseo distill` again")
        soft = answers if any(map(head.has_soft_target, answers.values())) else {}
        teacher, text = self.targets.read_summary(task)["teacher"], sum(e.guid.startswith("text:") for e in train)
        self.summary = {"teacher": teacher, "train": len(train) - text, "text": text, "soft_targets": len(soft)}
        if not soft:
            return
        for record in features:
            example = train[record.example]
            record.fields["soft_target"] = head.encode_soft_target(example, record, soft.get(example.guid))

    def line(self) -> str:
        """Return what the teacher gives, as one line."""
        if not self.summary["soft_targets"]:
            text = _("{teacher} gives no probabilities: its answers to {text:,} texts are learned as labels")
        else:
            text = _("{teacher} gives probabilities for {soft:,} of {all:,} examples, of which {text:,} are unlabelled")
        found = self.summary
        return text.format(
            teacher=found["teacher"], soft=found["soft_targets"], all=found["train"] + found["text"], text=found["text"]
        )

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        self.task_head.begin_step(number, batch)

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        """Return the arrays of the head and the soft targets, which dev examples do not have."""
        batch = self.task_head.collate(features, with_gold)
        if with_gold and "soft_target" in features[0].fields:
            batch["soft_target"] = self.task_head.collate_soft_targets(features)
        return batch

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss of the labels, mixed with that of the soft targets if the batch has some."""
        loss, weight = self.task_head.loss(outputs, batch)
        if "soft_target" in batch:
            loss = (1 - self.weight) * loss + self.weight * self.task_head.soft_loss(outputs, batch)
        return loss, weight

    def unpack(self, outputs: dict[str, Tensor], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return self.task_head.unpack(outputs, batch, features)
