"""Classification head: one label for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead, log_softmax
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.encoder.tokenizer import EncoderTokenizer, TokenizedText
from danseo.records import Prediction
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.base import Task
from danseo.training.features import Array, Features, Outputs, to_array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from danseo.models.encoder.heads.losses import LabelLoss

ENTITY_POOLINGS = ("e_start", "cls+e_start", "e_mean", "e_max")


class ClassificationHead(TaskHead):
    """One label for a text or a pair of texts, by default with the stock head."""

    auto_class = "AutoModelForSequenceClassification"

    def __init__(self, task: Task, tokenizer: EncoderTokenizer, config: EncoderSettings, train: TrainSettings) -> None:
        super().__init__(task, tokenizer, config, train)
        self.label_loss: LabelLoss | None = None
        self.hard_share, self.hard_step = 1.0, 0.0
        if config.pooling not in ("auto", "cls") or config.multi_sample_dropout > 1:
            self.auto_class = ""
        if config.pooling == "compare" and self.reads_entities:
            raise DanseoError(
                f"encoder.pooling = compare is for pairs of texts, which {task.name} has not; leave it out"
            )
        if config.pooling in ENTITY_POOLINGS and not self.reads_entities:
            raise DanseoError(
                f"encoder.pooling = {config.pooling} reads entities, and {task.name} has none; leave it out"
            )

    def build_network_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.decoder_only import is_decoder
        from danseo.models.encoder.heads.pooling import CompareHead, PooledHead, TextHead, choose_pooling

        config, size = self.config, body.config.hidden_size
        pooling: str = config.pooling
        if pooling == "auto":
            pooling = choose_pooling(config) if is_decoder(body.config) else "cls"
        if pooling == "compare":
            return CompareHead(size, len(self.task.labels), config.classifier_dropout)
        if config.multi_sample_dropout == 1 and pooling in ("last", "mean"):
            return TextHead(size, len(self.task.labels), config)
        return PooledHead(size, pooling, len(self.task.labels), config.classifier_dropout, config.multi_sample_dropout)

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
        return gold | collate_sides(features)

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.heads.losses import LabelLoss, compute_balanced_weights

        labels = [record.fields["label"] for record in features]
        if self.config.class_weights == "balanced":
            self.class_weights = compute_balanced_weights(labels, len(self.task.labels))
        counts = np.bincount(labels, minlength=len(self.task.labels)).tolist()
        self.label_loss = LabelLoss(self.config, counts)
        if self.label_loss.weights is not None:
            self.class_weights = self.label_loss.weights
        steps = self.train.epochs * -(-len(features) // self.train.batch_size)
        self.hard_step = (1 - self.config.hard_negative_ratio) / max(1, steps - 1)

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        self.hard_share = max(self.config.hard_negative_ratio, 1 - number * self.hard_step)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        samples = outputs.get("samples")
        parts = [outputs["logits"]] if samples is None else list(samples)
        found = [self._loss(self.mask_logits(logits, batch), batch["label"]) for logits in parts]
        return sum(loss for loss, _ in found) / len(found), found[0][1]  # type: ignore[return-value]

    def mask_logits(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Return the logits, with labels removed that an example cannot have."""
        return logits

    def _loss(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.heads.losses import select_hardest, weighted_cross_entropy

        is_plain = self.config.loss in ("ce", "class_balanced") and self.config.hard_negative_ratio == 1
        if self.label_loss is None or is_plain:
            return weighted_cross_entropy(logits, labels, self.class_weights, self.config.label_smoothing)
        losses = self.label_loss(logits, labels)
        weights = losses.new_ones(len(losses))
        if self.class_weights is not None:
            weights = self.class_weights.to(losses.device)[labels]
        if self.hard_share < 1 and losses.requires_grad:
            weights = weights * select_hardest(
                losses, labels == self.task.labels.index(self.task.nothing), self.hard_share
            )
        return (weights * losses).sum(), weights.sum()

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        named = (answer.prediction.probabilities if answer else None) or {}
        return np.array([named.get(label, 0.0 if named else np.nan) for label in self.task.labels], dtype=np.float32)

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        from danseo.models.encoder.heads.losses import soft_cross_entropy

        return soft_cross_entropy(outputs["logits"], batch["soft_target"], self.train.distill_temperature)

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"logits": row} for row in to_array(outputs["logits"])]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        labels = self.task.labels
        predictions = []
        for example, output in zip(examples, outputs, strict=True):
            probabilities = np.exp(log_softmax(output["logits"].astype(np.float64)))
            named = dict(zip(labels, probabilities.tolist(), strict=True))  # unrounded: AUPRC ranks the surest ones
            predictions.append(Prediction(example.guid, labels[int(output["logits"].argmax())], named))
        return Answers(predictions)


def encode_texts(examples: Sequence[Any], task_head: TaskHead) -> list[Features]:
    """Return one input per example: a text, or a pair whose longer text is truncated."""
    firsts = task_head.tokenizer.tokenize([example.text for example in examples])
    paired = bool(examples) and examples[0].pair is not None
    seconds = task_head.tokenizer.tokenize([example.pair for example in examples]) if paired else [None] * len(firsts)
    limit = task_head.max_length - task_head.tokenizer.count_special_tokens(paired)
    features = []
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        cut = len(first) + (len(second) if second else 0) > limit
        if cut:
            truncate_pair(first, second, limit)
        joined = task_head.tokenizer.add_special_tokens(first, second)
        features.append(Features(number, joined.ids, joined.type_ids, {"truncated": cut}))
        if task_head.config.pooling == "compare":
            features[-1].fields["sides"] = _sides(task_head, first, second)
    return features


def _sides(
    task_head: TaskHead, first: TokenizedText, second: TokenizedText | None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the token spans of the first and the second text."""
    if second is None:
        raise DanseoError(
            f"encoder.pooling = compare is for pairs of texts, which {task_head.task.name} has not; leave it out"
        )
    frame = task_head.tokenizer.get_special_tokens(pair=True)
    start = len(frame.before)
    other = start + len(first) + len(frame.middle)
    return (start, start + len(first)), (other, other + len(second))


def collate_sides(features: Sequence[Features]) -> dict[str, Array]:
    """Return the token spans of the texts of pairs, for heads that compare them."""
    known = [record.fields["sides"] for record in features if "sides" in record.fields]
    return {"sides": np.array(known)} if known else {}


def truncate_pair(first: TokenizedText, second: TokenizedText | None, limit: int) -> None:
    """Truncate the longer of the two from the right until both fit."""
    if second is None:
        first.truncate(limit)
        return
    surplus, gap = len(first) + len(second) - limit, len(first) - len(second)
    from_first = min(surplus, max(gap, 0)) + max(surplus - abs(gap), 0) // 2
    keep_a = len(first) - from_first
    first.truncate(keep_a)
    second.truncate(limit - keep_a)
