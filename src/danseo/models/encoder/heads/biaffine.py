"""Networks of the parsing head: biaffine scores of word pairs, by default or as in KLUE's code."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from danseo.models.encoder.heads.losses import NOWHERE
from danseo.models.encoder.settings import EncoderSettings
from danseo.tasks.klue.dp import TAGS

LSTM_SIZE, TAG_SIZE = 768, 256  # of the official architecture


class Biaffine(nn.Module):
    """Scores of vector pairs: a bilinear and a linear part per score."""

    def __init__(self, left: int, right: int, scores: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(scores, left, right))
        self.left, self.right = nn.Linear(left, scores), nn.Linear(right, scores, bias=False)
        for weight in (self.weight[0] if scores == 1 else self.weight, self.left.weight, self.right.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.left.bias)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Score all pairs: [B, W, left] and [B, V, right] to [B, W, V, scores]."""
        products = torch.einsum("bwl,slr,bvr->bwvs", left, self.weight, right)
        scores: Tensor = products + self.left(left).unsqueeze(2) + self.right(right).unsqueeze(1)
        return scores

    def score_pairs(self, left: Tensor, right: Tensor) -> Tensor:
        """Score matching pairs: [B, W, left] and [B, W, right] to [B, W, scores]."""
        products = torch.einsum("bwl,slr,bwr->bws", left, self.weight, right)
        scores: Tensor = products + self.left(left) + self.right(right)
        return scores


class ChannelDropout(nn.Module):
    """Dropout of feature dimensions, the same for all words of a sentence."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout1d(share)

    def forward(self, vectors: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(vectors.transpose(1, 2)).transpose(1, 2)
        return dropped


class Scorer(nn.Module):
    """Scores of heads and relations from vectors of dependents and candidate heads."""

    def __init__(self, dependent: int, head: int, labels: int, config: EncoderSettings, *, dropout: float) -> None:
        super().__init__()

        def layer(size: int, width: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, width), nn.ELU(), ChannelDropout(dropout))

        self.arc_dependent, self.arc_head = (
            layer(dependent, config.arc_hidden_size),
            layer(head, config.arc_hidden_size),
        )
        self.relation_dependent = layer(dependent, config.relation_hidden_size)
        self.relation_head = layer(head, config.relation_hidden_size)
        self.arcs = Biaffine(config.arc_hidden_size, config.arc_hidden_size, 1)
        self.relations = Biaffine(config.relation_hidden_size, config.relation_hidden_size, labels)

    def forward(self, dependents: Tensor, heads: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return arcs [B, W, W+1] and relations: for gold heads in training [B, W, labels], else for all."""
        arcs = self.arcs(self.arc_dependent(dependents), self.arc_head(heads)).squeeze(-1)
        missing = torch.arange(heads.shape[1], device=heads.device) > batch["words"].unsqueeze(1)
        left, right = self.relation_dependent(dependents), self.relation_head(heads)
        if self.training and "heads" in batch:
            relations = self.relations.score_pairs(left, gather_positions(right, batch["heads"].clamp(min=0)))
        else:
            relations = self.relations(left, right)
        return {"arcs": arcs.masked_fill(missing.unsqueeze(1), NOWHERE), "relations": relations}


class Parser(nn.Module):
    """The default parser: biaffine scores on the encoder."""

    def __init__(self, hidden: int, labels: int, config: EncoderSettings) -> None:
        super().__init__()
        self.dropout = ChannelDropout(config.parser_dropout)
        self.scorer = Scorer(2 * hidden, 2 * hidden, labels, config, dropout=config.parser_dropout)
        for layer in (self.scorer.arcs, self.scorer.relations):
            # Random products are loud: with a small untrained encoder they cost 24 to 39 points of UAS after 3 epochs.
            nn.init.zeros_(layer.weight)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = self.dropout(word_vectors(hidden.float(), batch))
            outputs: dict[str, Tensor] = self.scorer(vectors[:, 1:], vectors, batch)
        itself = torch.ones_like(outputs["arcs"][0], dtype=torch.bool).triu(1).tril(1)
        return outputs | {"arcs": outputs["arcs"].masked_fill(itself, NOWHERE)}


class OfficialParser(nn.Module):
    """KLUE's parser: last POS tags as input, a BiLSTM over root and words, an LSTM over words."""

    def __init__(self, hidden: int, labels: int, config: EncoderSettings) -> None:
        super().__init__()
        self.tags = nn.Embedding(len(TAGS) + 1, TAG_SIZE)
        self.tag_dropout = nn.Dropout1d(config.parser_dropout)  # of whole words
        self.dropout = ChannelDropout(config.parser_dropout)
        self.encoder = nn.LSTM(2 * hidden + TAG_SIZE, LSTM_SIZE, batch_first=True, bidirectional=True)
        self.bridge, self.start = nn.Linear(2 * LSTM_SIZE, LSTM_SIZE), nn.Linear(2 * LSTM_SIZE, LSTM_SIZE)
        self.decoder = nn.LSTM(LSTM_SIZE, LSTM_SIZE, batch_first=True)
        self.scorer = Scorer(LSTM_SIZE, 2 * LSTM_SIZE, labels, config, dropout=0.0)

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            tags = self.tag_dropout(self.tags(batch["pos"]))
            vectors = torch.cat([word_vectors(hidden.float(), batch), tags], dim=-1)
            words = torch.tensor(batch["word_counts"]) if "word_counts" in batch else batch["words"].cpu()
            heads, cells = self._read(vectors, words + 1)
            start = self.start(cells).unsqueeze(0)
            dependents, _ = self.decoder(nn.functional.elu(self.bridge(heads[:, 1:])), (start.tanh(), start))
            outputs: dict[str, Tensor] = self.scorer(self.dropout(dependents), heads, batch)
        return outputs

    def _read(self, vectors: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the BiLSTM's outputs with dropout, and its two final cells concatenated."""
        order = sizes.sort(descending=True).indices  # here, because the library would wait for a GPU
        there, back = (index.to(vectors.device, non_blocking=True) for index in (order, order.sort().indices))
        packed = pack_padded_sequence(vectors.index_select(0, there), sizes[order], batch_first=True)
        states, (_, cells) = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=vectors.shape[1])
        both = torch.cat([cells[0], cells[1]], dim=-1)
        return self.dropout(states.index_select(0, back)), both.index_select(0, back)


def word_vectors(hidden: Tensor, batch: dict[str, Any]) -> Tensor:
    """Return the first and last token of the root and of each word: [B, 1+W, 2H]."""
    positions = nn.functional.pad(torch.stack([batch["first"], batch["last"]], dim=-1), (0, 0, 1, 0))
    positions = positions + batch["texts"].starts[:, None, None]
    return hidden.index_select(0, positions.flatten()).view(*positions.shape[:2], 2 * hidden.shape[-1])


def gather_positions(vectors: Tensor, positions: Tensor) -> Tensor:
    """Return the vectors [B, T, H] at positions [B, N]; the gradient is summed in a fixed order."""
    return vectors[torch.arange(vectors.shape[0], device=vectors.device).unsqueeze(1), positions]
