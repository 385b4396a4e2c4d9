"""Read the texts of a batch as one row of tokens without padding: positions, attention, and conversion to tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from danseo.training.features import make_token_batches
from danseo.training.precision import FLASH, PACKED

_PADDING = 32  # tokens of padding that cost as much as another group of texts
_HIDDEN = -6e4  # added to scores; finite in every precision, so that rows of padding stay numbers


@dataclass(frozen=True)
class PackedTexts:
    """Where the texts of a batch lie in the row of its tokens; texts of equal length should be neighbours."""

    lengths: tuple[int, ...]
    starts: Tensor
    """Index of the first token of each text."""
    owners: Tensor
    """Number of the text of each token."""
    positions: Tensor
    """Position of each token in its text."""
    table: Tensor
    """Index of each token (texts, longest); padding has the index of the last token of its text."""
    _tables: dict[int, GroupTables] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, lengths: Sequence[int]) -> PackedTexts:
        """Return the layout of texts with these numbers of tokens."""
        sizes = np.array(lengths, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        owners = np.repeat(np.arange(len(sizes)), sizes)
        positions = np.arange(len(owners)) - starts[owners]
        table = starts[:, None] + np.minimum(np.arange(sizes.max()), sizes[:, None] - 1)
        return cls(tuple(lengths), *(torch.from_numpy(array) for array in (starts, owners, positions, table)))

    def to(self, device: torch.device, non_blocking: bool = False) -> PackedTexts:
        """Copy the layout to a device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> PackedTexts:
        """Copy the layout to memory that a GPU reads while the CPU continues."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> PackedTexts:
        return PackedTexts(self.lengths, *map(change, (self.starts, self.owners, self.positions, self.table)))

    @property
    def lasts(self) -> Tensor:
        """Index of the last token of each text."""
        return self.table[:, -1]

    @cached_property
    def mask(self) -> Tensor:
        """Return which cells of the table hold a token (texts, longest)."""
        columns = torch.arange(self.table.shape[1], device=self.table.device)
        return columns <= (self.lasts - self.starts).unsqueeze(1)

    def pad(self, rows: Tensor) -> Tensor:
        """Return values of all tokens as a table (texts, longest, …); cells of padding repeat the last token."""
        return rows.index_select(0, self.table.flatten()).view(*self.table.shape, *rows.shape[1:])

    def unpad(self, table: Tensor) -> Tensor:
        """Return a table (texts, longest, …) as values of all tokens."""
        return table.flatten(0, 1).index_select(0, self.owners * self.table.shape[1] + self.positions)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Return the texts in groups of similar length."""
        return make_token_batches(range(len(self.lengths)), self.lengths, sys.maxsize, _PADDING)

    def make_tables(self, heads: int, counts: Sequence[int] | None = None) -> GroupTables:
        """Return the tables of all tokens, which are made once, or of so many tokens per text."""
        if counts is not None:
            return GroupTables(self.groups, counts, heads, self.starts.device)
        if heads not in self._tables:
            self._tables[heads] = GroupTables(self.groups, self.lengths, heads, self.starts.device)
        return self._tables[heads]

    def flash_options(self) -> dict[str, Any]:
        """Return the layout as FlashAttention's variable-length kernel takes it."""
        ends = torch.cat([self.starts[:1], self.lasts + 1]).int()
        longest = max(self.lengths)
        return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}


