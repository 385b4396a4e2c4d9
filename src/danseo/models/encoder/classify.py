"""Labels from encoders: topics and inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config import HeadConfig, TrainConfig
from danseo.errors import DanseoError
from danseo.models.encoder.kind import Kind, log_softmax
from danseo.models.encoder.pieces import Cut, Pieces
from danseo.models.protocol import Answers
from danseo.records import Prediction
from danseo.tasks.task import Task
from danseo.training.features import Array, Features, Outputs, as_array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from danseo.models.encoder.label_losses import LabelLoss

ENTITY_POOLINGS = ("e_start", "cls+e_start", "e_mean", "e_max")


class Classify(Kind):
    """One or two texts in, one label out, through the stock head of the encoder's family."""

    head = "AutoModelForSequenceClassification"
    reads_entities = False
    """Whether the inputs say where two entities are."""

    def __init__(self, task: Task, pieces: Pieces, config: HeadConfig, train: TrainConfig | None = None) -> None:
        super().__init__(task, pieces, config, train)
        self.label_loss: LabelLoss | None = None
        self.hard_share, self.hard_step = 1.0, 0.0
        if config.pooling not in ("auto", "cls") or config.dropout_samples > 1:
            self.head = ""
        if config.pooling == "compare" and self.reads_entities:
            raise DanseoError(f"head.pooling = compare is for pairs of texts, which {task.name} has not; leave it out")
        if config.pooling in ENTITY_POOLINGS and not self.reads_entities:
            raise DanseoError(f"head.pooling = {config.pooling} reads entities, and {task.name} has none; leave it out")

    def build_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.decoder import is_decoder
        from danseo.models.encoder.heads import TextHead, pooling_of
        from danseo.models.encoder.pooling import CompareHead, PooledHead

        config, size = self.config, body.config.hidden_size
        pooling: str = config.pooling
        if pooling == "auto":
            pooling = pooling_of(config) if is_decoder(body.config) else "cls"
        if pooling == "compare":
            return CompareHead(size, len(self.task.labels), config.pool_dropout)
        if config.dropout_samples == 1 and pooling in ("last", "mean"):
            return TextHead(size, len(self.task.labels), config)
        return PooledHead(size, pooling, len(self.task.labels), config.pool_dropout, config.dropout_samples)

    def head_options(self) -> dict[str, Any]:
        labels = dict(enumerate(self.task.labels))
        return {"num_labels": len(labels), "id2label": labels, "label2id": {v: k for k, v in labels.items()}}

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_texts(examples, self)
        if with_gold:
            index = {label: number for number, label in enumerate(self.task.labels)}
            for record, example in zip(features, examples, strict=True):
                record.fields["label"] = index[example.gold]
        return features

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        gold = {"label": np.array([f.fields["label"] for f in features])} if with_gold else {}
        return gold | sides_of(features)

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.label_losses import LabelLoss
        from danseo.models.encoder.losses import balanced_weights

        labels = [record.fields["label"] for record in features]
        if self.train.class_weights == "balanced":
            self.class_weights = balanced_weights(labels, len(self.task.labels))
        counts = np.bincount(labels, minlength=len(self.task.labels)).tolist()
        self.label_loss = LabelLoss(self.train, counts)
        if self.label_loss.weights is not None:
            self.class_weights = self.label_loss.weights
        steps = self.train.epochs * -(-len(features) // self.train.batch_size)
        self.hard_step = (1 - self.train.hard_negatives) / max(1, steps - 1)

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        self.hard_share = max(self.train.hard_negatives, 1 - number * self.hard_step)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        samples = outputs.get("samples")
        parts = [outputs["logits"]] if samples is None else list(samples)
        found = [self._loss(self.admitted(logits, batch), batch["label"]) for logits in parts]
        return sum(loss for loss, _ in found) / len(found), found[0][1]  # type: ignore[return-value]

    def admitted(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """The logits, without those that an example cannot have."""
        return logits

    def _loss(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.label_losses import hardest
        from danseo.models.encoder.losses import weighted_cross_entropy

        is_plain = self.train.loss in ("ce", "class_balanced") and self.train.hard_negatives == 1
        if self.label_loss is None or is_plain:
            return weighted_cross_entropy(logits, labels, self.class_weights, self.train.label_smoothing)
        losses = self.label_loss(logits, labels)
        weights = losses.new_ones(len(losses))
        if self.class_weights is not None:
            weights = self.class_weights.to(losses.device)[labels]
        if self.hard_share < 1 and losses.requires_grad:
            weights = weights * hardest(losses, labels == self.task.labels.index(self.task.nothing), self.hard_share)
        return (weights * losses).sum(), weights.sum()

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"logits": row} for row in as_array(outputs["logits"])]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        labels = self.task.labels
        predictions = []
        for example, output in zip(examples, outputs, strict=True):
            probabilities = np.exp(log_softmax(output["logits"].astype(np.float64)))
            named = dict(zip(labels, probabilities.tolist(), strict=True))  # unrounded: AUPRC ranks the surest ones
            predictions.append(Prediction(example.guid, labels[int(output["logits"].argmax())], named))
        return Answers(predictions)


def encode_texts(examples: Sequence[Any], kind: Kind) -> list[Features]:
    """One input per example: a text, or a pair cut at its longer side until it fits."""
    firsts = kind.pieces.cut([example.text for example in examples])
    paired = bool(examples) and examples[0].pair is not None
    seconds = kind.pieces.cut([example.pair for example in examples]) if paired else [None] * len(firsts)
    limit = kind.longest - kind.pieces.specials(paired)
    features = []
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        cut = len(first) + (len(second) if second else 0) > limit
        if cut:
            shorten(first, second, limit)
        joined = kind.pieces.join(first, second)
        features.append(Features(number, joined.ids, joined.type_ids, {"truncated": cut}))
        if kind.config.pooling == "compare":
            features[-1].fields["sides"] = _sides(kind, first, second)
    return features


def _sides(kind: Kind, first: Cut, second: Cut | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the first and the second text stand in their input."""
    if second is None:
        raise DanseoError(f"head.pooling = compare is for pairs of texts, which {kind.task.name} has not; leave it out")
    frame = kind.pieces.frame(pair=True)
    start = len(frame.before)
    other = start + len(first) + len(frame.middle)
    return (start, start + len(first)), (other, other + len(second))


def sides_of(features: Sequence[Features]) -> dict[str, Array]:
    """Where the texts of pairs stand, for heads that compare them."""
    known = [record.fields["sides"] for record in features if "sides" in record.fields]
    return {"sides": np.array(known)} if known else {}


def shorten(first: Cut, second: Cut | None, limit: int) -> None:
    """Cut the longer of the two from the right until both fit."""
    if second is None:
        first.truncate(limit)
        return
    surplus, gap = len(first) + len(second) - limit, len(first) - len(second)
    from_first = min(surplus, max(gap, 0)) + max(surplus - abs(gap), 0) // 2
    keep_a = len(first) - from_first
    first.truncate(keep_a)
    second.truncate(limit - keep_a)
