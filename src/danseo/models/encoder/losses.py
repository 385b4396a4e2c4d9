"""Losses that kinds share: of labels by weight, and of choosing a place, a word as head or a piece as start."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from danseo.training.features import IGNORED

NOWHERE = -1e9
"""The score of a place that is not there: padding, or a word as its own head."""


def position_cross_entropy(
    scores: Tensor, positions: Tensor, allowed: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed loss and how many choices it is summed over; only allowed positions get a share of the smoothing."""
    logs = functional.log_softmax(scores.float().masked_fill(~allowed, NOWHERE), dim=-1)
    chosen = logs.gather(-1, positions.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    spread = (logs * allowed).sum(-1) / allowed.sum(-1).clamp(min=1)
    counted = positions != IGNORED
    losses = -(1 - smoothing) * chosen - smoothing * spread
    return losses.masked_fill(~counted, 0.0).sum(), counted.sum().float()


def balanced_weights(labels: Sequence[int], classes: int) -> Tensor:
    """Weights by rarity, 1 on average over the labels given; a class that does not occur weighs 1."""
    counts = np.bincount(np.asarray(labels), minlength=classes)
    present = counts > 0
    weights = np.where(present, len(labels) / (present.sum() * np.maximum(counts, 1)), 1.0)
    return torch.tensor(weights, dtype=torch.float)


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The summed loss and the weight it is summed over; labels of IGNORED count for nothing."""
    weight = weights.to(logits.device) if weights is not None else None
    loss = nn.functional.cross_entropy(
        logits.float(), labels, weight=weight, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED
    )
    kept = (labels != IGNORED).float()  # not picked out: how many there are, a GPU would have to be asked
    return loss, kept.sum() if weight is None else (weight[labels.clamp(min=0)] * kept).sum()
