"""Batched decoding with a shared prefix: the prefix is computed once, and padding changes nothing."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

GROUPED = "danseo_grouped"


@contextmanager
def use_grouped_attention(model: Any) -> Iterator[None]:
    """Use grouped attention inside the block, if the model uses sdpa."""
    before = model.config._attn_implementation
    if before != "sdpa":
        yield
        return
    from transformers import AttentionInterface

    AttentionInterface.register(GROUPED, grouped_attention)
    with suppress(ImportError):  # of libraries that make masks otherwise
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

        AttentionMaskInterface.register(GROUPED, sdpa_mask)
    model.set_attn_implementation(GROUPED)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute sdpa for grouped queries without copying keys, with boolean masks (rows, 1, tokens, keys)."""
    if attention_mask is None or query.shape[1] == key.shape[1]:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        others |= {"dropout": dropout, "scaling": scaling}
        found: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **others)[0]
        return found, None
    rows, heads, tokens, width = query.shape
    shared, keys = key.shape[1], key.shape[2]
    sharing = heads // shared
    mask = attention_mask[:, :, None, :, :keys].expand(-1, -1, sharing, -1, -1).flatten(2, 3)
    below = query.reshape(rows, shared, sharing * tokens, width)
    attend = torch.nn.functional.scaled_dot_product_attention
    states = attend(below, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return states.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


class SharedPrefix:
    """The key-value cache of a prefix that many prompts share."""

    def __init__(self, model: Any, ids: Sequence[int], part: int = 1024) -> None:
        from transformers import DynamicCache

        self.ids, self.cache = list(ids), DynamicCache()
        stream = BatchDecoder(model, self, 1, self.cache)
        for first in range(0, len(self.ids), part):
            stream.feed([self.ids[first : first + part]], keep=1)

    def __len__(self) -> int:
        return len(self.ids)


class BatchDecoder:
    """A batch of sequences after a shared prefix.

    Every row keeps its own positions, and masks are made from them: results do not depend on how rows are padded, also
    in layers that look only so far back.
    """

    def __init__(self, model: Any, beginning: SharedPrefix, rows: int, cache: Any = None) -> None:
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
        """Append tokens to every row; return the logits of the last positions."""
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
        """Compute new columns; seen restricts which of them attend to which, by default causally.

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
        """Whether all layers have a sliding window."""
        has_types = bool(getattr(self.model.config, "layer_types", None))
        return not has_types and bool(getattr(self.model.config, "use_sliding_window", True))

    def _as_mask(self, visible: Tensor) -> Tensor:
        mask = visible[:, None].to(self.model.device)
        if self.model.config._attn_implementation in ("sdpa", GROUPED):
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill(~mask, lowest)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the rows."""
        chosen = torch.tensor(rows)
        self.cache.batch_select_indices(chosen.to(self.model.device))
        self.real, self.positions = self.real[chosen], self.positions[chosen]
        self.lengths = [self.lengths[row] for row in rows]

    def score_trees(self, trees: Sequence["ReplyTree"]) -> list[Tensor]:
        """Return the log-probability of every node of each row's tree, given its ancestors.

        Only inner nodes are computed: what follows a last token is not needed.
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
            seen[number, :size, :size] = tree.compute_visibility()[inner][:, inner]
        logits = self._forward(ids, real.bool(), positions, width, seen)
        return [tree.weights(rows) for tree, rows in zip(trees, logits, strict=True)]


class ReplyTree:
    """Replies as a tree: common prefixes are shared."""

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

    def compute_visibility(self) -> Tensor:
        """Return which node attends to which: its ancestors and itself."""
        table = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
        for node, parent in enumerate(self.above):
            if parent >= 0:
                table[node] = table[parent]
            table[node, node] = True
        return table

    @property
    def inner(self) -> list[int]:
        """Nodes with children."""
        return sorted({parent for parent in self.above if parent >= 0})

    def weights(self, logits: Tensor) -> Tensor:
        """Return the log-probability of each node from the logits of its parent; 0 for first nodes."""
        found = torch.zeros(len(self.tokens))
        rows = {parent: row for row, parent in enumerate(self.inner)}
        below = [node for node, parent in enumerate(self.above) if parent >= 0]
        if below:
            normal = compute_log_sums(logits[: len(rows)])
            at = torch.tensor([rows[self.above[node]] for node in below])
            chosen = logits[at, [self.tokens[node] for node in below]].cpu()
            found[below] = (chosen.double() - normal[at]).float()
        return found


def compute_log_sums(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row.

    In float64: after one likely token float32 loses hundreds of thousands of unlikely ones, 5e-4 for a whole label.
    """
    return torch.stack([torch.logsumexp(row.double().cpu(), -1) for row in logits])
