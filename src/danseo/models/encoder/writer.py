"""Slot values from encoders: gates for all slots at once, and a GRU that writes values by copying or spelling."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from danseo.models.encoder.values import GATES, PTR

NOTHING = -1  # in the place of a piece
_CELLS = 16_000_000  # of a table of rows x vocabulary that is held at a time


@dataclass(frozen=True)
class Source:
    """What values are copied from: the encoder's states of the input, its mask and ids."""

    hidden: Tensor
    mask: Tensor
    ids: Tensor
    marks: Tensor | None = None
    """How much each input piece looks like a part of each slot's value (batch, slots, pieces)."""
    pooled: Tensor | None = None
    """What the encoder's own pooling layer makes of the first piece, where it has one."""


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


@dataclass(frozen=True)
class Written:
    """Steps of the writer (batch, slots, steps): what it read, the states that made, and the piece read last."""

    inputs: Tensor
    states: Tensor
    last: Tensor


def is_traced() -> bool:
    """Whether the network is followed for a graph, in which nothing can depend on what is computed."""
    return torch._C._get_tracing_state() is not None


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
            self.follow = nn.Parameter(torch.tensor(1.0))
        self.scale = 1.0 if plain else size**-0.5
        self.gru, self.mix = nn.GRU(size, size, batch_first=True), nn.Linear(3 * size, 1)
        self.dropout = nn.Dropout(measures.dropout)

    def embed(self, ids: Tensor) -> Tensor:
        """Pieces in the width of the GRU."""
        embedded: Tensor = self.reads(self.shared[0](ids))
        return embedded

    def look(self, states: Tensor, last: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """How much each state (batch, slots, steps, size) attends to each input piece, and what it sees there."""
        scores = (self.asks(states.flatten(1, 2)) @ source.hidden.transpose(1, 2)).float() * self.scale
        scores = scores.view(*states.shape[:-1], -1)
        if source.marks is not None:
            scores = scores + source.marks[:, :, None] + self.follow * self._follows(last, source)
        unseen = source.mask[:, None, None] == 0
        attention = scores.masked_fill(unseen, torch.finfo(torch.float).min).softmax(-1)
        return attention, (attention.flatten(1, 2) @ source.hidden).view(states.shape)

    def _follows(self, last: Tensor, source: Source) -> Tensor:
        """Which input pieces come right behind the piece that was read last, as the next one of a copy does."""
        before = functional.pad(source.ids[:, :-1], (1, 0), value=NOTHING - 1)
        return before[:, None, None] == last[..., None]

    def step(self, inputs: Tensor, states: Tensor) -> Tensor:
        """The GRU over (batch, slots, steps, size); the states of all steps."""
        made = self.gru(inputs.float().flatten(0, 1), states.flatten(0, 1)[None].contiguous())[0]
        return made.float().view(inputs.shape)  # type: ignore[no-any-return]

    def forced(self, start: Tensor, states: Tensor, targets: Tensor) -> Written:
        """All steps at once, when the gold pieces are what is read."""
        last = functional.pad(targets[..., :-1], (1, 0), value=NOTHING)
        read = self.embed(last[..., 1:].clamp(min=0))
        inputs = self.dropout(torch.cat([start[:, :, None].to(read.dtype), read], 2))
        return Written(inputs, self.step(inputs, states), last)

    def free(self, start: Tensor, states: Tensor, wanted: Tensor, source: Source, steps: int) -> tuple[Written, Tensor]:
        """Step by step, each reading the best piece of the last; ends when all values have. Also those pieces."""
        current, last = start[:, :, None], torch.full_like(wanted, NOTHING, dtype=torch.long)[..., None]
        written, pieces = [], []
        for _ in range(steps):
            inputs = self.dropout(current)
            made = self.step(inputs, states)
            written.append(Written(inputs, made, last))
            last = self.best(written[-1], wanted, source)
            pieces.append(last)
            wanted, states, current = wanted & (last[..., 0] != self.end), made[:, :, 0], self.embed(last)
            if not self.training and not is_traced() and not wanted.any():
                break
        joined = (torch.cat(parts, 2) for parts in zip(*((w.inputs, w.states, w.last) for w in written), strict=True))
        return Written(*joined), torch.cat(pieces, 2)

    @torch.no_grad()
    def best(self, written: Written, wanted: Tensor, source: Source) -> Tensor:
        """The likeliest next piece of the wanted values (batch, slots, 1); the end for the others."""
        attention, share = self._mixed(written, source)
        attention, share, states = attention[:, :, 0], share[:, :, 0].sigmoid(), written.states[:, :, 0]
        if is_traced():
            return self._best_of_all(attention, share[..., None], states, wanted, source)[..., None]
        pieces = torch.full_like(wanted, self.end, dtype=torch.long)
        for rows in wanted.nonzero().split(self._rows()):
            position = rows[:, 0], rows[:, 1]
            spelling = share[position][:, None]
            table = self._logits(states[position]).softmax(-1) * spelling
            table.scatter_add_(1, source.ids[position[0]], attention[position] * (1 - spelling))
            pieces[position] = table.argmax(-1)
        return pieces[..., None]

    def _best_of_all(
        self, attention: Tensor, spelling: Tensor, states: Tensor, wanted: Tensor, source: Source
    ) -> Tensor:
        """The same for all slots at once, wanted or not: an exported network cannot pick some."""
        table = self._logits(states).softmax(-1) * spelling
        ids = source.ids[:, None].expand(-1, attention.shape[1], -1)
        table = table.scatter_add(2, ids, attention * (1 - spelling))
        return torch.where(wanted, table.argmax(-1), self.end)

    def _mixed(self, written: Written, source: Source) -> tuple[Tensor, Tensor]:
        """The attention to the input, and the log-odds of spelling against copying."""
        attention, context = self.look(written.states, written.last, source)
        odds = self.mix(torch.cat([written.inputs, written.states, context], -1))
        return attention, odds.float().squeeze(-1)

    def surprise(self, written: Written, targets: Tensor, source: Source) -> Tensor:
        """The summed negative log-likelihood of each example's gold pieces; below 0 means no piece."""
        attention, odds = self._mixed(written, source)
        copied = (attention * (source.ids[:, None, None] == targets[..., None])).sum(-1)
        there = targets >= 0
        odds, copied = odds[there], copied[there].clamp(min=torch.finfo(torch.float).tiny).log()
        spelled = self._log_spelled(written.states[there], targets[there])
        found = torch.logaddexp(functional.logsigmoid(odds) + spelled, functional.logsigmoid(-odds) + copied)
        return found.new_zeros(len(targets)).index_add(0, there.nonzero()[:, 0], -found)

    def _log_spelled(self, states: Tensor, wanted: Tensor) -> Tensor:
        """Log-probabilities of pieces by the vocabulary alone; of several tables none is kept for the gradients."""
        if len(states) <= self._rows():
            return self._log_chosen(states, wanted)
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

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor, Source]:
        """Gate scores, first inputs and first states of all slots, and the source with marks if there are."""
        raise NotImplementedError

    def forward(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        source = Source(hidden.float(), batch["attention_mask"], batch["input_ids"], pooled=batch.get("pooled"))
        gates, start, states, source = self.begin(source)
        outputs = {"gates": gates.float()}
        if "targets" in batch:
            chosen = _chosen(batch["slots"], start, states, source)
            outputs["surprise"] = self._surprise(*chosen, batch["targets"])
        if not self.training:
            outputs["values"] = self._values(outputs["gates"].argmax(-1) == PTR, start, states, source)
        return outputs

    def _surprise(self, start: Tensor, states: Tensor, source: Source, targets: Tensor) -> Tensor:
        """How unlikely the gold values are, per example."""
        if not self.training or float(torch.rand(())) < self.forcing:
            written = self.writer.forced(start, states, targets)
        else:
            everything = torch.ones_like(targets[..., 0], dtype=torch.bool)
            written, _ = self.writer.free(start, states, everything, source, targets.shape[2])
        return self.writer.surprise(written, targets, source)

    def _values(self, open_slots: Tensor, start: Tensor, states: Tensor, source: Source) -> Tensor:
        """The pieces (batch, slots, steps) of the slots that are to be written; the end everywhere else."""
        if is_traced():
            return self.writer.free(start, states, open_slots, source, self.writer.longest)[1]
        values = torch.full((*open_slots.shape, self.writer.longest), self.writer.end, device=open_slots.device)
        most = int(open_slots.sum(1).max())
        if not most:
            return values
        slots = open_slots.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        wanted = open_slots.gather(1, slots)
        start, states, source = _chosen(slots, start, states, source)
        _, pieces = self.writer.free(start, states, wanted, source, self.writer.longest)
        example, position = wanted.nonzero(as_tuple=True)
        values[example, slots[example, position], : pieces.shape[2]] = pieces[example, position]
        return values


def _chosen(slots: Tensor, start: Tensor, states: Tensor, source: Source) -> tuple[Tensor, Tensor, Source]:
    """First inputs, first states and marks of some slots (batch, some) only."""
    marks = None if source.marks is None else _rows_of(source.marks, slots)
    return _rows_of(start, slots), _rows_of(states, slots), replace(source, marks=marks)


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
        self.votes = nn.Linear(size, len(measures.slots) * (len(GATES) + 1))
        self.dropout = nn.Dropout(measures.dropout)

    def names(self) -> Tensor:
        """A vector per slot: the mean of its name's pieces, and one of its own."""
        there = (self.slots != self.pad).float()[..., None]
        return (self.writer.embed(self.slots) * there).sum(1) / there.sum(1) + self.own

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor, Source]:
        names = self.names().expand(source.hidden.shape[0], -1, -1)
        states = self.norm(names + self.dropout(self._attend(names, source)))
        states = self.last_norm(states + self.dropout(self.narrow(functional.gelu(self.wide(states)))))
        votes, marks = self._heard(source)
        gates = self.gate(self.dropout(states)) + votes
        return gates, names, self.first(states).float().tanh(), replace(source, marks=marks)

    def _heard(self, source: Source) -> tuple[Tensor, Tensor]:
        """What single pieces say: the strongest vote for each gate of each slot, and the marks of values."""
        votes = self.votes(self.dropout(source.hidden)).float().unflatten(-1, (-1, len(GATES) + 1))
        unseen = source.mask[..., None, None] == 0
        strongest = votes[..., :-1].masked_fill(unseen, torch.finfo(torch.float).min).amax(1)
        return strongest, votes[..., -1].transpose(1, 2)

    def _attend(self, names: Tensor, source: Source) -> Tensor:
        query, (keys, values) = self.query(names), self.keys(source.hidden).chunk(2, -1)
        query, keys, values = (rows.unflatten(-1, (self.heads, -1)).transpose(1, 2) for rows in (query, keys, values))
        mask = source.mask[:, None, None].bool()
        seen = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        merged: Tensor = self.merge(seen.transpose(1, 2).flatten(2))
        return merged


