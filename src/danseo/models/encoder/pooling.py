"""Heads for labels that read more than the first piece: markers, entities, and several dropouts of one state."""

import torch
from torch import Tensor, nn

from danseo.models.encoder.classify import ENTITY_POOLINGS
from danseo.models.encoder.heads import pooled as text_state

STATES = {"cls": 1, "last": 1, "mean": 1, "e_start": 2, "cls+e_start": 3, "e_mean": 3, "e_max": 3}
"""Pooling -> how many states it reads."""


class PooledHead(nn.Module):
    """States of an input as scores of labels.

    Starts of entities, and the first piece: joined, one layer with a ReLU (tanh for the first piece alone), one that
    scores. Whole entities: each state through tanh and a layer of its own first.
    """

    def __init__(self, width: int, pooling: str, labels: int, dropout: float, samples: int = 1) -> None:
        super().__init__()
        self.pooling, self.samples = pooling, samples
        count = STATES[pooling]
        self.is_span = pooling in ("e_mean", "e_max")
        self.dense = nn.ModuleList(
            [nn.Linear(width, width) for _ in range(count)] if self.is_span else [nn.Linear(count * width, width)]
        )
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(count * width if self.is_span else width, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        state = self._state(pooled(hidden, batch, self.pooling))
        if self.samples == 1 or not self.training:
            return {"logits": self.scores(self.dropout(state))}
        samples = torch.stack([self.scores(self.dropout(state)) for _ in range(self.samples)])
        return {"logits": samples.mean(dim=0), "samples": samples}

    def _state(self, states: list[Tensor]) -> Tensor:
        if self.is_span:
            return torch.cat([layer(torch.tanh(s)) for layer, s in zip(self.dense, states, strict=True)], dim=-1)
        state: Tensor = self.dense[0](self.dropout(torch.cat(states, dim=-1)))
        return state.relu() if self.pooling in ENTITY_POOLINGS else state.tanh()


class Comparison(nn.Module):
    """Each piece of two texts beside what the other text has for it, as one state."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.match = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.match.weight)  # at first, pieces match that mean the same
        self.dropout, self.join = nn.Dropout(dropout), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, sides: list[Tensor]) -> Tensor:
        other = self.counterpart(hidden, *sides)
        beside = torch.cat([hidden, other, (hidden - other).abs(), hidden * other], dim=-1)
        joined: Tensor = self.join(self.dropout(beside))
        return joined.relu()

    def counterpart(self, hidden: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """For each piece of a text the mean of the other's states, weighted by how well they match it."""
        keys: Tensor = self.match(hidden)
        nearness = keys @ keys.transpose(1, 2) / hidden.shape[-1] ** 0.5
        across = first & second.transpose(1, 2) | second & first.transpose(1, 2)
        weights = nearness.masked_fill(~across, torch.finfo(nearness.dtype).min).softmax(dim=-1)
        return torch.matmul(weights, hidden)


class CompareHead(nn.Module):
    """Scores of a pair from its pieces as compared, and from both texts as a whole."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.comparison, self.dense = Comparison(width, dropout), nn.Linear(4 * width, width)
        self.dropout, self.scores = nn.Dropout(dropout), nn.Linear(width, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        sides = sides_in(hidden, batch)
        compared = self.comparison(hidden, sides)
        first, second = (_mean(hidden, side) for side in sides)
        whole = [*(_mean(compared, side) for side in sides), (first - second).abs(), first * second]
        state = self.dense(self.dropout(torch.cat(whole, dim=-1))).relu()
        return {"logits": self.scores(self.dropout(state))}


class CompareSpanHead(nn.Module):
    """Starts and ends from a passage compared with the question, piece by piece; from both as a whole, that none is."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.comparison, self.dropout = Comparison(width, dropout), nn.Dropout(dropout)
        self.positions, self.none = nn.Linear(2 * width, 2), nn.Linear(2 * width, 2)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        sides = sides_in(hidden, batch)
        compared = self.comparison(hidden, sides)
        none = self.none(self.dropout(torch.cat([_mean(compared, side) for side in sides], dim=-1)))
        positions = self.positions(self.dropout(torch.cat([hidden, compared], dim=-1)))
        starts, ends = torch.cat([none[:, None], positions[:, 1:]], dim=1).unbind(-1)
        return {"start_logits": starts, "end_logits": ends}


def sides_in(hidden: Tensor, batch: dict[str, Tensor]) -> list[Tensor]:
    """Which pieces are of the first text, and which of the second."""
    return [inside(hidden, batch["sides"][:, side]) for side in (0, 1)]


def pooled(hidden: Tensor, batch: dict[str, Tensor], pooling: str) -> list[Tensor]:
    """The states that a pooling reads, each rows x width."""
    if pooling in ("last", "mean"):
        return [text_state(hidden, batch["attention_mask"], pooling)]
    first = [] if pooling == "e_start" else [hidden[:, 0]]
    if pooling in ("e_start", "cls+e_start"):
        positions = batch["starts"].unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        return [*first, *hidden.gather(1, positions).unbind(dim=1)]
    if pooling in ("e_mean", "e_max"):
        return [*first, *(spanned(hidden, batch["spans"][:, role], pooling) for role in (0, 1))]
    return first


def spanned(hidden: Tensor, spans: Tensor, pooling: str) -> Tensor:
    """The mean or the largest of the states of a stretch of each row."""
    within = inside(hidden, spans)
    if pooling == "e_max":
        return hidden.masked_fill(~within, torch.finfo(hidden.dtype).min).amax(dim=1)
    return _mean(hidden, within)


def inside(hidden: Tensor, spans: Tensor) -> Tensor:
    """Which pieces of each row are in its stretch, rows x pieces x 1."""
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    return ((positions >= spans[:, :1]) & (positions < spans[:, 1:])).unsqueeze(-1)


def _mean(states: Tensor, within: Tensor) -> Tensor:
    weights = within.to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
