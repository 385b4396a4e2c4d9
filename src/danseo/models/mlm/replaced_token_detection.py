"""Replaced-token detection (ELECTRA): a generator fills gaps, the model detects replaced tokens."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.models.encoder.network import without_pooler
from danseo.models.encoder.packed_forward import run_model, states_at
from danseo.models.mlm.objective import MlmNetwork, MlmObjective, gap_inputs, split_by_record
from danseo.training.features import Features, Outputs
from danseo.training.network import to_tensors


class SharedEmbeddings(nn.Module):
    """The model's token embeddings, projected to the width of the generator."""

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
    """A small encoder of the same architecture that predicts tokens at gaps; it shares the embeddings."""

    def __init__(self, model: Any, width: int, layers: int) -> None:
        super().__init__()
        from transformers import AutoModel

        table = model.get_input_embeddings()
        self.body = AutoModel.from_config(
            make_generator_config(model.config, width, layers), **without_pooler(model.config)
        )
        self.body.set_input_embeddings(SharedEmbeddings(table, width))
        self.widen = nn.Sequential(nn.Linear(width, table.embedding_dim), nn.GELU(), nn.LayerNorm(table.embedding_dim))
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return the logits of all tokens at gaps."""
        states = states_at(self.body, *gap_inputs(batch))
        return nn.functional.linear(self.widen(states), self.body.get_input_embeddings().weight, self.bias)


def make_generator_config(config: Any, width: int, layers: int) -> Any:
    """Return the configuration of a generator of another size; attention heads keep their width if possible."""
    small = deepcopy(config)
    most_heads = max(1, width * config.num_attention_heads // config.hidden_size)
    small.num_attention_heads = next(heads for heads in range(most_heads, 0, -1) if width % heads == 0)
    small.intermediate_size = max(1, config.intermediate_size * width // config.hidden_size)
    small.hidden_size, small.num_hidden_layers = width, layers
    if getattr(small, "layer_types", None):  # ModernBERT's local and global layers, from the first on
        small.layer_types = (layers * small.layer_types)[:layers]
    for name in ("embedding_size", "pooler_hidden_size"):
        if hasattr(small, name):
            setattr(small, name, width)
    return small


class RtdNetwork(MlmNetwork):
    """The model under training as discriminator, with the generator."""

    def __init__(self, model: Any, generator: Generator, specials: Sequence[int], seq_len: int = 256) -> None:
        super().__init__(model, seq_len)
        width = model.config.hidden_size
        self.generator, self.specials = generator, list(specials)
        self.detector = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def use_attention(self, name: str) -> None:
        super().use_attention(name)
        self.generator.body.set_attn_implementation(name)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        guesses = torch.log_softmax(self.generator(batch).float(), dim=-1)
        tokens = sample_tokens(guesses.detach(), batch["draws"], self.specials)
        ids = batch["input_ids"].index_copy(0, batch["positions"], tokens)
        replaced = torch.zeros_like(ids, dtype=torch.bool)
        replaced = replaced.index_copy(0, batch["positions"], tokens != batch["labels"])[batch["text"]]
        states = run_model(self.model.base_model, ids, batch["texts"])["last_hidden_state"]
        logits = self.detector(states.index_select(0, batch["text"])).squeeze(-1)
        return {"guesses": guesses, "replaced": replaced, "logits": logits}

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        """Return masked sequences, a random number per gap, and the indices of text tokens."""
        masked = objective.mask_features(features, with_gold)
        is_text = [objective.masker.is_text(record) for record in features]
        more: dict[str, Any] = {
            "draws": np.concatenate([one.draws for one in masked]).astype(np.float32),
            "text": np.flatnonzero(np.concatenate(is_text)),
            "text_owners": np.repeat(np.arange(len(features)), [int(flags.sum()) for flags in is_text]),
        }
        return self.tensors(masked, features) | to_tensors(more)


def sample_tokens(guesses: Tensor, draws: Tensor, never: Sequence[int]) -> Tensor:
    """Sample a token per row of log-probabilities by inverse transform of a given number from 0 to 1.

    One number per gap, that comes with the gap, makes the tokens independent of how a batch is divided.
    """
    chances = guesses.exp()
    chances[:, list(never)] = 0
    sums = chances.cumsum(dim=-1)
    tokens = torch.searchsorted(sums, (draws * sums[:, -1]).unsqueeze(1), right=True).squeeze(1)
    return tokens.clamp(max=sums.shape[1] - 1)


class RtdObjective(MlmObjective):
    """The detection loss plus the loss of the generator."""

    def __init__(self, *options: Any, weight: float = 50.0) -> None:
        super().__init__(*options)
        self.weight = weight

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return both losses summed, and the number of text tokens."""
        guessing = (_compute_generator_losses(outputs, batch) * batch["weights"]).sum()
        detection = _compute_detection_losses(outputs)
        return guessing + self.weight * detection.sum(), detection.new_full((), len(detection))

    def unpack(self, outputs: dict[str, Tensor], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """Return per sequence the detection losses, whether they are right, the labels, and the generator's losses."""
        replaced, detected = outputs["replaced"], outputs["logits"] > 0
        columns = {"losses": _compute_detection_losses(outputs), "right": detected == replaced, "replaced": replaced}
        tokens = split_by_record(columns, batch["text_owners"], len(features))
        gaps = split_by_record({"guessing": _compute_generator_losses(outputs, batch)}, batch["owners"], len(features))
        return [{**a, **b} for a, b in zip(tokens, gaps, strict=True)]

    def quality(self, scores: dict[str, float], step: int) -> float:
        """Return the step: losses against different generators cannot be compared."""
        return float(step)


def _compute_generator_losses(outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
    return nn.functional.nll_loss(outputs["guesses"], batch["labels"], reduction="none")


def _compute_detection_losses(outputs: dict[str, Tensor]) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(
        outputs["logits"].float(), outputs["replaced"].float(), reduction="none"
    )


def compute_detection_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Return mean loss and accuracy of detection, the majority share, and the generator's loss."""
    columns = {key: np.concatenate([output[key] for output in outputs]) for key in outputs[0]}
    replaced = float(columns["replaced"].mean())
    return {
        "held_out_rtd_loss": float(columns["losses"].mean()),
        "held_out_rtd_accuracy": float(columns["right"].mean()),
        "held_out_rtd_majority": max(replaced, 1 - replaced),
        "held_out_generator_loss": float(columns["guessing"].mean()),
    }
