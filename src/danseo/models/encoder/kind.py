"""What an encoder needs to know of a kind of task: from examples to pieces, to a loss, and back to predictions.

Encoding and decoding need no torch, so that exported networks are used without it; losses and heads import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config import HeadConfig, TrainConfig
from danseo.models.encoder.pieces import Pieces
from danseo.models.protocol import Answers
from danseo.tasks.task import Task
from danseo.training.features import Array, Features, Outputs, padded

if TYPE_CHECKING:
    from torch import Tensor, nn


class Kind(ABC):
    """One kind of task for encoders. Make it once per run; it holds no weights."""

    head: str = ""
    """The stock class that has this head, such as AutoModelForTokenClassification; "" for a head of our own.
    Language models have no such heads and take the kind's own."""
    pools: bool = False
    """Whether a head of our own reads what the body's own pooling layer makes of the first piece."""

    def __init__(self, task: Task, pieces: Pieces, config: HeadConfig, train: TrainConfig | None = None) -> None:
        self.task, self.pieces, self.config, self.train = task, pieces, config, train or TrainConfig()
        self.class_weights: Tensor | None = None
        self.usual_weight: float | None = None
        """What an ordinary training example weighs in the loss, where long ones weigh more than short ones."""

    @classmethod
    def added_pieces(cls, config: HeadConfig) -> tuple[str, ...]:
        """Pieces to add to the vocabulary."""
        return ()

    def start_rows(self, rows: Tensor) -> None:
        """Set where the embeddings of added pieces start, before any training."""

    @property
    def longest(self) -> int:
        """The most pieces of an input, special ones included."""
        return min(self.config.max_length, self.pieces.longest)

    def prepare_loss(self, features: Sequence[Features]) -> None:
        """Take from the training features what the loss needs, such as the weights of labels."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        """Features of the examples in order; with_gold adds what the loss needs."""

    def learn_types(self, train: Sequence[Any]) -> None:
        """Take from the training examples what restricts answers."""

    def answer_facts(self, examples: Sequence[Any]) -> dict[str, Any]:
        """What is worth knowing of the answers last decoded, for the scores."""
        return {}

    def check_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> None:
        """Refuse to train on features that do not show what the examples hold."""

    def input_facts(self, examples: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        """What is worth knowing of the features, for the record."""
        return {}

    def head_options(self) -> dict[str, Any]:
        """Options of the stock class, such as the number of labels."""
        return {}

    def build_head(self, body: Any) -> nn.Module:
        """A head of our own: forward(hidden, batch) -> outputs; for bodies and kinds without a stock head."""
        raise NotImplementedError

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Called before every training step with its number and its whole batch, for what is drawn anew each time."""

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        """The kind's own arrays of a batch, padded; ids, mask and segments are made elsewhere."""
        return {}

    # loss() is called outside the network with its outputs; device-neutral, in float32.
    @abstractmethod
    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The summed loss of the batch and the weight it is summed over."""

    @abstractmethod
    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """The outputs, tensors or arrays, of each features record as arrays, padding cut off."""

    @abstractmethod
    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        """One prediction per example, in order, and what ensembles need besides."""

    def fit_decision(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> None:
        """Settle what decoding needs beyond weights, such as a threshold, on examples with gold."""

    def decision(self) -> dict[str, float]:
        """What fit_decision settled, to be saved with the model."""
        return {}

    def restore_decision(self, decision: dict[str, float]) -> None:
        """Take up what a saved model had settled."""

    def extra_state(self) -> dict[str, Any]:
        """Whatever else decoding needs, as plain JSON values, to be saved with the model."""
        return {}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take up what extra_state gave."""

    def perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs] | None:
        """Outputs of a network that knows the gold labels of its pieces: what the tokenizer makes possible."""
        return None


def log_softmax(array: Any) -> Any:
    """Along the last axis, in numpy."""
    shifted = array - array.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def batch_of(features: Sequence[Features], kind: Kind, with_gold: bool, *, with_segments: bool) -> dict[str, Array]:
    """Features as padded arrays: what the encoder reads, and what the kind's head does."""
    ids = padded([record.ids for record in features], kind.pieces.pad)
    mask = padded([[1] * len(record) for record in features], 0)
    batch = {"input_ids": ids, "attention_mask": mask, **kind.collate(features, with_gold)}
    return batch | ({"segments": padded([record.segments for record in features], 0)} if with_segments else {})
