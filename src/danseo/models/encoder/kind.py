"""What an encoder needs to know of a kind of task: from examples to pieces, to a loss, and back to predictions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from danseo.config import HeadConfig, TrainConfig
from danseo.models.encoder.pieces import Pieces
from danseo.models.protocol import Answers
from danseo.tasks.task import Task
from danseo.training.features import IGNORED, Features, Outputs


class Kind(ABC):
    """One kind of task for encoders. Make it once per run; it holds no weights."""

    special_tokens: ClassVar[tuple[str, ...]] = ()
    """Pieces to add to the vocabulary."""
    head: ClassVar[str]
    """The stock class that has this head, such as AutoModelForTokenClassification; "" for a head of our own.
    Language models have no such heads and take the kind's own."""
    pools: bool = False
    """Whether a head of our own reads what the body's own pooling layer makes of the first piece."""

    def __init__(self, task: Task, pieces: Pieces, config: HeadConfig, train: TrainConfig | None = None) -> None:
        self.task, self.pieces, self.config, self.train = task, pieces, config, train or TrainConfig()
        self.class_weights: Tensor | None = None
        self.usual_weight: float | None = None
        """What an ordinary training example weighs in the loss, where long ones weigh more than short ones."""

    @property
    def longest(self) -> int:
        """The most pieces of an input, special ones included."""
        return min(self.config.max_length, self.pieces.longest)

    def prepare_loss(self, features: Sequence[Features]) -> None:
        """Take from the training features what the loss needs, such as the weights of labels."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        """Features of the examples in order; with_gold adds what the loss needs."""

    def head_options(self) -> dict[str, Any]:
        """Options of the stock class, such as the number of labels."""
        return {}

    def build_head(self, body: Any) -> nn.Module:
        """A head of our own: forward(hidden, batch) -> outputs; for bodies and kinds without a stock head."""
        raise NotImplementedError

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Called before every training step with its number and its whole batch, for what is drawn anew each time."""

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Tensor]:
        """The kind's own tensors of a batch, padded; ids, mask and segments are made elsewhere."""
        return {}

    # loss() is called outside the network with its outputs; device-neutral, in float32.
    @abstractmethod
    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The summed loss of the batch and the weight it is summed over."""

    @abstractmethod
    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        """The outputs of each features record as numpy arrays, padding cut off."""

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


def balanced_weights(labels: Sequence[int], classes: int) -> Tensor:
    """Weights by rarity, 1 on average over the labels given; a class that does not occur weighs 1."""
    counts = np.bincount(np.asarray(labels), minlength=classes)
    present = counts > 0
    weights = np.where(present, len(labels) / (present.sum() * np.maximum(counts, 1)), 1.0)
    return torch.tensor(weights, dtype=torch.float)


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The summed loss and the weight it is summed over; labels of IGNORED count for nothing."""
    weight = weights.to(logits.device) if weights is not None else None
    loss = nn.functional.cross_entropy(
        logits.float(), labels, weight=weight, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED
    )
    kept = (labels != IGNORED).float()  # not picked out: how many there are, a GPU would have to be asked
    return loss, kept.sum() if weight is None else (weight[labels.clamp(min=0)] * kept).sum()