class PaddedTexts:
    """The texts of a padded batch (texts, longest), for networks that are traced: rows hold padding too."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask.bool()
        self.starts = torch.arange(mask.shape[0], device=mask.device) * mask.shape[1]
        self.lasts = self.starts + mask.sum(1) - 1

    def pad(self, rows: Tensor) -> Tensor:
        return rows.view(*self.mask.shape, *rows.shape[1:])

    def unpad(self, table: Tensor) -> Tensor:
        return table.flatten(0, 1)


class GroupTables:
    """Padded tables (texts, heads, longest) of groups of similar texts, one after another, and where tokens lie there.

    Cells hold the index of a token and head, places that of a cell, and blanks the indices of cells of padding.
    """

    def __init__(
        self, groups: Sequence[Sequence[int]], counts: Sequence[int], heads: int, device: torch.device
    ) -> None:
        sizes = np.array(counts, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        self.shapes, self.masks = list[tuple[int, int, int]](), list[Tensor | None]()
        tables, hidden = [], []
        for group in groups:
            lengths, columns = sizes[group, None], np.arange(sizes[group].max())
            tokens = np.maximum(starts[group, None] + np.minimum(columns, lengths - 1), 0)
            tables.append((tokens[:, None] * heads + np.arange(heads)[:, None]).ravel())
            is_blank = columns >= lengths
            hidden.append(np.repeat(is_blank, heads, axis=0).ravel())
            mask = torch.from_numpy(np.float32(_HIDDEN) * is_blank[:, None, None]).to(device)
            self.masks.append(mask if is_blank.any() else None)
            self.shapes.append((len(group), heads, len(columns)))
        cells, is_hidden = np.concatenate(tables), np.concatenate(hidden)
        places = np.empty(sizes.sum() * heads, dtype=np.int64)
        places[cells[~is_hidden]] = np.flatnonzero(~is_hidden)
        arrays = (cells, places, np.flatnonzero(is_hidden))
        self.cells, self.places, self.blanks = (torch.from_numpy(a).to(device) for a in arrays)

    def split(self, states: Tensor) -> list[Tensor]:
        """Return states (1, heads, tokens, width) as tables (texts, heads, longest, width)."""
        rows = _move_rows(states.transpose(1, 2).flatten(0, 2), self.cells, self.places, None)
        parts = rows.split([math.prod(shape) for shape in self.shapes])
        return [part.view(*shape, states.shape[3]) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, tables: Sequence[Tensor]) -> Tensor:
        """Return tables as states (1, tokens, heads, width)."""
        rows = torch.cat([table.flatten(0, 2) for table in tables])
        moved = _move_rows(rows, self.places, self.cells, self.blanks)
        return moved.view(1, -1, self.shapes[0][1], rows.shape[1])


class _MoveRows(torch.autograd.Function):
    """Select rows, and select their gradients back: padding has none, so nothing needs to be added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, back: Tensor, blanks: Tensor | None) -> Tensor:
        ctx.save_for_backward(back, blanks)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        back, blanks = ctx.saved_tensors
        moved = gradient.index_select(0, back)
        return moved if blanks is None else moved.index_fill_(0, blanks, 0), None, None, None


_move_rows: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = _MoveRows.apply


def attend(
    query: Tensor, key: Tensor, value: Tensor, texts: PackedTexts, counts: Sequence[int] | None = None, **options: Any
) -> Tensor:
    """Return the attention of each text to itself (1, tokens, heads, width), of all tokens or of so many per text."""
    is_plain = options["window"] is None and not options["causal"] and query.shape[1] == key.shape[1]
    if options["dropout_p"] and is_plain and query.device.type == "cpu":
        return _attend_with_dropout(query, key, value, texts, counts, options)
    sizes = zip(counts or texts.lengths, texts.lengths, strict=True)
    groups = [(asked, length, len(list(same))) for (asked, length), same in groupby(sizes)]
    query, key, value = (states.transpose(1, 2)[0] for states in (query, key, value))
    read = [count * length for _, length, count in groups]
    asking = [count * asked for asked, _, count in groups]
    parts = zip(query.split(asking), key.split(read), value.split(read), strict=True)
    outputs = []
    for (asked, _, count), part in zip(groups, parts, strict=True):
        if asked:
            tables = (states.unflatten(0, (count, -1)).transpose(1, 2) for states in part)
            outputs.append(_attend_group(*tables, **options).transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs or [query]).unsqueeze(0)


def _attend_with_dropout(
    query: Tensor, key: Tensor, value: Tensor, texts: PackedTexts, counts: Sequence[int] | None, options: dict[str, Any]
) -> Tensor:
    """Return the attention in few groups of similar texts, as torch has no quick kernel with dropout for a CPU."""
    read, asked = texts.make_tables(key.shape[1]), texts.make_tables(query.shape[1], counts)
    scale = options["scale"] or query.shape[-1] ** -0.5
    outputs = []
    for *tables, mask in zip(asked.split(query), read.split(key), read.split(value), read.masks, strict=True):
        scores = tables[0] * scale @ tables[1].mT
        scores = scores if mask is None else scores.add_(mask)
        outputs.append(drop_values(scores.softmax(-1), options["dropout_p"]) @ tables[2])
    return asked.join(outputs)


