"""The loss of choosing a place: a word as head, a piece as start of an answer."""

from torch import Tensor
from torch.nn import functional

from danseo.training.features import IGNORED

NOWHERE = -1e9
"""The score of a place that is not there: padding, or a word as its own head."""


def place_cross_entropy(scores: Tensor, places: Tensor, allowed: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss and how many choices it is summed over; only allowed places get a share of the smoothing."""
    logs = functional.log_softmax(scores.float().masked_fill(~allowed, NOWHERE), dim=-1)
    chosen = logs.gather(-1, places.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    spread = (logs * allowed).sum(-1) / allowed.sum(-1).clamp(min=1)
    counted = places != IGNORED
    losses = -(1 - smoothing) * chosen - smoothing * spread
    return losses.masked_fill(~counted, 0.0).sum(), counted.sum().float()
