"""Multiple-choice head: each candidate is paired with the text and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead, log_softmax
from danseo.models.encoder.heads.classification import encode_texts
from danseo.records import Prediction, TextExample
from danseo.runs.soft_targets import TeacherAnswer
from danseo.training.features import Array, Features, Outputs, to_array

if TYPE_CHECKING:
    from torch import Tensor


class MultipleChoiceHead(TaskHead):
    """One candidate of a text; every candidate is a record with a score."""

    auto_class = "AutoModelForSequenceClassification"

    def head_options(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        pairs = [
            (number, TextExample(example.guid, text=example.text, pair=choice, gold=label), label == example.gold)
            for number, example in enumerate(examples)
            for label, choice in zip(self.task.labels, example.choices, strict=True)
        ]
        features = encode_texts([pair for _, pair, _ in pairs], self)
        found = []
        for record, (number, pair, is_right) in zip(features, pairs, strict=True):
            fields = {**record.fields, **({"right": float(is_right)} if with_gold else {})}
            found.append(replace(record, example=number, fields=fields | {"choice": pair.gold}))
        return found

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        return {"right": np.array([f.fields["right"] for f in features], dtype=np.float32)} if with_gold else {}

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from torch.nn import functional

        logits = outputs["logits"].float().squeeze(-1)
        error = functional.binary_cross_entropy_with_logits(logits, batch["right"], reduction="sum")
        return error, error.new_full((), len(batch["right"]))

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        named = (answer.prediction.probabilities if answer else None) or {}
        return np.array(named.get(record.fields["choice"], np.nan), dtype=np.float32)

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        from danseo.models.encoder.heads.losses import soft_binary_cross_entropy

        return soft_binary_cross_entropy(outputs["logits"].squeeze(-1), batch["soft_target"]).sum()

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"number": float(row[0])} for row in to_array(outputs["logits"])]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        labels = self.task.labels
        logits = np.array([output["number"] for output in outputs]).reshape(len(examples), len(labels))
        predictions = []
        for example, row in zip(examples, logits, strict=True):
            named = dict(zip(labels, np.exp(log_softmax(row)).tolist(), strict=True))
            predictions.append(Prediction(example.guid, labels[int(row.argmax())], named))
        return Answers(predictions)
