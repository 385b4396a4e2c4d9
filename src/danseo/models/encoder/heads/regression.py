"""Regression head: a number for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.train import TrainSettings
from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.heads.classification import collate_sides, encode_texts
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.records import Prediction
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.base import Task
from danseo.training.features import Array, Features, Outputs, to_array

if TYPE_CHECKING:
    from torch import Tensor, nn


class RegressionHead(TaskHead):
    """A number for a text or a pair of texts."""

    auto_class = "AutoModelForSequenceClassification"

    def __init__(self, task: Task, tokenizer: EncoderTokenizer, config: EncoderSettings, train: TrainSettings) -> None:
        super().__init__(task, tokenizer, config, train)
        if config.pooling == "compare":
            self.auto_class = ""

    def head_options(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def build_network_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads.pooling import CompareHead, TextHead

        if self.config.pooling == "compare":
            head = CompareHead(body.config.hidden_size, 1, self.config.classifier_dropout)
            head.scores.bias.data.fill_(sum(self.task.scale) / len(self.task.scale))  # else it is learned first
            return head
        return TextHead(body.config.hidden_size, 1, self.config)

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_texts(examples, self)
        if with_gold:
            for record, example in zip(features, examples, strict=True):
                record.fields["label"] = example.gold
        return features

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        gold = {"label": np.array([f.fields["label"] for f in features], dtype=np.float32)} if with_gold else {}
        return gold | collate_sides(features)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from torch.nn import functional

        error = functional.mse_loss(outputs["logits"].float().squeeze(-1), batch["label"], reduction="sum")
        return error, error.new_full((), len(batch["label"]))

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        return True

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        return np.array(answer.prediction.answer if answer else np.nan, dtype=np.float32)

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        targets: Tensor = batch["soft_target"]
        errors = outputs["logits"].float().squeeze(-1) - targets.nan_to_num()
        return (errors**2).masked_fill(targets.isnan(), 0.0).sum()

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"number": float(row[0])} for row in to_array(outputs["logits"])]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        return Answers([Prediction(e.guid, round(o["number"], 6)) for e, o in zip(examples, outputs, strict=True)])
