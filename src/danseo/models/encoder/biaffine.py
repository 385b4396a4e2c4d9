"""Heads of dependency parsers: every pair of words scored, straight on the encoder or as KLUE's own code does."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from danseo.config import HeadConfig
from danseo.models.encoder.losses import NOWHERE
from danseo.tasks.dp import TAGS

LSTM_SIZE, TAG_SIZE = 768, 256  # of the official architecture


class Biaffine(nn.Module):
    """Scores of pairs of vectors: their product through a matrix per score, a linear part of each, and a bias."""

    def __init__(self, left: int, right: int, scores: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(scores, left, right))
        self.left, self.right = nn.Linear(left, scores), nn.Linear(right, scores, bias=False)
        for weight in (self.weight[0] if scores == 1 else self.weight, self.left.weight, self.right.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.left.bias)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """All pairs: [B, W, left] and [B, V, right] to [B, W, V, scores]."""
        products = torch.einsum("bwl,slr,bvr->bwvs", left, self.weight, right)
        scores: Tensor = products + self.left(left).unsqueeze(2) + self.right(right).unsqueeze(1)
        return scores

    def matched(self, left: Tensor, right: Tensor) -> Tensor:
        """Each with its own partner: [B, W, left] and [B, W, right] to [B, W, scores]."""
        products = torch.einsum("bwl,slr,bwr->bws", left, self.weight, right)
        scores: Tensor = products + self.left(left) + self.right(right)
        return scores


class ChannelDropout(nn.Module):
    """Dropout of feature dimensions, for all words of a sentence at once."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout1d(share)

    def forward(self, vectors: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(vectors.transpose(1, 2)).transpose(1, 2)
        return dropped


class Scorer(nn.Module):
    """Scores of heads and relations from the vectors of dependents and of possible heads."""

    def __init__(self, dependent: int, head: int, labels: int, config: HeadConfig, *, dropout: float) -> None:
        super().__init__()

        def layer(size: int, width: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, width), nn.ELU(), ChannelDropout(dropout))

        self.arc_dependent, self.arc_head = layer(dependent, config.arc_size), layer(head, config.arc_size)
        self.relation_dependent = layer(dependent, config.relation_size)
        self.relation_head = layer(head, config.relation_size)
        self.arcs = Biaffine(config.arc_size, config.arc_size, 1)
        self.relations = Biaffine(config.relation_size, config.relation_size, labels)

    def forward(self, dependents: Tensor, heads: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Arcs [B, W, W+1]; relations for the gold heads in training [B, W, labels], else for all of them."""
        arcs = self.arcs(self.arc_dependent(dependents), self.arc_head(heads)).squeeze(-1)
        missing = torch.arange(heads.shape[1], device=heads.device) > batch["words"].unsqueeze(1)
        left, right = self.relation_dependent(dependents), self.relation_head(heads)
        if self.training and "heads" in batch:
            relations = self.relations.matched(left, picked(right, batch["heads"].clamp(min=0)))
        else:
            relations = self.relations(left, right)
        return {"arcs": arcs.masked_fill(missing.unsqueeze(1), NOWHERE), "relations": relations}


class Parser(nn.Module):
    """The default: biaffine scores straight on the encoder."""

    def __init__(self, hidden: int, labels: int, config: HeadConfig) -> None:
        super().__init__()
        self.dropout = ChannelDropout(config.head_dropout)
        self.scorer = Scorer(2 * hidden, 2 * hidden, labels, config, dropout=config.head_dropout)
        for layer in (self.scorer.arcs, self.scorer.relations):
            # Random products are loud: with a small untrained encoder they cost 24 to 39 points of UAS after 3 epochs.
            nn.init.zeros_(layer.weight)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = self.dropout(word_vectors(hidden.float(), batch))
            outputs: dict[str, Tensor] = self.scorer(vectors[:, 1:], vectors, batch)
        itself = torch.ones_like(outputs["arcs"][0], dtype=torch.bool).triu(1).tril(1)
        return outputs | {"arcs": outputs["arcs"].masked_fill(itself, NOWHERE)}


class OfficialParser(nn.Module):
    """KLUE's own: the last POS tag of each word as input, a BiLSTM over root and words, an LSTM over the words."""

    def __init__(self, hidden: int, labels: int, config: HeadConfig) -> None:
        super().__init__()
        self.tags = nn.Embedding(len(TAGS) + 1, TAG_SIZE)
        self.tag_dropout = nn.Dropout1d(config.head_dropout)  # of whole words
        self.dropout = ChannelDropout(config.head_dropout)
        self.encoder = nn.LSTM(2 * hidden + TAG_SIZE, LSTM_SIZE, batch_first=True, bidirectional=True)
        self.bridge, self.start = nn.Linear(2 * LSTM_SIZE, LSTM_SIZE), nn.Linear(2 * LSTM_SIZE, LSTM_SIZE)
        self.decoder = nn.LSTM(LSTM_SIZE, LSTM_SIZE, batch_first=True)
        self.scorer = Scorer(LSTM_SIZE, 2 * LSTM_SIZE, labels, config, dropout=0.0)

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            tags = self.tag_dropout(self.tags(batch["pos"]))
            vectors = torch.cat([word_vectors(hidden.float(), batch), tags], dim=-1)
            heads, cells = self._read(vectors, batch["words"] + 1)
            start = self.start(cells).unsqueeze(0)
            dependents, _ = self.decoder(nn.functional.elu(self.bridge(heads[:, 1:])), (start.tanh(), start))
            outputs: dict[str, Tensor] = self.scorer(self.dropout(dependents), heads, batch)
        return outputs

    def _read(self, vectors: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """The BiLSTM's outputs with dropout, and its two final cells side by side."""
        packed = pack_padded_sequence(vectors, sizes.cpu(), batch_first=True, enforce_sorted=False)
        states, (_, cells) = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=vectors.shape[1])
        return self.dropout(states), torch.cat([cells[0], cells[1]], dim=-1)


def word_vectors(hidden: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """First and last piece of the root, which is the first piece of all, and of each word: [B, 1+W, 2H]."""
    positions = nn.functional.pad(torch.stack([batch["first"], batch["last"]], dim=-1), (0, 0, 1, 0))
    return picked(hidden, positions.flatten(1)).reshape(*positions.shape[:2], 2 * hidden.shape[-1])


def picked(vectors: Tensor, positions: Tensor) -> Tensor:
    """The vectors [B, T, H] at positions [B, N]; unlike gather, its gradient adds up in a fixed order."""
    return vectors[torch.arange(vectors.shape[0], device=vectors.device).unsqueeze(1), positions]
