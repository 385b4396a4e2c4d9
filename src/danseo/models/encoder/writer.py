"""Slot values from encoders: gates for all slots at once, and a GRU that writes values by copying or spelling."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

GATES = ("none", "dontcare", "ptr", "yes", "no")
PTR = GATES.index("ptr")
_CELLS = 16_000_000  # of a table of rows x vocabulary that is held at a time


@dataclass(frozen=True)
class Source:
    """What values are copied from: the encoder's states of the input, its mask and ids."""

    hidden: Tensor
    mask: Tensor
    ids: Tensor


@dataclass(frozen=True)
class Measures:
    """What both heads are made from."""

    size: int
    heads: int
    dropout: float
    slots: Tensor
    """The pieces of the slots' names, padded."""
    pad: int
    end: int
    """The piece that closes a value."""
    longest: int
    """The most pieces of a value."""


class Writer(nn.Module):
    """One GRU step per piece: it looks at the input, then mixes copying from it with spelling from the vocabulary."""

    def __init__(self, measures: Measures, embeddings: Any, plain: bool) -> None:
        super().__init__()
        size, width = measures.size, embeddings.weight.shape[1]
        self.shared = [embeddings]  # in a list, so that the encoder alone owns and saves it
        self.end, self.longest = measures.end, measures.longest
        resized = width != size
        self.reads: nn.Module = nn.Linear(width, size, bias=False) if resized else nn.Identity()
        self.spells: nn.Module = nn.Linear(size, width, bias=False) if resized else nn.Identity()
        self.asks: nn.Module = nn.Identity()
        if not plain:
            self.reads = nn.Sequential(nn.Linear(width, size), nn.LayerNorm(size))
            self.spells = nn.Sequential(nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width))
            self.asks = nn.Linear(size, size)
        self.scale = 1.0 if plain else size**-0.5
        self.gru, self.mix = nn.GRU(size, size, batch_first=True), nn.Linear(3 * size, 1)
        self.dropout = nn.Dropout(measures.dropout)

    def embed(self, ids: Tensor) -> Tensor:
        """Pieces in the width of the GRU."""
        embedded: Tensor = self.reads(self.shared[0](ids))
        return embedded

    def look(self, states: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """How much each state (batch, states, size) attends to each input piece, and what it sees there."""
        scores = (self.asks(states) @ source.hidden.transpose(1, 2)).float() * self.scale
        hidden_from = source.mask[:, None] == 0
        attention = scores.masked_fill(hidden_from, torch.finfo(torch.float).min).softmax(-1)
        return attention, attention @ source.hidden

    def step(self, inputs: Tensor, states: Tensor) -> Tensor:
        """The GRU over (batch, slots, steps, size); the states of all steps."""
        made = self.gru(inputs.float().flatten(0, 1), states.flatten(0, 1)[None].contiguous())[0]
        return made.float().view(inputs.shape)  # type: ignore[no-any-return]

    def forced(self, start: Tensor, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and states of all steps at once, when the gold pieces are what is read."""
        read = self.embed(targets[..., :-1].clamp(min=0))
        inputs = self.dropout(torch.cat([start[:, :, None].to(read.dtype), read], 2))
        return inputs, self.step(inputs, states)

    def free(
        self, start: Tensor, states: Tensor, wanted: Tensor, source: Source, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, states and pieces when each step reads the best piece of the last; ends when all values have."""
        unfinished, current = wanted.clone(), start[:, :, None]
        inputs, made, pieces = [], [], []
        for _ in range(steps):
            inputs.append(self.dropout(current))
            states = self.step(inputs[-1], states)[:, :, 0]
            made.append(states[:, :, None])
            pieces.append(self.best(inputs[-1][:, :, 0], states, unfinished, source))
            unfinished = unfinished & (pieces[-1] != self.end)
            if not self.training and not unfinished.any():
                break
            current = self.embed(pieces[-1])[:, :, None]
        return torch.cat(inputs, 2), torch.cat(made, 2), torch.stack(pieces, 2)

    @torch.no_grad()
    def best(self, inputs: Tensor, states: Tensor, unfinished: Tensor, source: Source) -> Tensor:
        """The likeliest next piece of the unfinished values (batch, slots); the end for the others."""
        attention, context = self.look(states, source)
        spelled = self.mix(torch.cat([inputs, states, context], -1)).float().sigmoid()
        pieces = torch.full_like(unfinished, self.end, dtype=torch.long)
        for rows in unfinished.nonzero().split(self._rows()):
            example, slot = rows[:, 0], rows[:, 1]
            share = spelled[example, slot]
            table = self._logits(states[example, slot]).softmax(-1) * share
            table.scatter_add_(1, source.ids[example], attention[example, slot] * (1 - share))
            pieces[example, slot] = table.argmax(-1)
        return pieces

    def surprise(self, inputs: Tensor, states: Tensor, targets: Tensor, source: Source) -> Tensor:
        """The summed negative log-likelihood of each example's gold pieces; below 0 means no piece."""
        flat, wanted = states.flatten(1, 2), targets.flatten(1)
        attention, context = self.look(flat, source)
        mixed = self.mix(torch.cat([inputs.flatten(1, 2), flat, context], -1)).float().squeeze(-1)
        copied = (attention * (source.ids[:, None] == wanted[..., None])).sum(-1)
        there = wanted >= 0
        spelled = self._log_spelled(flat[there], wanted[there])
        copied = copied[there].clamp(min=torch.finfo(torch.float).tiny).log()
        mixed = mixed[there]
        found = torch.logaddexp(functional.logsigmoid(mixed) + spelled, functional.logsigmoid(-mixed) + copied)
        example = there.nonzero()[:, 0]
        return found.new_zeros(len(wanted)).index_add(0, example, -found)

    def _log_spelled(self, states: Tensor, wanted: Tensor) -> Tensor:
        """Log-probabilities of pieces by the vocabulary alone; tables are made anew for gradients, not kept."""
        parts = zip(states.split(self._rows()), wanted.split(self._rows()), strict=True)
        return torch.cat([checkpoint(self._log_chosen, a, b, use_reentrant=False) for a, b in parts])

    def _log_chosen(self, states: Tensor, wanted: Tensor) -> Tensor:
        return -functional.cross_entropy(self._logits(states), wanted, reduction="none")

    def _logits(self, states: Tensor) -> Tensor:
        return functional.linear(self.spells(states), self.shared[0].weight).float()

    def _rows(self) -> int:
        return max(1, _CELLS // int(self.shared[0].weight.shape[0]))


class SlotHead(nn.Module):
    """Gates and values of all slots; a subclass says how slots begin."""

    slots: Tensor

    def __init__(self, measures: Measures, embeddings: Any, *, plain: bool, forcing: float) -> None:
        super().__init__()
        self.writer, self.forcing, self.pad = Writer(measures, embeddings, plain), forcing, measures.pad
        self.register_buffer("slots", measures.slots, persistent=False)

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor]:
        """Gate scores, first inputs and first states of all slots."""
        raise NotImplementedError

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        source = Source(hidden.float(), batch["attention_mask"], batch["input_ids"])
        gates, start, states = self.begin(source)
        outputs = {"gates": gates.float()}
        if "targets" in batch:
            outputs["surprise"] = self._surprise(start, states, batch, source)
        if not self.training:
            outputs["values"] = self._values(outputs["gates"].argmax(-1) == PTR, start, states, source)
        return outputs

    def _surprise(self, start: Tensor, states: Tensor, batch: dict[str, Tensor], source: Source) -> Tensor:
        """How unlikely the gold values are, per example."""
        chosen, targets = batch["slots"], batch["targets"]
        start, states = _rows_of(start, chosen), _rows_of(states, chosen)
        if not self.training or float(torch.rand(())) < self.forcing:
            inputs, made = self.writer.forced(start, states, targets)
        else:
            everything = torch.ones_like(chosen, dtype=torch.bool)
            inputs, made, _ = self.writer.free(start, states, everything, source, targets.shape[2])
        return self.writer.surprise(inputs, made, targets, source)

    def _values(self, open_slots: Tensor, start: Tensor, states: Tensor, source: Source) -> Tensor:
        """The pieces (batch, slots, steps) of the slots that are to be written; the end everywhere else."""
        values = torch.full((*open_slots.shape, self.writer.longest), self.writer.end, device=open_slots.device)
        most = int(open_slots.sum(1).max())
        if not most:
            return values
        chosen = open_slots.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        wanted = open_slots.gather(1, chosen)
        start, states = _rows_of(start, chosen), _rows_of(states, chosen)
        pieces = self.writer.free(start, states, wanted, source, self.writer.longest)[2]
        example, place = wanted.nonzero(as_tuple=True)
        values[example, chosen[example, place], : pieces.shape[2]] = pieces[example, place]
        return values


def _rows_of(table: Tensor, chosen: Tensor) -> Tensor:
    """The chosen slots (batch, some) of a table (batch, slots, size)."""
    return table.gather(1, chosen[..., None].expand(-1, -1, table.shape[-1]))


class QueryHead(SlotHead):
    """Slots as queries: each attends over the input once, which gives its gate and the writer's first state."""

    def __init__(self, measures: Measures, embeddings: Any) -> None:
        super().__init__(measures, embeddings, plain=False, forcing=1.0)
        size = measures.size
        self.heads = measures.heads
        self.own = nn.Parameter(torch.randn(len(measures.slots), size) * 0.02)
        self.query, self.keys, self.merge = nn.Linear(size, size), nn.Linear(size, 2 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.norm, self.last_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.gate, self.first = nn.Linear(size, len(GATES)), nn.Linear(size, size)
        self.dropout = nn.Dropout(measures.dropout)

    def names(self) -> Tensor:
        """A vector per slot: the mean of its name's pieces, and one of its own."""
        there = (self.slots != self.pad).float()[..., None]
        return (self.writer.embed(self.slots) * there).sum(1) / there.sum(1) + self.own

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor]:
        names = self.names().expand(len(source.hidden), -1, -1)
        states = self.norm(names + self.dropout(self._attend(names, source)))
        states = self.last_norm(states + self.dropout(self.narrow(functional.gelu(self.wide(states)))))
        return self.gate(self.dropout(states)), names, self.first(states).float().tanh()

    def _attend(self, names: Tensor, source: Source) -> Tensor:
        query, (keys, values) = self.query(names), self.keys(source.hidden).chunk(2, -1)
        query, keys, values = (rows.unflatten(-1, (self.heads, -1)).transpose(1, 2) for rows in (query, keys, values))
        mask = source.mask[:, None, None].bool()
        seen = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        merged: Tensor = self.merge(seen.transpose(1, 2).flatten(2))
        return merged


class TradeHead(SlotHead):
    """KLUE's own: the GRU starts from the pooled first piece, and its first look at the input gives the gate."""

    def __init__(self, measures: Measures, embeddings: Any, forcing: float) -> None:
        super().__init__(measures, embeddings, plain=True, forcing=forcing)
        self.pool, self.gate = nn.Linear(measures.size, measures.size), nn.Linear(measures.size, len(GATES))

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor]:
        names = self.writer.embed(self.slots).sum(1).expand(len(source.hidden), -1, -1)  # padding is summed in too
        states = self.pool(source.hidden[:, 0]).float().tanh()[:, None].expand(-1, len(self.slots), -1)
        looks = self.writer.step(self.writer.dropout(names)[:, :, None], states)[:, :, 0]
        return self.gate(self.writer.look(looks, source)[1]), names, states
