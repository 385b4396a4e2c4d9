"""Numbers from encoders: similarity."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from danseo.models.encoder.classify import encode_texts
from danseo.models.encoder.heads import TextHead
from danseo.models.encoder.kind import Kind
from danseo.models.protocol import Answers
from danseo.records import Prediction
from danseo.training.features import Features, Outputs


class Regress(Kind):
    """A pair of texts in, a number out."""

    head: ClassVar[str] = "AutoModelForSequenceClassification"

    def head_options(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def build_head(self, body: Any) -> nn.Module:
        return TextHead(body.config.hidden_size, 1, self.config)

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_texts(examples, self)
        if with_gold:
            for record, example in zip(features, examples, strict=True):
                record.fields["label"] = example.gold
        return features

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Tensor]:
        return {"label": torch.tensor([f.fields["label"] for f in features], dtype=torch.float)} if with_gold else {}

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        error = functional.mse_loss(outputs["logits"].float().squeeze(-1), batch["label"], reduction="sum")
        return error, error.new_full((), len(batch["label"]))

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        return [{"number": float(row[0])} for row in outputs["logits"].float().cpu().numpy()]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        return Answers([Prediction(e.guid, round(o["number"], 6)) for e, o in zip(examples, outputs, strict=True)])
