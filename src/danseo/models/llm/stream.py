"""Sequences that grow side by side: a common beginning is computed once, and nobody sees the padding of others."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from danseo.models.llm.attention import takes_flags


class Beginning:
    """The states of tokens with which many prompts begin."""

    def __init__(self, model: Any, ids: Sequence[int], part: int = 1024) -> None:
        from transformers import DynamicCache

        self.ids, self.cache = list(ids), DynamicCache()
        stream = Stream(model, self, 1, self.cache)
        for first in range(0, len(self.ids), part):
            stream.feed([self.ids[first : first + part]], keep=1)

    def __len__(self) -> int:
        return len(self.ids)


class Stream:
    """A batch of sequences behind a common beginning.

    Every row keeps its own positions, and masks are made from them: results do not depend on how rows are padded, also
    in layers that look only so far back.
    """

    def __init__(self, model: Any, beginning: Beginning, rows: int, cache: Any = None) -> None:
        self.model, is_first = model, cache is not None
        self.cache = cache if is_first else copy.deepcopy(beginning.cache)
        length = 0 if is_first else len(beginning)
        if length and rows > 1:
            self.cache.batch_repeat_interleave(rows)
        self.real = torch.ones(rows, length, dtype=torch.bool)
        self.positions = torch.arange(length).repeat(rows, 1)
        self.lengths = [length] * rows
        types = set(getattr(model.config, "layer_types", None) or ())
        self.types = types if any("sliding" in name for name in types) else set[str]()
        self.window: int | None = getattr(model.config, "sliding_window", None)

    def feed(self, rows: Sequence[Sequence[int]], keep: int = 1) -> Tensor:
        """Add tokens to every row; the logits of the last so many positions come out."""
        width = max(map(len, rows))
        ids, real, positions = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(3))
        for number, row in enumerate(rows):
            start = width - len(row)
            ids[number, start:] = torch.tensor(row)
            real[number, start:] = 1
            positions[number, start:] = torch.arange(self.lengths[number], self.lengths[number] + len(row))
            self.lengths[number] += len(row)
        return self._forward(ids, real.bool(), positions, keep)

    @torch.inference_mode()
    def _forward(self, ids: Tensor, real: Tensor, positions: Tensor, keep: int, seen: Tensor | None = None) -> Tensor:
        """Compute new columns; seen says which of them see which, where that is not simply those before.

        Of states that do not lie together, a frozen table of the vocabulary is copied for every row.
        """
        old = self.real.shape[1]
        self.real, self.positions = torch.cat([self.real, real], 1), torch.cat([self.positions, positions], 1)
        width = ids.shape[1]
        order = torch.ones(width, width, dtype=torch.bool).tril() if seen is None else seen
        visible = self.real[:, None, :].expand(-1, width, -1).clone()
        visible[:, :, old:] &= order
        visible[:, :, old:] |= torch.eye(width, dtype=torch.bool)  # padding sees itself: a softmax of nothing is none
        away = positions[:, :, None] - self.positions[:, None, :]
        device = self.model.device
        found = self.model(
            input_ids=ids.to(device),
            attention_mask=self._masks(visible, away),
            position_ids=positions.to(device),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=torch.arange(
                width - keep, width, device=device
            ),  # as places: a slice would not lie together
        )
        logits: Tensor = found.logits
        return logits

    def _masks(self, visible: Tensor, away: Tensor) -> Any:
        near = visible & (away < self.window) if self.window else visible
        if not self.types:
            return self._as_mask(near if self._slides else visible)
        return {name: self._as_mask(near if "sliding" in name else visible) for name in self.types}

    @property
    def _slides(self) -> bool:
        """Whether all layers look only so far back, as in models without types of layers."""
        has_types = bool(getattr(self.model.config, "layer_types", None))
        return not has_types and bool(getattr(self.model.config, "use_sliding_window", True))

    def _as_mask(self, visible: Tensor) -> Tensor:
        mask = visible[:, None].to(self.model.device)
        if takes_flags(self.model):
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill(~mask, lowest)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows."""
        chosen = torch.tensor(rows)
        self.cache.batch_select_indices(chosen.to(self.model.device))
        self.real, self.positions = self.real[chosen], self.positions[chosen]
        self.lengths = [self.lengths[row] for row in rows]

    def weigh(self, trees: Sequence["Tree"]) -> list[Tensor]:
        """Log-probabilities of every node of each row's tree, given the row and the nodes above it.

        Only nodes with others below them are computed: what a last token would lead to, nobody asks.
        """
        width = max(len(tree.inner) for tree in trees)
        if not width:
            return [torch.zeros(len(tree.tokens)) for tree in trees]
        ids, real, positions = (torch.zeros(len(trees), width, dtype=torch.long) for _ in range(3))
        seen = torch.zeros(len(trees), width, width, dtype=torch.bool)
        for number, tree in enumerate(trees):
            inner, size = tree.inner, len(tree.inner)
            ids[number, :size], real[number, :size] = torch.tensor(tree.tokens)[inner], 1
            positions[number, :size] = self.lengths[number] + torch.tensor(tree.depths)[inner]
            seen[number, :size, :size] = tree.seen()[inner][:, inner]
        logits = self._forward(ids, real.bool(), positions, width, seen)
        return [tree.weights(rows) for tree, rows in zip(trees, logits, strict=True)]


class Tree:
    """Replies that share their beginnings: every token once, under the one before it."""

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.above: list[int] = []
        self.paths: list[list[int]] = []
        nodes: dict[tuple[int, int], int] = {}
        for reply in replies:
            parent, path = -1, list[int]()
            for depth, token in enumerate(reply):
                if (parent, token) not in nodes:
                    nodes[parent, token] = len(self.tokens)
                    self.tokens.append(token)
                    self.depths.append(depth)
                    self.above.append(parent)
                parent = nodes[parent, token]
                path.append(parent)
            self.paths.append(path)

    def seen(self) -> Tensor:
        """Which node sees which: those above it, and itself."""
        table = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
        for node, parent in enumerate(self.above):
            if parent >= 0:
                table[node] = table[parent]
            table[node, node] = True
        return table

    @property
    def inner(self) -> list[int]:
        """The nodes with others below them."""
        return sorted({parent for parent in self.above if parent >= 0})

    def weights(self, logits: Tensor) -> Tensor:
        """What each node weighs, by the logits of the inner nodes; the first ones are weighed elsewhere (0)."""
        found = torch.zeros(len(self.tokens))
        rows = {parent: row for row, parent in enumerate(self.inner)}
        below = [node for node, parent in enumerate(self.above) if parent >= 0]
        if below:
            normal = log_sums(logits[: len(rows)])
            at = torch.tensor([rows[self.above[node]] for node in below])
            chosen = logits[at, [self.tokens[node] for node in below]].cpu()
            found[below] = (chosen.double() - normal[at]).float()
        return found


def log_sums(logits: Tensor) -> Tensor:
    """The log of what all tokens weigh together, row by row.

    In float64: after one likely token float32 loses hundreds of thousands of unlikely ones, 5e-4 for a whole label.
    """
    return torch.stack([torch.logsumexp(row.double().cpu(), -1) for row in logits])
