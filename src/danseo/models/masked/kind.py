"""Masked language modelling for the training loop: gaps in, the loss of what was there out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from danseo.models.encoder.network import Network
from danseo.models.masked.head import states_at, vocabulary_logits
from danseo.training.features import IGNORED, Array, Features, Outputs, padded
from danseo.training.network import tensors

Masker = Callable[[Features, int | None], Any]
"""From a features record and a step (None for evaluation, where the gaps never change) to its Masked."""


class MaskedNetwork(Network):
    """A masked language model whose vocabulary head runs only at the gaps."""

    def __init__(self, model: Any, seq_len: int = 256) -> None:
        super().__init__(model, None)
        self.shape = (max(1, 1024 // seq_len), seq_len)  # which attention is fastest depends on it

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        inputs = (batch["input_ids"], batch["attention_mask"], batch.get("documents"))
        states = states_at(self.model, batch["positions"], *inputs)
        return {"logits": vocabulary_logits(self.model, at_gaps(states, batch))}

    def collate(self, features: list[Features], kind: Any, with_gold: bool) -> dict[str, Tensor]:
        """Sequences with gaps as padded tensors."""
        return self.tensors(kind.masked(features, with_gold), features, kind.pad)

    def tensors(self, masked: Sequence[Any], features: Sequence[Features], pad: int) -> dict[str, Tensor]:
        """What is masked as tensors; rows of several documents number them."""
        arrays = {
            "input_ids": padded([one.ids for one in masked], pad),
            "attention_mask": padded([np.ones(len(one.ids), dtype=np.int64) for one in masked], 0),
            "positions": padded([one.positions for one in masked], 0),
            "gaps": _gaps([len(one.positions) for one in masked]),
            "labels": np.concatenate([one.labels for one in masked]).astype(np.int64),
            "weights": np.concatenate([one.weights for one in masked]).astype(np.float32),
            "owners": np.repeat(np.arange(len(masked)), [len(one.positions) for one in masked]),
        }
        parts = [record.fields.get("parts", ()) for record in features]
        if max(map(len, parts)) > 1:
            numbers: list[Any] = [
                np.repeat(np.arange(len(part)), part) if len(part) else [0] * len(record)
                for part, record in zip(parts, features, strict=True)
            ]
            arrays["documents"] = padded(numbers, IGNORED)
        return tensors(arrays)


def _gaps(counts: Sequence[int]) -> Array:
    """Which of the padded positions are gaps, by number: a GPU would have to be asked how many a mask picks."""
    width = max(counts, default=0)
    numbers = [np.arange(row * width, row * width + count) for row, count in enumerate(counts)]
    found: Array = np.concatenate(numbers)
    return found


def at_gaps(padded_values: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """What belongs to gaps, of values at all positions."""
    return padded_values.flatten(0, 1)[batch["gaps"]]


class MaskedKind:
    """The part of a Kind that the loop uses: masks for the step at hand, and the loss."""

    usual_weight: float | None = None  # sequences are packed, so all weigh about the same

    def __init__(
        self, masker: Masker, pad: int, on_batch: Callable[[Sequence[Features]], None] = lambda batch: None
    ) -> None:
        self.masker, self.pad, self.on_batch = masker, pad, on_batch
        self.step = 0

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Masks depend on the step's number and on the whole batch, never on how it is divided."""
        self.step = number
        self.on_batch(batch)

    def masked(self, features: Sequence[Features], with_gold: bool) -> list[Any]:
        """The sequences with their gaps: those of the step, or those of every evaluation."""
        return [self.masker(record, self.step if with_gold else None) for record in features]

    def quality(self, scores: dict[str, float], step: int) -> float:
        """What an evaluation is worth; the best weights are kept."""
        return -scores["held_out_loss"]

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The weighted sum of cross entropies, and the weights it is summed over."""
        losses = nn.functional.cross_entropy(outputs["logits"].float(), batch["labels"], reduction="none")
        return (losses * batch["weights"]).sum(), batch["weights"].sum()

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        """Per sequence: the loss at each gap, whether the piece was the first guess, and the weight."""
        logits = outputs["logits"].float()
        losses = nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        columns = {"losses": losses, "right": logits.argmax(-1) == batch["labels"], "weights": batch["weights"]}
        return by_record(columns, batch["owners"], len(features))


def by_record(columns: dict[str, Tensor], owners: Tensor, records: int) -> list[Outputs]:
    """Columns over the positions of a whole batch, cut into those of each record."""
    cuts = np.searchsorted(owners.cpu().numpy(), np.arange(1, records))
    parts = {name: np.split(column.cpu().numpy(), cuts) for name, column in columns.items()}
    return [{name: part[k] for name, part in parts.items()} for k in range(records)]


def recovery_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """As held_out_scores, and the share of rows whose gaps are all met: whole mentions recovered."""
    whole = float(np.mean([bool(output["right"].all()) for output in outputs]))
    return {**held_out_scores(outputs), "recovered": whole}


def held_out_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Mean loss per masked piece, and the share of them that the first guess meets."""
    losses = np.concatenate([output["losses"] for output in outputs])
    right = np.concatenate([output["right"] for output in outputs])
    weights = np.concatenate([output["weights"] for output in outputs])
    total = max(float(weights.sum()), 1e-9)
    return {
        "held_out_loss": float((losses * weights).sum() / total),
        "held_out_accuracy": float((right * weights).sum() / total),
    }