class TradeHead(SlotHead):
    """KLUE's own: the GRU starts from the pooled first piece, and its first look at the input gives the gate.

    With pools it has a pooling layer of its own, for encoders without one, such as ELECTRA.
    """

    def __init__(self, measures: Measures, embeddings: Any, forcing: float, *, pools: bool) -> None:
        super().__init__(measures, embeddings, plain=True, forcing=forcing)
        self.pool = nn.Linear(measures.size, measures.size) if pools else None
        self.gate = nn.Linear(measures.size, len(GATES))

    def begin(self, source: Source) -> tuple[Tensor, Tensor, Tensor, Source]:
        names = self.writer.embed(self.slots).sum(1).expand(source.hidden.shape[0], -1, -1)  # padding is summed in too
        pooled = source.pooled if self.pool is None else self.pool(source.hidden[:, 0]).tanh()
        assert pooled is not None, "an encoder with a pooling layer uses it"
        states = pooled.float()[:, None].expand(-1, len(self.slots), -1)
        inputs = self.writer.dropout(names)[:, :, None]
        nothing = torch.full(inputs.shape[:-1], NOTHING, device=inputs.device)
        _, context = self.writer.look(self.writer.step(inputs, states), nothing, source)
        return self.gate(context[:, :, 0]), names, states, source
