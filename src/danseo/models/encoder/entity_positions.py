"""Entity-relative position embeddings: how far every token is from the subject and from the object."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from danseo.models.encoder.packed_texts import PackedTexts, PaddedTexts


class EntityPositions(nn.Module):
    """Adds the embeddings of two distances to the input embedding of every token.

    The tokens of an entity have distance 0 to it, those before it a negative one. The embeddings start as zero, so that
    the pretrained body starts as it is.
    """

    def __init__(self, tokens: Any, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.added: Tensor | None = None
        self.embeddings = nn.Embedding(2 * (2 * max_distance + 1), tokens.embedding_dim)
        nn.init.zeros_(self.embeddings.weight)
        tokens.register_forward_hook(self._add)

    @contextmanager
    def at(self, entities: Tensor, texts: PackedTexts | PaddedTexts, *, is_packed: bool) -> Iterator[None]:
        """Add the embeddings to the tokens that are read inside the block; entities are spans (texts, 2, 2)."""
        if is_packed:
            assert isinstance(texts, PackedTexts)
            positions, spans = texts.positions.unsqueeze(0), entities.index_select(0, texts.owners).unsqueeze(0)
        else:
            positions = torch.arange(texts.mask.shape[1], device=entities.device).unsqueeze(0)
            spans = entities.unsqueeze(1)
        self.added = self.embeddings(self._number_distances(positions.unsqueeze(-1), spans)).sum(-2)
        try:
            yield
        finally:
            self.added = None

    def _number_distances(self, positions: Tensor, spans: Tensor) -> Tensor:
        """Return the row of the embeddings for each token and entity (texts, tokens, 2)."""
        nearest = torch.minimum(torch.maximum(positions, spans[..., 0]), spans[..., 1] - 1)
        numbers = (positions - nearest).clamp(-self.max_distance, self.max_distance) + self.max_distance
        roles = torch.arange(2, device=numbers.device) * (2 * self.max_distance + 1)
        return numbers + roles

    def _add(self, module: Any, inputs: Any, found: Tensor) -> Tensor:
        return found if self.added is None else found + self.added.to(found.dtype)
