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


def pooled(hidden: Tensor, batch: dict[str, Tensor], pooling: str) -> list[Tensor]:
    """The states that a pooling reads, each rows x width."""
    if pooling in ("last", "mean"):
        return [text_state(hidden, batch["attention_mask"], pooling)]
    first = [] if pooling == "e_start" else [hidden[:, 0]]
    if pooling in ("e_start", "cls+e_start"):
        places = batch["starts"].unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        return [*first, *hidden.gather(1, places).unbind(dim=1)]
    if pooling in ("e_mean", "e_max"):
        return [*first, *(spanned(hidden, batch["spans"][:, role], pooling) for role in (0, 1))]
    return first


def spanned(hidden: Tensor, spans: Tensor, pooling: str) -> Tensor:
    """The mean or the largest of the states of a stretch of each row."""
    places = torch.arange(hidden.shape[1], device=hidden.device)
    inside = ((places >= spans[:, :1]) & (places < spans[:, 1:])).unsqueeze(-1)
    if pooling == "e_max":
        return hidden.masked_fill(~inside, torch.finfo(hidden.dtype).min).amax(dim=1)
    return (hidden * inside).sum(dim=1) / inside.sum(dim=1)
