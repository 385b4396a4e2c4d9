"""The objective of masked language modelling for the trainer, and the forward pass at gaps."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from danseo.errors import DanseoError
from danseo.models.encoder.network import Network
from danseo.models.encoder.packed_forward import states_at
from danseo.models.encoder.packed_texts import PackedTexts
from danseo.training.features import Features, Outputs
from danseo.training.network import to_tensors

COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Architectures whose positions start behind their padding id."""
ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta-v2", "modernbert")


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """Apply the model's vocabulary head to hidden states of any leading shape."""
    architecture = model.config.model_type
    if architecture == "electra":
        logits: Tensor = model.generator_lm_head(model.generator_predictions(hidden))
    elif architecture == "modernbert":
        logits = model.decoder(model.head(hidden))
    elif hasattr(model, "lm_head"):
        logits = model.lm_head(hidden)
    elif hasattr(model, "lm_predictions"):
        logits = model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)
    elif hasattr(model, "cls"):
        logits = model.cls(hidden)
    else:
        raise DanseoError(
            f"unknown masked-language-model head of {architecture}; choose one of {', '.join(ARCHITECTURES)}"
        )
    return logits


Masker = Callable[[Features, int | None], Any]
"""Function of a features record and a step (None in evaluation, with fixed gaps) to the masked sequence."""


class MlmNetwork(Network):
    """A masked language model whose vocabulary head runs only at gaps."""

    def __init__(self, model: Any, seq_len: int = 256) -> None:
        super().__init__(model, None)
        self.shape = (max(1, 1024 // seq_len), seq_len)  # which attention is fastest depends on it

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"logits": vocabulary_logits(self.model, states_at(self.model, *gap_inputs(batch)))}

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        """Return masked sequences as a row of tokens."""
        return self.tensors(objective.mask_features(features, with_gold), features)

    def tensors(self, masked: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        """Return masked sequences as a row of tokens; each document of a sequence is a separate text."""
        sizes = [len(one.ids) for one in masked]
        starts = np.cumsum(sizes) - sizes
        parts = (record.fields.get("parts", ()) for record in features)
        lengths = [int(n) for part, size in zip(parts, sizes, strict=True) for n in (part if len(part) else (size,))]
        positions = np.concatenate([one.positions + start for one, start in zip(masked, starts, strict=True)])
        arrays = {
            "input_ids": np.concatenate([one.ids for one in masked]),
            "positions": positions.astype(np.int64),
            "labels": np.concatenate([one.labels for one in masked]).astype(np.int64),
            "weights": np.concatenate([one.weights for one in masked]).astype(np.float32),
            "owners": np.repeat(np.arange(len(masked)), [len(one.positions) for one in masked]),
        }
        counts = np.histogram(positions, np.cumsum([0, *lengths]))[0].tolist()
        return {**to_tensors(arrays), "texts": PackedTexts.of(lengths), "counts": tuple(counts)}


def gap_inputs(batch: dict[str, Any]) -> tuple[Any, ...]:
    """Return what states_at reads of a batch."""
    return tuple(batch[name] for name in ("input_ids", "texts", "positions", "counts"))


class MlmObjective:
    """The objective of masked language modelling: masks of the step and the loss."""

    def __init__(self, masker: Masker, on_batch: Callable[[Sequence[Features]], None] = lambda batch: None) -> None:
        self.masker, self.on_batch = masker, on_batch
        self.step = 0

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Set the step that masks depend on, and pass on the whole batch."""
        self.step = number
        self.on_batch(batch)

    def mask_features(self, features: Sequence[Features], with_gold: bool) -> list[Any]:
        """Mask the sequences for the step, or as in every evaluation."""
        return [self.masker(record, self.step if with_gold else None) for record in features]

    def quality(self, scores: dict[str, float], step: int) -> float:
        """Return the quality of an evaluation; the best weights are kept."""
        return -scores["held_out_loss"]

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of cross-entropies, and the sum of the weights."""
        losses = nn.functional.cross_entropy(outputs["logits"].float(), batch["labels"], reduction="none")
        return (losses * batch["weights"]).sum(), batch["weights"].sum()

    def unpack(self, outputs: dict[str, Tensor], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """Return per sequence the loss at each gap, whether the first guess is right, and the weight."""
        logits = outputs["logits"].float()
        losses = nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        columns = {"losses": losses, "right": logits.argmax(-1) == batch["labels"], "weights": batch["weights"]}
        return split_by_record(columns, batch["owners"], len(features))


def split_by_record(columns: dict[str, Tensor], owners: Tensor, records: int) -> list[Outputs]:
    """Split columns over a batch into those of each record."""
    cuts = np.searchsorted(owners.cpu().numpy(), np.arange(1, records))
    parts = {name: np.split(column.cpu().numpy(), cuts) for name, column in columns.items()}
    return [{name: part[k] for name, part in parts.items()} for k in range(records)]


def compute_recovery_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Return the held-out scores and the share of rows whose gaps are all right."""
    recovered = float(np.mean([bool(output["right"].all()) for output in outputs]))
    return {**compute_held_out_scores(outputs), "recovered": recovered}


def compute_held_out_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Return the mean loss per masked token and the accuracy of the first guess."""
    losses = np.concatenate([output["losses"] for output in outputs])
    right = np.concatenate([output["right"] for output in outputs])
    weights = np.concatenate([output["weights"] for output in outputs])
    total = max(float(weights.sum()), 1e-9)
    return {
        "held_out_loss": float((losses * weights).sum() / total),
        "held_out_accuracy": float((right * weights).sum() / total),
    }
