"""Losses of labels beyond cross-entropy, for rare labels, hard examples and changed priors: functions of tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from danseo.config import TrainConfig


def class_balanced_weights(counts: Sequence[int], beta: float) -> Tensor:
    """(1 - beta) / (1 - beta^n) per label, 1 on average over those that occur; others weigh 1."""
    found = torch.tensor(counts, dtype=torch.double)
    present = found > 0
    effective = (1 - beta**found) / (1 - beta)
    weights = torch.where(present, 1 / effective.clamp(min=1e-12), torch.zeros_like(effective))
    return torch.where(present, weights * present.sum() / weights.sum(), torch.ones_like(weights)).float()


def rare_margins(counts: Sequence[int], largest: float) -> Tensor:
    """LDAM's margins, by the inverse fourth root of the counts; the rarest label has the largest."""
    found = torch.tensor(counts, dtype=torch.float).clamp(min=1) ** -0.25
    return largest * found / found.max()


def log_prior(counts: Sequence[int]) -> Tensor:
    """The logarithm of the labels' shares; one that does not occur counts as seen half a time."""
    found = torch.tensor(counts, dtype=torch.float).clamp(min=0.5)
    return (found / found.sum()).log()


def smoothed(per_label: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Of the losses that each label would have, that of gold, and a share of the mean over all."""
    chosen = per_label.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (1 - smoothing) * chosen + smoothing * per_label.mean(dim=1) if smoothing else chosen


def cross_entropies(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of each row."""
    return smoothed(-functional.log_softmax(logits.float(), dim=-1), labels, smoothing)


def focal_losses(logits: Tensor, labels: Tensor, gamma: float, smoothing: float = 0.0) -> Tensor:
    """(1 - p)^gamma times the cross-entropy: what is right already counts less."""
    logs = functional.log_softmax(logits.float(), dim=-1)
    return smoothed(-((1 - logs.exp()) ** gamma) * logs, labels, smoothing)


def ldam_losses(logits: Tensor, labels: Tensor, margins: Tensor, scale: float, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy with the gold logit lowered by the margin of its label, all of it scaled."""
    lowered = logits.float() - functional.one_hot(labels, logits.shape[-1]) * margins.to(logits.device)
    return cross_entropies(scale * lowered, labels, smoothing)


def hardest(losses: Tensor, negatives: Tensor, share: float) -> Tensor:
    """Which rows count: all others, and of the negatives the given share with the largest losses."""
    count = int(negatives.sum())
    kept = -int(-count * share // 1)
    ranked = losses.detach().masked_fill(~negatives, -torch.inf).argsort(descending=True, stable=True)
    chosen = torch.zeros_like(negatives)
    chosen[ranked[:kept]] = True
    return ~negatives | chosen


class LabelLoss:
    """The loss that the settings name, with what it needs to know of the training labels."""

    def __init__(self, config: TrainConfig, counts: Sequence[int]) -> None:
        self.config = config
        self.weights = class_balanced_weights(counts, config.balance) if config.loss == "class_balanced" else None
        self.margins, self.prior = rare_margins(counts, config.margin), log_prior(counts)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row, weights aside."""
        config, smoothing = self.config, self.config.label_smoothing
        if config.loss == "focal":
            return focal_losses(logits, labels, config.gamma, smoothing)
        if config.loss == "ldam":
            return ldam_losses(logits, labels, self.margins, config.margin_scale, smoothing)
        if config.loss == "logit_adjusted":
            return cross_entropies(logits.float() + config.tau * self.prior.to(logits.device), labels, smoothing)
        return cross_entropies(logits, labels, smoothing)
