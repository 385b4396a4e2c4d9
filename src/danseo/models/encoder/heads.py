"""Heads for bodies that bring none for understanding: decoder-only language models."""

import torch
from torch import Tensor, nn

from danseo.config import HeadConfig

_DROPOUT = 0.1


class Normed(nn.Module):
    """A head on states of ordinary size: those of language models may be a hundred times as large."""

    def __init__(self, size: int, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(size), inner

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            normed = self.norm(hidden.float())
        made: dict[str, Tensor] = self.inner(normed, batch)
        return made


class TextHead(nn.Module):
    """A score per label from the state that speaks for the text."""

    def __init__(self, size: int, labels: int, config: HeadConfig) -> None:
        super().__init__()
        self.pooling = pooling_of(config)
        self.dropout, self.scores = nn.Dropout(_DROPOUT), nn.Linear(size, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": self.scores(self.dropout(pooled(hidden, batch["attention_mask"], self.pooling)))}


class PieceHead(nn.Module):
    """A score per label for every piece."""

    def __init__(self, size: int, labels: int) -> None:
        super().__init__()
        self.dropout, self.scores = nn.Dropout(_DROPOUT), nn.Linear(size, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": self.scores(self.dropout(hidden))}


class SpanHead(nn.Module):
    """How likely an answer starts and ends at each piece; at the first one, how likely there is none.

    A first piece that sees nothing behind it cannot know that, so the state that speaks for the text does.
    """

    def __init__(self, size: int, config: HeadConfig) -> None:
        super().__init__()
        self.pooling = pooling_of(config)
        self.dropout, self.positions, self.none = nn.Dropout(_DROPOUT), nn.Linear(size, 2), nn.Linear(size, 2)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        text = pooled(hidden, batch["attention_mask"], self.pooling)
        positions, none = self.positions(self.dropout(hidden)), self.none(self.dropout(text))
        starts, ends = torch.cat([none[:, None].to(positions.dtype), positions[:, 1:]], dim=1).unbind(-1)
        return {"start_logits": starts, "end_logits": ends}


def pooling_of(config: HeadConfig) -> str:
    """Of which pieces the state of a text is made: where only the last one has seen all, of that."""
    automatic = "last" if config.attention == "causal" else "mean"
    return automatic if config.pooling == "auto" else config.pooling


def pooled(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """The state of each text (batch, size): that of its last piece, or the mean."""
    if pooling == "last":
        last = mask.sum(1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    weights = mask.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1)
