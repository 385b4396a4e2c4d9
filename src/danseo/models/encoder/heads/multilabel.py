"""Multilabel head: a probability per label and one threshold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.base import Answers
from danseo.models.encoder.heads.classification import ClassificationHead, encode_texts
from danseo.records import Prediction
from danseo.tasktypes.decoding import fit_label_threshold
from danseo.training.features import Array, Features, Outputs

if TYPE_CHECKING:
    from torch import Tensor


class MultilabelHead(ClassificationHead):
    """Labels of a text or a pair of texts whose probability is above a threshold."""

    threshold = 0.5

    def head_options(self) -> dict[str, Any]:
        return {**super().head_options(), "problem_type": "multi_label_classification"}

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_texts(examples, self)
        if with_gold:
            for record, example in zip(features, examples, strict=True):
                record.fields["labels"] = [label in example.gold for label in self.task.labels]
        return features

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        return {"labels": np.array([f.fields["labels"] for f in features], dtype=np.float32)} if with_gold else {}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        import torch

        if self.config.class_weights == "balanced":
            have = np.array([record.fields["labels"] for record in features]).sum(axis=0)
            self.class_weights = torch.tensor((len(features) - have) / np.maximum(have, 1), dtype=torch.float32)

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Do nothing: no random choices per step."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss over labels, summed over texts, and the number of texts."""
        from torch.nn import functional

        logits, golds = outputs["logits"].float(), batch["labels"]
        smooth = self.config.label_smoothing
        weights = self.class_weights.to(logits.device) if self.class_weights is not None else None
        losses = functional.binary_cross_entropy_with_logits(
            logits, golds * (1 - smooth) + smooth / 2, pos_weight=weights, reduction="none"
        )
        return losses.mean(dim=-1).sum(), losses.new_full((), len(golds))

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        from danseo.models.encoder.heads.losses import soft_binary_cross_entropy

        return soft_binary_cross_entropy(outputs["logits"], batch["soft_target"]).mean(dim=-1).sum()

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        labels = self.task.labels
        predictions = []
        for example, chances in zip(examples, _chances(outputs), strict=True):
            named = dict(zip(labels, chances.tolist(), strict=True))
            answer = tuple(label for label, chance in named.items() if chance > self.threshold)
            predictions.append(Prediction(example.guid, answer, named))
        return Answers(predictions)

    def fit_thresholds(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> None:
        if examples:
            golds = np.array([[label in example.gold for label in self.task.labels] for example in examples])
            average = self.task.metrics[self.task.headline].average
            self.threshold = fit_label_threshold(np.array(_chances(outputs)), golds, average)

    def get_thresholds(self) -> dict[str, float]:
        return {"threshold": self.threshold}

    def restore_thresholds(self, thresholds: dict[str, float]) -> None:
        self.threshold = float(thresholds["threshold"])


def _chances(outputs: Sequence[Outputs]) -> list[Array]:
    return [1 / (1 + np.exp(-np.clip(output["logits"].astype(np.float64), -50, 50))) for output in outputs]
