"""Tagging head: a label per token becomes a tag per character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead, log_softmax
from danseo.models.encoder.heads.official_tagging import decode_official_tags, encode_official
from danseo.models.encoder.tokenizer import TokenizedText
from danseo.records import Prediction
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.decoding import (
    Array,
    compute_character_probabilities,
    decode_texts,
    find_token_starts,
    spread_to_characters,
)
from danseo.training.features import IGNORED, Features, Outputs, split_row

if TYPE_CHECKING:
    from torch import Tensor, nn

CERTAIN = 40.0  # a logit that leaves nothing to the others


class TaggingHead(TaskHead):
    """A tag for every character of a sentence, from a label for every token.

    The predictions hold tags only. Beside them decode gives a table for every example (characters × task.labels,
    float16; zeros where no token covers the character) and where its tokens start: the run saves both, and decode_texts
    makes the same answers of them again, alone or averaged with those of other models. KLUE's own alignment is an
    exception: its answers are what the tokens say, legal or not.
    """

    auto_class = "AutoModelForTokenClassification"
    decodes = "tokens"
    """Unit of decoding: tokens, or characters in models without this state."""

    @property
    def official(self) -> bool:
        """Whether KLUE's own alignment is used."""
        return self.config.architecture == "official"

    def head_options(self) -> dict[str, Any]:
        labels = dict(enumerate(self.task.labels))
        return {"num_labels": len(labels), "id2label": labels, "label2id": {v: k for k, v in labels.items()}}

    def build_network_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads.pooling import TokenHead

        return TokenHead(body.config.hidden_size, len(self.task.labels))

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_official(examples, self) if self.official else encode_windows(examples, self)
        if with_gold:
            for record, labels in zip(features, self._token_labels(examples, features), strict=True):
                record.fields["labels"] = labels
        return features

    def _token_labels(self, examples: Sequence[Any], features: Sequence[Features]) -> Iterator[Array]:
        """Yield the labels of tokens: those of their characters; others are IGNORED, officially O."""
        index = {label: number for number, label in enumerate(self.task.labels)}
        nowhere = index["O"] if self.official else IGNORED
        for record in features:
            positions = record.fields["positions"]
            numbers = np.array([index[tag] for tag in examples[record.example].gold])
            yield np.where(positions >= 0, numbers[positions], nowhere)

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        return {"labels": np.concatenate([f.fields["labels"] for f in features])} if with_gold else {}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        import torch

        from danseo.models.encoder.heads.losses import compute_balanced_weights

        classes = len(self.task.labels)
        weights = torch.ones(classes)
        labels = np.concatenate([f.fields["labels"] for f in features])
        labels = labels[labels != IGNORED]
        if self.config.class_weights == "balanced":
            weights = compute_balanced_weights(labels, classes)
        weights[self.task.labels.index("O")] *= self.config.outside_weight
        self.class_weights = None if bool((weights == 1).all()) else weights

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.heads.losses import weighted_cross_entropy

        smoothing = self.config.label_smoothing
        return weighted_cross_entropy(outputs["logits"], batch["labels"], self.class_weights, smoothing)

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        return answer.row is not None and bool(((answer.row > 0) & (answer.row < 1)).any())  # not 1 for its answer

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        """Return the distribution of the first character of each token."""
        targets = np.full((len(record), len(self.task.labels)), np.nan, dtype=np.float16)
        if answer and answer.row is not None:
            positions = record.fields["positions"]
            targets[positions >= 0] = answer.row[positions[positions >= 0]]
            targets[~targets.any(axis=1)] = np.nan  # the teacher has no token there
        return targets

    def collate_soft_targets(self, features: Sequence[Features]) -> Array:
        return np.concatenate([record.fields["soft_target"] for record in features])

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        from danseo.models.encoder.heads.losses import soft_cross_entropy

        return soft_cross_entropy(outputs["logits"], batch["soft_target"], self.train.distill_temperature)

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        return [{"logits": rows} for rows in split_row(outputs["logits"], features)]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        decode = self._decode_official if self.official else self._decode_windows
        answers, tables, starts = decode(examples, features, outputs)
        predictions = [Prediction(example.guid, answer) for example, answer in zip(examples, answers, strict=True)]
        kept = starts if self.decodes == "tokens" else None
        return Answers(predictions, self.task.type.pack_arrays(self.task, tables, kept), tables)

    def get_state(self) -> dict[str, Any]:
        return {"decodes": self.decodes}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.decodes = state.get("decodes", "characters")

    def _decode_windows(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[tuple[str, ...]], list[Array], list[Array]]:
        tables, covered, starts = self._characters(examples, features, outputs)
        texts = [example.text for example in examples]
        units = starts if self.decodes == "tokens" else None
        return decode_texts(texts, tables, covered, self.task.labels, units), tables, starts

    def _characters(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Return the distributions of all characters, which characters have one, and where tokens start."""
        if not features:
            return [], [], []
        ends = np.cumsum([len(example.text) for example in examples])
        starts = np.concatenate([[0], ends[:-1]])
        offsets = np.concatenate([record.fields["offsets"] + starts[record.example] for record in features])
        tokens = np.exp(log_softmax(np.concatenate([output["logits"] for output in outputs])))
        table, covered, starts = compute_character_probabilities(tokens, offsets, int(ends[-1]), self.task.labels)
        first, second, third = (np.split(each, ends[:-1]) for each in (table.astype(np.float16), covered, starts))
        return first, second, third

    def _decode_official(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[tuple[str, ...]], list[Array], list[Array]]:
        answers, tables, starts = [], [], []
        for example, record, output in zip(examples, features, outputs, strict=True):
            tokens = np.exp(log_softmax(output["logits"]))
            table = spread_to_characters(tokens, record.fields["owners"], record.fields["firsts"], self.task.labels)
            tables.append(table.astype(np.float16))
            starts.append(find_token_starts(record.fields["owners"], record.fields["firsts"]))
            answers.append(decode_official_tags(tokens.argmax(axis=1), record, example.text, self.task.labels))
        return answers, tables, starts

    def make_perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs]:
        """Return certain gold labels; an entity whose B- has no token is left out."""
        known, outside = np.arange(len(self.task.labels)), self.task.labels.index("O")
        outputs: list[Outputs] = []
        for labels in self._token_labels(examples, features):
            logits = np.where(labels[:, None] == known, CERTAIN, 0.0).astype(np.float32)
            logits[:, outside] = np.maximum(logits[:, outside], CERTAIN - 1)
            outputs.append({"logits": logits})
        return outputs


def encode_windows(examples: Sequence[Any], task_head: TaskHead) -> list[Features]:
    """Return inputs with the characters of each token; long sentences have overlapping windows."""
    limit = task_head.max_length - task_head.tokenizer.count_special_tokens()
    features = []
    for number, sentence in enumerate(task_head.tokenizer.tokenize([example.text for example in examples])):
        windows = sentence.windows(limit, limit // 2)
        for position, window in enumerate(windows):
            overlaps = (limit // 2 * (position > 0), limit // 2 * (position < len(windows) - 1))
            features.append(_window_features(number, window, overlaps, task_head))
    return features


def _window_features(number: int, window: TokenizedText, overlaps: tuple[int, int], task_head: TaskHead) -> Features:
    """Return the features of a window; overlapping windows each decide half of the overlap."""
    joined = task_head.tokenizer.add_special_tokens(window)
    inner = np.flatnonzero(np.array(joined.special_tokens_mask) == 0)
    left, right = overlaps[0] // 2, len(inner) - (overlaps[1] - overlaps[1] // 2)
    offsets = np.zeros((len(joined.ids), 2), dtype=np.int64)
    # the window's own offsets, since joining trims them once more with RoBERTa's processor
    found = window.trimmed_offsets()
    found = keep_first_tokens(found, window.text) if task_head.config.label_first_token else found
    offsets[inner[left:right]] = np.array(found).reshape(-1, 2)[left:right]
    positions = np.where(offsets[:, 0] < offsets[:, 1], offsets[:, 0], -1)
    return Features(
        number, joined.ids, joined.type_ids, {"offsets": offsets, "positions": positions, "truncated": False}
    )


def keep_first_tokens(offsets: Sequence[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Assign all characters of a word to its first token; other tokens get none."""
    found: list[tuple[int, int]] = []
    reached = 0
    for start, end in offsets:
        is_first = start < end and start >= reached and (start == 0 or text[start - 1].isspace())
        if is_first:
            reached = start + len(text[start:].split(maxsplit=1)[0])
        found.append((start, reached) if is_first else (0, 0))
    return found
