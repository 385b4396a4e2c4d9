"""Network of the dialogue-state head: gates for all slots, and a GRU that copies or generates values."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from danseo.models.encoder.heads.dialogue_state import GATES, PTR

NOTHING = -1  # no token
_CELLS = 16_000_000  # maximum size of a table of rows x vocabulary


@dataclass(frozen=True)
class CopySource:
    """The input that values are copied from: hidden states, mask and ids."""

    hidden: Tensor
    mask: Tensor
    ids: Tensor
    marks: Tensor | None = None
    """How much each input token looks like part of each slot's value (batch, slots, tokens)."""
    pooled: Tensor | None = None
    """Output of the encoder's pooling layer, if it has one."""


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes and special tokens of the decoder."""

    size: int
    heads: int
    dropout: float
    slots: Tensor
    """The tokens of the slot names, padded."""
    pad: int
    end: int
    """The token that ends a value."""
    max_length: int
    """Maximum number of tokens of a value."""


@dataclass(frozen=True)
class DecoderSteps:
    """Steps of the decoder (batch, slots, steps): inputs, states, and the last token read."""

    inputs: Tensor
    states: Tensor
    last: Tensor


def is_traced() -> bool:
    """Return whether the network is being traced, so that control flow cannot depend on values."""
    return torch._C._get_tracing_state() is not None


class SlotDecoder(nn.Module):
    """A GRU that mixes copying from the input with generating from the vocabulary."""

    def __init__(self, measures: DecoderSizes, embeddings: Any, plain: bool) -> None:
        super().__init__()
        size, width = measures.size, embeddings.weight.shape[1]
        self.shared = [embeddings]  # in a list, so that the encoder alone owns and saves it
        self.end, self.max_length = measures.end, measures.max_length
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
        """Embed tokens in the width of the GRU."""
        embedded: Tensor = self.reads(self.shared[0](ids))
        return embedded

    def look(self, states: Tensor, last: Tensor, source: CopySource) -> tuple[Tensor, Tensor]:
        """Return the attention of each state (batch, slots, steps, size) to the input, and the context."""
        scores = (self.asks(states.flatten(1, 2)) @ source.hidden.transpose(1, 2)).float() * self.scale
        scores = scores.view(*states.shape[:-1], -1)
        if source.marks is not None:
            scores = scores + source.marks[:, :, None] + self.follow * self._follows(last, source)
        unseen = source.mask[:, None, None] == 0
        attention = scores.masked_fill(unseen, torch.finfo(torch.float).min).softmax(-1)
        return attention, (attention.flatten(1, 2) @ source.hidden).view(states.shape)

    def _follows(self, last: Tensor, source: CopySource) -> Tensor:
        """Return which input tokens follow the last token read, as the next token of a copy does."""
        before = functional.pad(source.ids[:, :-1], (1, 0), value=NOTHING - 1)
        return before[:, None, None] == last[..., None]

    def step(self, inputs: Tensor, states: Tensor) -> Tensor:
        """Run the GRU over (batch, slots, steps, size); return the states of all steps."""
        made = self.gru(inputs.float().flatten(0, 1), states.flatten(0, 1)[None].contiguous())[0]
        return made.float().view(inputs.shape)  # type: ignore[no-any-return]

    def decode_forced(self, start: Tensor, states: Tensor, targets: Tensor) -> DecoderSteps:
        """Decode all steps at once with gold tokens as inputs (teacher forcing)."""
        last = functional.pad(targets[..., :-1], (1, 0), value=NOTHING)
        read = self.embed(last[..., 1:].clamp(min=0))
        inputs = self.dropout(torch.cat([start[:, :, None].to(read.dtype), read], 2))
        return DecoderSteps(inputs, self.step(inputs, states), last)

    def free(
        self, start: Tensor, states: Tensor, wanted: Tensor, source: CopySource, steps: int
    ) -> tuple[DecoderSteps, Tensor]:
        """Decode greedily until all values end; return the steps and the tokens."""
        current, last = start[:, :, None], torch.full_like(wanted, NOTHING, dtype=torch.long)[..., None]
        written, tokens = [], []
        for _ in range(steps):
            inputs = self.dropout(current)
            made = self.step(inputs, states)
            written.append(DecoderSteps(inputs, made, last))
            last = self.best(written[-1], wanted, source)
            tokens.append(last)
            wanted, states, current = wanted & (last[..., 0] != self.end), made[:, :, 0], self.embed(last)
            if not self.training and not is_traced() and not wanted.any():
                break
        joined = (torch.cat(parts, 2) for parts in zip(*((w.inputs, w.states, w.last) for w in written), strict=True))
        return DecoderSteps(*joined), torch.cat(tokens, 2)

    @torch.no_grad()
    def best(self, written: DecoderSteps, wanted: Tensor, source: CopySource) -> Tensor:
        """Return the most likely next token of wanted slots (batch, slots, 1); the end token for others."""
        attention, share = self._attend_and_mix(written, source)
        attention, share, states = attention[:, :, 0], share[:, :, 0].sigmoid(), written.states[:, :, 0]
        if is_traced():
            return self._best_of_all(attention, share[..., None], states, wanted, source)[..., None]
        tokens = torch.full_like(wanted, self.end, dtype=torch.long)
        for rows in self._list_slots(wanted).split(self._rows()):
            position = rows // wanted.shape[1], rows % wanted.shape[1]
            spelling = share[position][:, None]
            table = self._logits(states[position]).softmax(-1) * spelling
            table.scatter_add_(1, source.ids[position[0]], attention[position] * (1 - spelling))
            tokens[position] = table.argmax(-1)
        return torch.where(wanted, tokens, self.end)[..., None]

    def _list_slots(self, wanted: Tensor) -> Tensor:
        """Return the numbers of wanted slots; in training of all, as counting them would wait for a GPU."""
        if self.training:
            return torch.arange(wanted.numel(), device=wanted.device)
        return wanted.flatten().nonzero()[:, 0]

    def _best_of_all(
        self, attention: Tensor, spelling: Tensor, states: Tensor, wanted: Tensor, source: CopySource
    ) -> Tensor:
        """Return the next token of all slots at once, as an exported network cannot select some."""
        table = self._logits(states).softmax(-1) * spelling
        ids = source.ids[:, None].expand(-1, attention.shape[1], -1)
        table = table.scatter_add(2, ids, attention * (1 - spelling))
        return torch.where(wanted, table.argmax(-1), self.end)

    def _attend_and_mix(self, written: DecoderSteps, source: CopySource) -> tuple[Tensor, Tensor]:
        """Return the attention to the input, and the log-odds of generating against copying."""
        attention, context = self.look(written.states, written.last, source)
        odds = self.mix(torch.cat([written.inputs, written.states, context], -1))
        return attention, odds.float().squeeze(-1)

    def surprise(self, written: DecoderSteps, targets: Tensor, source: CopySource, cells: Tensor) -> Tensor:
        """Return the summed negative log-likelihood of each example's gold tokens, which are in these cells."""
        attention, odds = self._attend_and_mix(written, source)
        copied = (attention * (source.ids[:, None, None] == targets[..., None])).sum(-1)
        odds, copied, due = (table.flatten().index_select(0, cells) for table in (odds, copied, targets))
        copied = copied.clamp(min=torch.finfo(torch.float).tiny).log()
        spell_tokens = self._log_vocabulary(written.states.flatten(0, 2).index_select(0, cells), due)
        found = torch.logaddexp(functional.logsigmoid(odds) + spell_tokens, functional.logsigmoid(-odds) + copied)
        return found.new_zeros(len(targets)).index_add(0, cells // targets[0].numel(), -found)

    def _log_vocabulary(self, states: Tensor, wanted: Tensor) -> Tensor:
        """Return log-probabilities of tokens by the vocabulary; large tables are recomputed for gradients."""
        if len(states) <= self._rows():
            return self._log_probabilities(states, wanted)
        parts = zip(states.split(self._rows()), wanted.split(self._rows()), strict=True)
        return torch.cat([checkpoint(self._log_probabilities, a, b, use_reentrant=False) for a, b in parts])

    def _log_probabilities(self, states: Tensor, wanted: Tensor) -> Tensor:
        return -functional.cross_entropy(self._logits(states), wanted, reduction="none")

    def _logits(self, states: Tensor) -> Tensor:
        return functional.linear(self.spells(states), self.shared[0].weight).float()

    def _rows(self) -> int:
        return max(1, _CELLS // int(self.shared[0].weight.shape[0]))


class SlotHead(nn.Module):
    """Base of the networks for gates and values of all slots."""

    slots: Tensor

    def __init__(self, measures: DecoderSizes, embeddings: Any, *, plain: bool, forcing: float) -> None:
        super().__init__()
        self.writer, self.forcing, self.pad = SlotDecoder(measures, embeddings, plain), forcing, measures.pad
        self.register_buffer("slots", measures.slots, persistent=False)

    def begin(self, source: CopySource) -> tuple[Tensor, Tensor, Tensor, CopySource]:
        """Return gate scores, first inputs and first states of all slots, and the source with marks."""
        raise NotImplementedError

    def forward(self, hidden: Tensor, batch: dict[str, Any]) -> dict[str, Tensor]:
        texts = batch["texts"]
        ids = batch["input_ids"] if batch["input_ids"].dim() == 2 else texts.pad(batch["input_ids"])
        source = CopySource(texts.pad(hidden).float(), texts.mask, ids, pooled=batch.get("pooled"))
        gates, start, states, source = self.begin(source)
        outputs = {"gates": gates.float()}
        if "targets" in batch:
            chosen = _select_slots(batch["slots"], start, states, source)
            outputs["surprise"] = self._surprise(*chosen, batch["targets"], batch["target_cells"])
        if not self.training:
            outputs["values"] = self._values(outputs["gates"].argmax(-1) == PTR, start, states, source)
        return outputs

    def _surprise(self, start: Tensor, states: Tensor, source: CopySource, targets: Tensor, cells: Tensor) -> Tensor:
        """Return the negative log-likelihood of the gold values, per example."""
        if not self.training or float(torch.rand(())) < self.forcing:
            written = self.writer.decode_forced(start, states, targets)
        else:
            everything = torch.ones_like(targets[..., 0], dtype=torch.bool)
            written, _ = self.writer.free(start, states, everything, source, targets.shape[2])
        return self.writer.surprise(written, targets, source, cells)

    def _values(self, open_slots: Tensor, start: Tensor, states: Tensor, source: CopySource) -> Tensor:
        """Return the tokens (batch, slots, steps) of open slots; the end token everywhere else."""
        if is_traced():
            return self.writer.free(start, states, open_slots, source, self.writer.max_length)[1]
        values = torch.full((*open_slots.shape, self.writer.max_length), self.writer.end, device=open_slots.device)
        most = int(open_slots.sum(1).max())
        if not most:
            return values
        slots = open_slots.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        wanted = open_slots.gather(1, slots)
        start, states, source = _select_slots(slots, start, states, source)
        _, tokens = self.writer.free(start, states, wanted, source, self.writer.max_length)
        example, position = wanted.nonzero(as_tuple=True)
        values[example, slots[example, position], : tokens.shape[2]] = tokens[example, position]
        return values


def _select_slots(
    slots: Tensor, start: Tensor, states: Tensor, source: CopySource
) -> tuple[Tensor, Tensor, CopySource]:
    """Return first inputs, first states and marks of some slots (batch, some)."""
    marks = None if source.marks is None else _rows_of(source.marks, slots)
    return _rows_of(start, slots), _rows_of(states, slots), replace(source, marks=marks)


def _rows_of(table: Tensor, chosen: Tensor) -> Tensor:
    """Return some slots (batch, some) of a table (batch, slots, size)."""
    return table.gather(1, chosen[..., None].expand(-1, -1, table.shape[-1]))


class QueryHead(SlotHead):
    """The default network: slots are queries that attend to the input once."""

    def __init__(self, measures: DecoderSizes, embeddings: Any) -> None:
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
        """Return a vector per slot: the mean of its name's embeddings, and a learned one."""
        there = (self.slots != self.pad).float()[..., None]
        return (self.writer.embed(self.slots) * there).sum(1) / there.sum(1) + self.own

    def begin(self, source: CopySource) -> tuple[Tensor, Tensor, Tensor, CopySource]:
        names = self.names().expand(source.hidden.shape[0], -1, -1)
        states = self.norm(names + self.dropout(self._attend(names, source)))
        states = self.last_norm(states + self.dropout(self.narrow(functional.gelu(self.wide(states)))))
        votes, marks = self._vote(source)
        gates = self.gate(self.dropout(states)) + votes
        return gates, names, self.first(states).float().tanh(), replace(source, marks=marks)

    def _vote(self, source: CopySource) -> tuple[Tensor, Tensor]:
        """Return the strongest vote of any token for each gate of each slot, and the marks of values."""
        votes = self.votes(self.dropout(source.hidden)).float().unflatten(-1, (-1, len(GATES) + 1))
        unseen = source.mask[..., None, None] == 0
        strongest = votes[..., :-1].masked_fill(unseen, torch.finfo(torch.float).min).amax(1)
        return strongest, votes[..., -1].transpose(1, 2)

    def _attend(self, names: Tensor, source: CopySource) -> Tensor:
        query, (keys, values) = self.query(names), self.keys(source.hidden).chunk(2, -1)
        query, keys, values = (rows.unflatten(-1, (self.heads, -1)).transpose(1, 2) for rows in (query, keys, values))
        mask = source.mask[:, None, None].bool()
        seen = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        merged: Tensor = self.merge(seen.transpose(1, 2).flatten(2))
        return merged


class TradeHead(SlotHead):
    """KLUE's network (TRADE): the GRU starts from the pooled first token; its first attention gives the gate.

    With pools it has a pooling layer of its own, for encoders without one, such as ELECTRA.
    """

    def __init__(self, measures: DecoderSizes, embeddings: Any, forcing: float, *, pools: bool) -> None:
        super().__init__(measures, embeddings, plain=True, forcing=forcing)
        self.pool, self.reads_pooler = nn.Linear(measures.size, measures.size) if pools else None, not pools
        self.gate = nn.Linear(measures.size, len(GATES))

    def begin(self, source: CopySource) -> tuple[Tensor, Tensor, Tensor, CopySource]:
        names = self.writer.embed(self.slots).sum(1).expand(source.hidden.shape[0], -1, -1)  # padding is summed in too
        pooled = source.pooled if self.pool is None else self.pool(source.hidden[:, 0]).tanh()
        assert pooled is not None, "an encoder with a pooling layer uses it"
        states = pooled.float()[:, None].expand(-1, len(self.slots), -1)
        inputs = self.writer.dropout(names)[:, :, None]
        nothing = torch.full(inputs.shape[:-1], NOTHING, device=inputs.device)
        _, context = self.writer.look(self.writer.step(inputs, states), nothing, source)
        return self.gate(context[:, :, 0]), names, states, source
