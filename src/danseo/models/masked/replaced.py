"""Replaced-token detection for the training loop: a generator fills gaps, the model tells which pieces are not true."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.models.encoder.network import without_pooler
from danseo.models.masked.head import hidden_states, states_at
from danseo.models.masked.kind import MaskedKind, MaskedNetwork, at_gaps, by_record
from danseo.training.features import Features, Outputs, padded


class SharedEmbeddings(nn.Module):
    """The model's table of pieces, narrowed for the generator."""

    def __init__(self, table: nn.Embedding, width: int) -> None:
        super().__init__()
        self.table, self.narrow = table, nn.Linear(table.embedding_dim, width, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        narrowed: Tensor = self.narrow(self.table(ids))
        return narrowed


class Generator(nn.Module):
    """A small encoder of the model's family that guesses pieces at gaps; their table is the model's own."""

    def __init__(self, model: Any, width: int, layers: int) -> None:
        super().__init__()
        from transformers import AutoModel

        table = model.get_input_embeddings()
        self.body = AutoModel.from_config(smaller(model.config, width, layers), **without_pooler(model.config))
        self.body.set_input_embeddings(SharedEmbeddings(table, width))
        self.widen = nn.Sequential(nn.Linear(width, table.embedding_dim), nn.GELU(), nn.LayerNorm(table.embedding_dim))
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The scores of all pieces at the gaps."""
        inputs = (batch["input_ids"], batch["attention_mask"], batch.get("documents"))
        states = at_gaps(states_at(self.body, batch["positions"], *inputs), batch)
        return nn.functional.linear(self.widen(states), self.body.get_input_embeddings().weight, self.bias)


def smaller(config: Any, width: int, layers: int) -> Any:
    """The same family with other measures; heads keep their width, where there is room for one."""
    made = deepcopy(config)
    wanted = max(1, width * config.num_attention_heads // config.hidden_size)
    made.num_attention_heads = next(heads for heads in range(wanted, 0, -1) if width % heads == 0)
    made.intermediate_size = max(1, config.intermediate_size * width // config.hidden_size)
    made.hidden_size, made.num_hidden_layers = width, layers
    if getattr(made, "layer_types", None):  # ModernBERT's local and global layers, from the first on
        made.layer_types = (layers * made.layer_types)[:layers]
    for name in ("embedding_size", "pooler_hidden_size"):
        if hasattr(made, name):
            setattr(made, name, width)
    return made


class ReplacedNetwork(MaskedNetwork):
    """The model under training as the judge of every piece, beside the generator that puts some in."""

    def __init__(self, model: Any, generator: Generator, specials: Sequence[int], seq_len: int = 256) -> None:
        super().__init__(model, seq_len)
        width = model.config.hidden_size
        self.generator, self.specials = generator, list(specials)
        self.judge = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def use_attention(self, name: str) -> None:
        super().use_attention(name)
        self.generator.body.set_attn_implementation(name)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        guesses = torch.log_softmax(self.generator(batch).float(), dim=-1)
        pieces = drawn(guesses.detach(), batch["draws"], self.specials)
        gaps = batch["owners"], at_gaps(batch["positions"], batch)
        ids = batch["input_ids"].index_put(gaps, pieces)
        replaced = torch.zeros_like(ids, dtype=torch.bool).index_put(gaps, pieces != batch["labels"])
        states = hidden_states(self.model, ids, batch["attention_mask"], batch.get("documents"))
        return {"guesses": guesses, "replaced": replaced, "judged": self.judge(states).squeeze(-1)}

    def collate(self, features: list[Features], kind: Any, with_gold: bool) -> dict[str, Tensor]:
        """Sequences with gaps, a draw for each gap, and which pieces are text."""
        masked = kind.masked(features, with_gold)
        text = padded([kind.masker.is_text(record).astype(np.int64) for record in features], 0)
        draws = torch.from_numpy(np.concatenate([one.draws for one in masked])).float()
        return {**self.tensors(masked, features, kind.pad), "draws": draws, "is_text": torch.from_numpy(text).bool()}


def drawn(guesses: Tensor, draws: Tensor, never: Sequence[int]) -> Tensor:
    """A piece for each row of log probabilities: where their running sum passes the draw, a number from 0 to 1.

    One number per gap, that comes with the gap, makes the pieces independent of how a batch is divided.
    """
    chances = guesses.exp()
    chances[:, list(never)] = 0
    sums = chances.cumsum(dim=-1)
    found = torch.searchsorted(sums, (draws * sums[:, -1]).unsqueeze(1), right=True).squeeze(1)
    return found.clamp(max=sums.shape[1] - 1)


class ReplacedKind(MaskedKind):
    """The loss of judging every piece of the text, beside that of the generator."""

    def __init__(self, *options: Any, weight: float = 50.0) -> None:
        super().__init__(*options)
        self.weight = weight

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Both losses summed, and the pieces of text they are summed over; a gap weighs as much as gaps are rare."""
        guessing = _guessing(outputs, batch) * batch["weights"]
        return guessing.sum() + self.weight * _judging(outputs, batch).sum(), batch["is_text"].sum().float()

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        """Per sequence: the loss of the judgement of each piece, whether it is right, what is true; losses at gaps."""
        text = batch["is_text"]
        replaced, judged = outputs["replaced"][text], outputs["judged"][text] > 0
        columns = {"losses": _judging(outputs, batch), "right": judged == replaced, "replaced": replaced}
        pieces = by_record(columns, text.nonzero()[:, 0], len(features))
        gaps = by_record({"guessing": _guessing(outputs, batch)}, batch["owners"], len(features))
        return [{**a, **b} for a, b in zip(pieces, gaps, strict=True)]

    def quality(self, scores: dict[str, float], step: int) -> float:
        """Later is better: the losses of two moments are about different generators and cannot be compared."""
        return float(step)


def _guessing(outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.nll_loss(outputs["guesses"], batch["labels"], reduction="none")


def _judging(outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Tensor:
    text = batch["is_text"]
    return nn.functional.binary_cross_entropy_with_logits(
        outputs["judged"][text].float(), outputs["replaced"][text].float(), reduction="none"
    )


def detection_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Mean loss per judged piece, the share judged right beside that of always one answer, and the generator's loss."""
    whole = {key: np.concatenate([output[key] for output in outputs]) for key in outputs[0]}
    replaced = float(whole["replaced"].mean())
    return {
        "held_out_rtd_loss": float(whole["losses"].mean()),
        "held_out_rtd_accuracy": float(whole["right"].mean()),
        "held_out_rtd_majority": max(replaced, 1 - replaced),
        "held_out_generator_loss": float(whole["guessing"].mean()),
    }
