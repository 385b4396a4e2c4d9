"""Base class of task heads: encode examples, compute the loss, decode predictions.

Encoding and decoding need no torch, so that exported networks are used without it; losses and heads import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.train import TrainSettings
from danseo.models.base import Answers
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.base import Task
from danseo.training.features import Array, Features, Outputs, pad_rows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from danseo.models.encoder.entity_positions import EntityPositions


class TaskHead(ABC):
    """The head of one task type. Create one per run; it has no weights."""

    auto_class: str = ""
    """AutoModel class with this head, such as AutoModelForTokenClassification; "" for our own head."""
    uses_pooler: bool = False
    """Whether our own head reads the output of the body's pooling layer."""

    reads_entities: bool = False
    """Whether inputs mark two entities."""
    has_eval_loss: bool = True
    """Whether the network computes its loss in evaluation mode too."""

    def __init__(self, task: Task, tokenizer: EncoderTokenizer, config: EncoderSettings, train: TrainSettings) -> None:
        self.task, self.config, self.train = task, config, train
        self.tokenizer = tokenizer.without_normalization() if config.architecture == "official" else tokenizer
        self.class_weights: Tensor | None = None

    @property
    def reads_pos(self) -> bool:
        """Whether the words of an example need POS tags."""
        return False

    @classmethod
    def added_tokens(cls, config: EncoderSettings) -> tuple[str, ...]:
        """Return tokens to add to the vocabulary."""
        return ()

    def init_added_embeddings(self, rows: Tensor) -> None:
        """Initialize the embeddings of added tokens."""

    @property
    def max_length(self) -> int:
        """Maximum input length in tokens, including special ones."""
        return min(self.train.max_length, self.tokenizer.max_length)

    def prepare_loss(self, features: Sequence[Features]) -> None:
        """Compute what the loss needs from the training features, such as class weights."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        """Return the features of examples in order; with_gold adds what the loss needs."""

    def learn_constraints(self, train: Sequence[Any]) -> None:
        """Learn from the training examples what restricts answers."""

    def describe_predictions(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return facts about the last decoded predictions, for scores.json."""
        return {}

    def check_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> None:
        """Refuse features that lost the content of their examples."""

    def describe_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        """Return facts about the features, for the tokenizer report."""
        return {}

    def head_options(self) -> dict[str, Any]:
        """Return options of the AutoModel class, such as the number of labels."""
        return {}

    def build_network_head(self, body: Any) -> nn.Module:
        """Return our own head: forward(states of all tokens, batch with the texts) -> outputs."""
        raise NotImplementedError

    def build_entity_positions(self, tokens: Any) -> EntityPositions | None:
        """Return embeddings to add to those of the tokens, which this module looks up."""
        return None

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Prepare random choices of a training step; receives its number and whole batch."""

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        """Return the head's own arrays of a batch; values of tokens in one row."""
        return {}

    # loss() is called outside the network with its outputs; device-neutral, in float32.
    @abstractmethod
    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the summed loss of the batch, and the weight it is summed over."""

    @abstractmethod
    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """Return the outputs of each record as arrays without padding."""

    @abstractmethod
    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        """Return one prediction per example, in order, with what ensembles need."""

    # Distillation: soft targets are NaN where the teacher gave none.

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        """Return whether an answer of a teacher has more than its label or text."""
        return answer.prediction.probabilities is not None

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        """Return the soft target of a record."""
        raise NotImplementedError

    def collate_soft_targets(self, features: Sequence[Features]) -> Array:
        """Return the soft targets of a batch."""
        return np.stack([record.fields["soft_target"] for record in features])

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        """Return how far the outputs are from the soft targets, summed as in loss()."""
        raise NotImplementedError

    def fit_thresholds(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> None:
        """Fit the thresholds of decoding on gold examples, such as that of no answer."""

    def get_thresholds(self) -> dict[str, float]:
        """Return the fitted thresholds, to be saved with the model."""
        return {}

    def restore_thresholds(self, thresholds: dict[str, float]) -> None:
        """Restore the thresholds of a saved model."""

    def get_state(self) -> dict[str, Any]:
        """Return what else decoding needs as JSON values, to be saved with the model."""
        return {}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Restore what get_state returned."""

    def make_perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs] | None:
        """Return the outputs of a network that knows all gold labels: the best that this tokenizer allows."""
        return None


def log_softmax(array: Any) -> Any:
    """Return the log-softmax along the last axis, in numpy."""
    shifted = array - array.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def make_batch(
    features: Sequence[Features], task_head: TaskHead, with_gold: bool, *, with_segments: bool
) -> dict[str, Array]:
    """Return features as padded arrays for an exported network."""
    ids = pad_rows([record.ids for record in features], task_head.tokenizer.pad_id)
    mask = pad_rows([[1] * len(record) for record in features], 0)
    batch = {"input_ids": ids, "attention_mask": mask, **task_head.collate(features, with_gold)}
    return batch | ({"segments": pad_rows([record.segments for record in features], 0)} if with_segments else {})