def _attend_group(
    query: Tensor, key: Tensor, value: Tensor, window: int | None, causal: bool, **options: Any
) -> Tensor:
    """Return the attention of texts of equal length (texts, heads, tokens, width)."""
    length, mask = query.shape[2], None
    if window is not None and window < length:
        numbers = torch.arange(length, device=query.device)
        distance = numbers.unsqueeze(1) - numbers
        mask = (distance.abs() < window) & (distance >= 0) if causal else distance.abs() < window
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal and mask is None and length > 1, **options
    )


def attend_packed(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    texts: PackedTexts | None = None,
    sees_ahead: bool | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of a layer of transformers; sees_ahead overrides the direction of a language model."""
    if texts is None or softcap is not None:
        raise ValueError("this attention is for packed texts and has no softcap")
    causal = bool(getattr(module, "is_causal", False)) if sees_ahead is None else not sees_ahead
    options: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
    return attend(query, key, value, texts, window=sliding_window, causal=causal, **options), None


def is_packed(model: Any) -> bool:
    """Return whether the model reads packed texts."""
    return model.config._attn_implementation in (PACKED, FLASH)


def pack_inputs(model: Any, ids: Tensor, texts: PackedTexts, segments: Tensor | None, sees_ahead: bool | None) -> Any:
    """Return the inputs of a model that reads packed texts."""
    embeddings: Any = getattr(model.base_model, "embeddings", None)
    positions = texts.positions
    if hasattr(embeddings, "create_position_ids_from_input_ids"):
        positions = count_from_padding(ids, texts, embeddings.padding_idx)
    inputs = {"input_ids": ids.unsqueeze(0), "position_ids": positions.unsqueeze(0)}
    if segments is not None:
        inputs["token_type_ids"] = segments.unsqueeze(0)
    if model.config._attn_implementation == FLASH:
        return {**inputs, **texts.flash_options()}
    return {**inputs, "texts": texts, "sees_ahead": sees_ahead}


def count_from_padding(ids: Tensor, texts: PackedTexts, padding: int) -> Tensor:
    """Return positions as RoBERTa counts them: from the padding id on, without tokens that have this id."""
    counted = (ids != padding).long()
    sums = counted.cumsum(0)
    before = (sums - counted).index_select(0, texts.starts)
    return (sums - before.index_select(0, texts.owners)) * counted + padding


@torch.no_grad()
def reads_packed(model: Any, run: Callable[[Tensor, PackedTexts], Tensor]) -> bool:
    """Return whether a model computes the same for packed texts as for each text alone."""
    from transformers import AttentionInterface

    before, was_training = model.config._attn_implementation, model.training
    window = getattr(model.config, "sliding_window", None) or 0
    lengths = (window + 6 if window <= 128 else 6, 4, 4, 2)
    ids = torch.arange(sum(lengths), device=model.device) % 7 + 3
    model.eval()
    AttentionInterface.register(PACKED, attend_packed)  # it has no mask function, so that no mask is made
    try:
        with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=model.dtype == torch.bfloat16):
            alone = [run(part, PackedTexts.of([len(part)]).to(model.device)) for part in ids.split(lengths)]
            model.set_attn_implementation(PACKED)
            packed = run(ids, PackedTexts.of(lengths).to(model.device))
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, IndexError):  # a family without it
        return False
    finally:
        model.set_attn_implementation(before)
        model.train(was_training)
    tolerance = 5e-2 if model.dtype == torch.bfloat16 else 1e-3
    return torch.allclose(packed.float(), torch.cat(alone).float(), rtol=tolerance, atol=tolerance, equal_nan=True)


def drop_values(states: Tensor, share: float) -> Tensor:
    """Set a random share of the values to zero and scale up the others; the share is exact to 1/65,536."""
    count = states.numel()
    numbers = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    factors = torch.empty_like(states, requires_grad=False, memory_format=torch.contiguous_format)
    torch.ge(numbers[:count].view(states.shape), round(share * 2**16) - 2**15, out=factors)
    return states * factors.mul_(1 / (1 - share))


class CpuDropout(nn.Dropout):
    """Dropout that is quick on a CPU, and torch's own elsewhere."""

    def forward(self, states: Tensor) -> Tensor:
        if not self.training or not 0 < self.p < 1 or states.device.type != "cpu":
            return super().forward(states)
        return drop_values(states, self.p)


def use_cpu_dropout(model: nn.Module) -> None:
    """Replace the dropout of all layers."""
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = CpuDropout
