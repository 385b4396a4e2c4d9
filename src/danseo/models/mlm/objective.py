"""Networks and objectives for the trainer: masked language modelling, and replaced-token detection (ELECTRA)."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.errors import DanseoError
from danseo.models.encoder.network import Network, without_pooler
from danseo.models.encoder.packed_forward import run_model, states_at
from danseo.models.encoder.packed_texts import PackedTexts
from danseo.training.features import Features, Outputs
from danseo.training.network import to_tensors

COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Architectures whose positions start behind their padding id."""
ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta-v2", "modernbert")


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """Apply the model's vocabulary head to hidden states of any leading shape."""
    architecture = model.config.model_type
    if architecture == "electra":
        logits: Tensor = model.generator_lm_head(model.generator_predictions(hidden))
    elif architecture == "modernbert":
        logits = model.decoder(model.head(hidden))
    elif hasattr(model, "lm_head"):
        logits = model.lm_head(hidden)
    elif hasattr(model, "lm_predictions"):
        logits = model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)
    elif hasattr(model, "cls"):
        logits = model.cls(hidden)
    else:
        raise DanseoError(
            f"unknown masked-language-model head of {architecture}; choose one of {', '.join(ARCHITECTURES)}"
        )
    return logits


Masker = Callable[[Features, int | None], Any]
"""Function of a features record and a step (None in evaluation, with fixed gaps) to the masked sequence."""


class MlmNetwork(Network):
    """A masked language model whose vocabulary head runs only at gaps."""

    def __init__(self, model: Any, seq_len: int = 256) -> None:
        super().__init__(model, None)
        self.shape = (max(1, 1024 // seq_len), seq_len)  # which attention is fastest depends on it

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"logits": vocabulary_logits(self.model, states_at(self.model, *gap_inputs(batch)))}

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        """Return masked sequences as a row of tokens."""
        return self.tensors(objective.mask_features(features, with_gold), features)

    def tensors(self, masked: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        """Return masked sequences as a row of tokens; each document of a sequence is a separate text."""
        sizes = [len(one.ids) for one in masked]
        starts = np.cumsum(sizes) - sizes
        parts = (record.fields.get("parts", ()) for record in features)
        lengths = [int(n) for part, size in zip(parts, sizes, strict=True) for n in (part if len(part) else (size,))]
        positions = np.concatenate([one.positions + start for one, start in zip(masked, starts, strict=True)])
        arrays = {
            "input_ids": np.concatenate([one.ids for one in masked]),
            "positions": positions.astype(np.int64),
            "labels": np.concatenate([one.labels for one in masked]).astype(np.int64),
            "weights": np.concatenate([one.weights for one in masked]).astype(np.float32),
            "owners": np.repeat(np.arange(len(masked)), [len(one.positions) for one in masked]),
        }
        counts = np.histogram(positions, np.cumsum([0, *lengths]))[0].tolist()
        return {**to_tensors(arrays), "texts": PackedTexts.of(lengths), "counts": tuple(counts)}


def gap_inputs(batch: dict[str, Any]) -> tuple[Any, ...]:
    """Return what states_at reads of a batch."""
    return tuple(batch[name] for name in ("input_ids", "texts", "positions", "counts"))


class MlmObjective:
    """The objective of masked language modelling: masks of the step and the loss."""

    def __init__(self, masker: Masker, on_batch: Callable[[Sequence[Features]], None] = lambda batch: None) -> None:
        self.masker, self.on_batch = masker, on_batch
        self.step = 0

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Set the step that masks depend on, and pass on the whole batch."""
        self.step = number
        self.on_batch(batch)

    def mask_features(self, features: Sequence[Features], with_gold: bool) -> list[Any]:
        """Mask the sequences for the step, or as in every evaluation."""
        return [self.masker(record, self.step if with_gold else None) for record in features]

    def quality(self, scores: dict[str, float], step: int) -> float:
        """Return the quality of an evaluation; the best weights are kept."""
        return -scores["held_out_loss"]

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of cross-entropies, and the sum of the weights."""
        losses = nn.functional.cross_entropy(outputs["logits"].float(), batch["labels"], reduction="none")
        return (losses * batch["weights"]).sum(), batch["weights"].sum()

    def unpack(self, outputs: dict[str, Tensor], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """Return per sequence the loss at each gap, whether the first guess is right, and the weight."""
        logits = outputs["logits"].float()
        losses = nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        columns = {"losses": losses, "right": logits.argmax(-1) == batch["labels"], "weights": batch["weights"]}
        return split_by_record(columns, batch["owners"], len(features))


def split_by_record(columns: dict[str, Tensor], owners: Tensor, records: int) -> list[Outputs]:
    """Split columns over a batch into those of each record."""
    cuts = np.searchsorted(owners.cpu().numpy(), np.arange(1, records))
    parts = {name: np.split(column.cpu().numpy(), cuts) for name, column in columns.items()}
    return [{name: part[k] for name, part in parts.items()} for k in range(records)]


def compute_recovery_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Return the held-out scores and the share of rows whose gaps are all right."""
    recovered = float(np.mean([bool(output["right"].all()) for output in outputs]))
    return {**compute_held_out_scores(outputs), "recovered": recovered}


def compute_held_out_scores(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Return the mean loss per masked token and the accuracy of the first guess."""
    losses = np.concatenate([output["losses"] for output in outputs])
    right = np.concatenate([output["right"] for output in outputs])
    weights = np.concatenate([output["weights"] for output in outputs])
    total = max(float(weights.sum()), 1e-9)
    return {
        "held_out_loss": float((losses * weights).sum() / total),
        "held_out_accuracy": float((right * weights).sum() / total),
    }


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
