"""Networks that pool token states: text, token, span, entity and pair heads."""

from typing import Any

import torch
from torch import Tensor, nn

from danseo.models.encoder.heads.classification import ENTITY_POOLINGS
from danseo.models.encoder.settings import EncoderSettings

_DROPOUT = 0.1


class NormalizedHead(nn.Module):
    """A head with layer normalization, as states of language models can be very large."""

    def __init__(self, size: int, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(size), inner

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            normed = self.norm(hidden.float())
        made: dict[str, Tensor] = self.inner(normed, batch)
        return made


class TextHead(nn.Module):
    """Label scores from the pooled state of a text."""

    def __init__(self, size: int, labels: int, config: EncoderSettings) -> None:
        super().__init__()
        self.pooling = choose_pooling(config)
        self.dropout, self.scores = nn.Dropout(_DROPOUT), nn.Linear(size, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"logits": self.scores(self.dropout(pool_text(hidden, batch["texts"], self.pooling)))}


class TokenHead(nn.Module):
    """Label scores of every token."""

    def __init__(self, size: int, labels: int) -> None:
        super().__init__()
        self.dropout, self.scores = nn.Dropout(_DROPOUT), nn.Linear(size, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"logits": self.scores(self.dropout(hidden))}


class SpanHead(nn.Module):
    """Start and end scores of every token; those of the first one mean "no answer".

    A first token that sees nothing behind it cannot know that, so the state that speaks for the text does.
    """

    def __init__(self, size: int, config: EncoderSettings) -> None:
        super().__init__()
        self.pooling = choose_pooling(config)
        self.dropout, self.positions, self.none = nn.Dropout(_DROPOUT), nn.Linear(size, 2), nn.Linear(size, 2)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        text = pool_text(hidden, batch["texts"], self.pooling)
        positions, none = self.positions(self.dropout(hidden)), self.none(self.dropout(text))
        return score_spans(positions, none, batch["texts"])


def choose_pooling(config: EncoderSettings) -> str:
    """Choose the pooling: the last token of causal models, else the mean."""
    automatic = "last" if config.attention_direction == "causal" else "mean"
    return automatic if config.pooling == "auto" else config.pooling


def pool_text(hidden: Tensor, texts: Any, pooling: str) -> Tensor:
    """Return the pooled state of each text (texts, size): last token or mean."""
    if pooling == "last":
        return hidden.index_select(0, texts.lasts)
    return _mean(texts.pad(hidden), texts.mask.unsqueeze(-1))


def score_spans(positions: Tensor, none: Tensor, texts: Any) -> dict[str, Tensor]:
    """Return start and end scores of all tokens; the first token of each text has those of no answer."""
    starts, ends = positions.index_copy(0, texts.starts, none.to(positions.dtype)).unbind(-1)
    return {"start_logits": starts, "end_logits": ends}


STATES = {"cls": 1, "last": 1, "mean": 1, "e_start": 2, "cls+e_start": 3, "e_mean": 3, "e_max": 3}
"""Pooling -> number of pooled states."""


class PooledHead(nn.Module):
    """Label scores from pooled states of an input.

    Starts of entities, and the first token: joined, one layer with a ReLU (tanh for the first token alone), one that
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

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        state = self._state(pool_states(hidden, batch, self.pooling))
        if self.samples == 1 or not self.training:
            return {"logits": self.scores(self.dropout(state))}
        samples = torch.stack([self.scores(self.dropout(state)) for _ in range(self.samples)])
        return {"logits": samples.mean(dim=0), "samples": samples}

    def _state(self, states: list[Tensor]) -> Tensor:
        if self.is_span:
            return torch.cat([layer(torch.tanh(s)) for layer, s in zip(self.dense, states, strict=True)], dim=-1)
        state: Tensor = self.dense[0](self.dropout(torch.cat(states, dim=-1)))
        return state.relu() if self.pooling in ENTITY_POOLINGS else state.tanh()


class PairComparison(nn.Module):
    """Each token of two texts combined with its soft-aligned counterpart in the other text."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.match = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.match.weight)  # at first, tokens match that mean the same
        self.dropout, self.join = nn.Dropout(dropout), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, sides: list[Tensor]) -> Tensor:
        other = self.counterpart(hidden, *sides)
        beside = torch.cat([hidden, other, (hidden - other).abs(), hidden * other], dim=-1)
        joined: Tensor = self.join(self.dropout(beside))
        return joined.relu()

    def counterpart(self, hidden: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return for each token the mean of the other text's states, weighted by similarity."""
        keys: Tensor = self.match(hidden)
        nearness = keys @ keys.transpose(1, 2) / hidden.shape[-1] ** 0.5
        across = first & second.transpose(1, 2) | second & first.transpose(1, 2)
        weights = nearness.masked_fill(~across, torch.finfo(nearness.dtype).min).softmax(dim=-1)
        return torch.matmul(weights, hidden)


class CompareHead(nn.Module):
    """Label scores of a pair from its compared tokens and both texts."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.comparison, self.dense = PairComparison(width, dropout), nn.Linear(4 * width, width)
        self.dropout, self.scores = nn.Dropout(dropout), nn.Linear(width, labels)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        hidden = batch["texts"].pad(hidden)
        sides = mask_sides(hidden, batch)
        compared = self.comparison(hidden, sides)
        first, second = (_mean(hidden, side) for side in sides)
        whole = [*(_mean(compared, side) for side in sides), (first - second).abs(), first * second]
        state = self.dense(self.dropout(torch.cat(whole, dim=-1))).relu()
        return {"logits": self.scores(self.dropout(state))}


class CompareSpanHead(nn.Module):
    """Start and end scores of a passage compared with the question; no-answer scores from both texts."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.comparison, self.dropout = PairComparison(width, dropout), nn.Dropout(dropout)
        self.positions, self.none = nn.Linear(2 * width, 2), nn.Linear(2 * width, 2)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        texts = batch["texts"]
        table = texts.pad(hidden)
        sides = mask_sides(table, batch)
        compared = self.comparison(table, sides)
        none = self.none(self.dropout(torch.cat([_mean(compared, side) for side in sides], dim=-1)))
        positions = self.positions(self.dropout(torch.cat([hidden, texts.unpad(compared)], dim=-1)))
        return score_spans(positions, none, texts)


def mask_sides(hidden: Tensor, batch: dict[str, Any]) -> list[Tensor]:
    """Return masks of the tokens of the first and the second text."""
    return [mask_span(hidden, batch["sides"][:, side]) for side in (0, 1)]


def pool_states(hidden: Tensor, batch: dict[str, Any], pooling: str) -> list[Tensor]:
    """Return the states that a pooling reads, each texts x width."""
    texts = batch["texts"]
    if pooling in ("last", "mean"):
        return [pool_text(hidden, texts, pooling)]
    first = [] if pooling == "e_start" else [hidden.index_select(0, texts.starts)]
    if pooling in ("e_start", "cls+e_start"):
        return [*first, *(hidden.index_select(0, texts.starts + column) for column in batch["starts"].unbind(1))]
    if pooling in ("e_mean", "e_max"):
        table = texts.pad(hidden)
        return [*first, *(pool_span(table, batch["spans"][:, role], pooling) for role in (0, 1))]
    return first


def pool_span(hidden: Tensor, spans: Tensor, pooling: str) -> Tensor:
    """Return the mean or the maximum of the states in a span of each row."""
    within = mask_span(hidden, spans)
    if pooling == "e_max":
        return hidden.masked_fill(~within, torch.finfo(hidden.dtype).min).amax(dim=1)
    return _mean(hidden, within)


def mask_span(hidden: Tensor, spans: Tensor) -> Tensor:
    """Return which tokens of each row are in its span, rows x tokens x 1."""
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    return ((positions >= spans[:, :1]) & (positions < spans[:, 1:])).unsqueeze(-1)


def _mean(states: Tensor, within: Tensor) -> Tensor:
    weights = within.to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
