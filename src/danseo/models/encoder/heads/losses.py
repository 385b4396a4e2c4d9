"""Loss functions of heads: cross-entropy of labels and positions, focal, LDAM, logit adjustment."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from danseo.models.encoder.settings import EncoderSettings
from danseo.training.features import IGNORED

NOWHERE = -1e9
"""The score of a position that does not exist: padding, or a word as its own head."""


def position_cross_entropy(
    scores: Tensor, positions: Tensor, allowed: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and the number of choices; only allowed positions share the smoothing."""
    logs = functional.log_softmax(scores.float().masked_fill(~allowed, NOWHERE), dim=-1)
    chosen = logs.gather(-1, positions.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    spread = (logs * allowed).sum(-1) / allowed.sum(-1).clamp(min=1)
    counted = positions != IGNORED
    losses = -(1 - smoothing) * chosen - smoothing * spread
    return losses.masked_fill(~counted, 0.0).sum(), counted.sum().float()


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return temperature² KL(teacher || student), summed over the rows; a row with NaN does not count."""
    is_known = ~targets.isnan().any(-1)
    teacher = targets.nan_to_num().float() ** (1 / temperature)
    teacher = teacher / teacher.sum(-1, keepdim=True).clamp(min=1e-12)
    student = functional.log_softmax(logits.float() / temperature, dim=-1)
    divergences = functional.kl_div(student, teacher, reduction="none").sum(-1)
    return temperature**2 * divergences.masked_fill(~is_known, 0.0).sum()


def soft_binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each yes-or-no decision with the teacher's probability; 0 for NaN."""
    errors = functional.binary_cross_entropy_with_logits(logits.float(), targets.nan_to_num(), reduction="none")
    return errors.masked_fill(targets.isnan(), 0.0)


def compute_balanced_weights(labels: Sequence[int], classes: int) -> Tensor:
    """Return inverse-frequency class weights with mean 1; an absent class gets 1."""
    counts = np.bincount(np.asarray(labels), minlength=classes)
    present = counts > 0
    weights = np.where(present, len(labels) / (present.sum() * np.maximum(counts, 1)), 1.0)
    return torch.tensor(weights, dtype=torch.float)


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and its total weight; labels of IGNORED do not count."""
    weight = weights.to(logits.device) if weights is not None else None
    loss = nn.functional.cross_entropy(
        logits.float(), labels, weight=weight, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED
    )
    kept = (labels != IGNORED).float()  # not picked out: how many there are, a GPU would have to be asked
    return loss, kept.sum() if weight is None else (weight[labels.clamp(min=0)] * kept).sum()


def compute_class_balanced_weights(counts: Sequence[int], beta: float) -> Tensor:
    """Return (1 - beta) / (1 - beta^n) per label, with mean 1 over labels that occur; others get 1."""
    found = torch.tensor(counts, dtype=torch.double)
    present = found > 0
    effective = (1 - beta**found) / (1 - beta)
    weights = torch.where(present, 1 / effective.clamp(min=1e-12), torch.zeros_like(effective))
    return torch.where(present, weights * present.sum() / weights.sum(), torch.ones_like(weights)).float()


def compute_margins(counts: Sequence[int], largest: float) -> Tensor:
    """Return LDAM's margins, proportional to counts^(-1/4); the rarest label has the largest."""
    found = torch.tensor(counts, dtype=torch.float).clamp(min=1) ** -0.25
    return largest * found / found.max()


def compute_log_prior(counts: Sequence[int]) -> Tensor:
    """Return the log prior of labels; an absent label counts as half an example."""
    found = torch.tensor(counts, dtype=torch.float).clamp(min=0.5)
    return (found / found.sum()).log()


def smooth_losses(per_label: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the loss of the gold label, smoothed with the mean over all labels."""
    chosen = per_label.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (1 - smoothing) * chosen + smoothing * per_label.mean(dim=1) if smoothing else chosen


def cross_entropies(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of each row."""
    return smooth_losses(-functional.log_softmax(logits.float(), dim=-1), labels, smoothing)


def focal_losses(logits: Tensor, labels: Tensor, gamma: float, smoothing: float = 0.0) -> Tensor:
    """Return (1 - p)^gamma times the cross-entropy of each row."""
    logs = functional.log_softmax(logits.float(), dim=-1)
    return smooth_losses(-((1 - logs.exp()) ** gamma) * logs, labels, smoothing)


def ldam_losses(logits: Tensor, labels: Tensor, margins: Tensor, scale: float, smoothing: float = 0.0) -> Tensor:
    """Return the scaled cross-entropy with the gold logit lowered by its label's margin."""
    lowered = logits.float() - functional.one_hot(labels, logits.shape[-1]) * margins.to(logits.device)
    return cross_entropies(scale * lowered, labels, smoothing)


def select_hardest(losses: Tensor, negatives: Tensor, share: float) -> Tensor:
    """Return which rows count: all others, and the given share of negatives with the largest losses."""
    kept = (negatives.sum() * share).ceil()
    ranked = losses.detach().masked_fill(~negatives, -torch.inf).argsort(descending=True, stable=True)
    return ~negatives | (ranked.argsort() < kept)


class LabelLoss:
    """The label loss of the settings, with the statistics of the training labels it needs."""

    def __init__(self, config: EncoderSettings, counts: Sequence[int]) -> None:
        self.config = config
        self.weights = (
            compute_class_balanced_weights(counts, config.class_balanced_beta)
            if config.loss == "class_balanced"
            else None
        )
        self.margins, self.prior = compute_margins(counts, config.ldam_margin), compute_log_prior(counts)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, without class weights."""
        config, smoothing = self.config, self.config.label_smoothing
        if config.loss == "focal":
            return focal_losses(logits, labels, config.focal_gamma, smoothing)
        if config.loss == "ldam":
            return ldam_losses(logits, labels, self.margins, config.ldam_scale, smoothing)
        if config.loss == "logit_adjusted":
            return cross_entropies(
                logits.float() + config.logit_adjustment_tau * self.prior.to(logits.device), labels, smoothing
            )
        return cross_entropies(logits, labels, smoothing)
