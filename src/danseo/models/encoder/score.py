"""Numbers from encoders: similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config import HeadConfig, TrainConfig
from danseo.models.encoder.classify import encode_texts, sides_of
from danseo.models.encoder.kind import Kind
from danseo.models.encoder.pieces import Pieces
from danseo.models.protocol import Answers
from danseo.records import Prediction
from danseo.tasks.task import Task
from danseo.training.features import Array, Features, Outputs, as_array

if TYPE_CHECKING:
    from torch import Tensor, nn


class Regress(Kind):
    """A pair of texts in, a number out."""

    head = "AutoModelForSequenceClassification"

    def __init__(self, task: Task, pieces: Pieces, config: HeadConfig, train: TrainConfig | None = None) -> None:
        super().__init__(task, pieces, config, train)
        if config.pooling == "compare":
            self.head = ""

    def head_options(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def build_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads import TextHead
        from danseo.models.encoder.pooling import CompareHead

        if self.config.pooling == "compare":
            head = CompareHead(body.config.hidden_size, 1, self.config.pool_dropout)
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
        return gold | sides_of(features)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from torch.nn import functional

        error = functional.mse_loss(outputs["logits"].float().squeeze(-1), batch["label"], reduction="sum")
        return error, error.new_full((), len(batch["label"]))

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"number": float(row[0])} for row in as_array(outputs["logits"])]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        return Answers([Prediction(e.guid, round(o["number"], 6)) for e, o in zip(examples, outputs, strict=True)])
