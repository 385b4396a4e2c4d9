"""Tags from encoders: entities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.encoder.kind import Kind, log_softmax
from danseo.models.encoder.pieces import Cut
from danseo.models.encoder.tag_official import encode_official, official_tags
from danseo.models.protocol import Answers
from danseo.predictions.evidence import tag_arrays
from danseo.predictions.viterbi import Array, character_probabilities, decode_texts, spread
from danseo.records import Prediction
from danseo.training.features import IGNORED, Features, Outputs, as_array, padded

if TYPE_CHECKING:
    from torch import Tensor, nn

CERTAIN = 40.0  # a logit that leaves nothing to the others


class Tag(Kind):
    """A sentence in, a tag for every character out, through a label for every piece.

    The predictions hold tags only. Beside them decode gives a table for every example (characters × task.labels,
    float16; zeros where no piece covers the character): the run saves them, and decode_texts makes the same answers
    of them again, alone or averaged with those of other models. KLUE's own alignment is an exception: its answers are
    what the pieces say, legal or not.
    """

    head = "AutoModelForTokenClassification"

    @property
    def official(self) -> bool:
        """Whether KLUE's own alignment is asked for."""
        return self.config.architecture == "official"

    def head_options(self) -> dict[str, Any]:
        labels = dict(enumerate(self.task.labels))
        return {"num_labels": len(labels), "id2label": labels, "label2id": {v: k for k, v in labels.items()}}

    def build_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads import PieceHead

        return PieceHead(body.config.hidden_size, len(self.task.labels))

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        features = encode_official(examples, self) if self.official else encode_windows(examples, self)
        if with_gold:
            for record, labels in zip(features, self._piece_labels(examples, features), strict=True):
                record.fields["labels"] = labels
        return features

    def _piece_labels(self, examples: Sequence[Any], features: Sequence[Features]) -> Iterator[Array]:
        """Labels of the pieces: those of the characters at their positions; without a place IGNORED, officially O."""
        index = {label: number for number, label in enumerate(self.task.labels)}
        nowhere = index["O"] if self.official else IGNORED
        for record in features:
            positions = record.fields["positions"]
            numbers = np.array([index[tag] for tag in examples[record.example].gold])
            yield np.where(positions >= 0, numbers[positions], nowhere)

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        return {"labels": padded([f.fields["labels"] for f in features], IGNORED)} if with_gold else {}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        import torch

        from danseo.models.encoder.losses import balanced_weights

        classes = len(self.task.labels)
        weights = torch.ones(classes)
        labels = np.concatenate([f.fields["labels"] for f in features])
        labels = labels[labels != IGNORED]
        if self.train.class_weights == "balanced":
            weights = balanced_weights(labels, classes)
        weights[self.task.labels.index("O")] *= self.train.outside_weight
        self.class_weights = None if bool((weights == 1).all()) else weights
        self.usual_weight = float(weights[labels].sum()) / len(features)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.losses import weighted_cross_entropy

        labels = batch["labels"]
        logits = outputs["logits"][:, : labels.shape[1]].flatten(0, 1)
        return weighted_cross_entropy(logits, labels.flatten(), self.class_weights, self.train.label_smoothing)

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        logits = as_array(outputs["logits"])
        return [{"logits": rows[: len(record)]} for rows, record in zip(logits, features, strict=True)]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        decode = self._decode_official if self.official else self._decode_windows
        answers, tables = decode(examples, features, outputs)
        predictions = [Prediction(example.guid, answer) for example, answer in zip(examples, answers, strict=True)]
        return Answers(predictions, tag_arrays(tables, self.task.labels), tables)

    def _decode_windows(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[tuple[str, ...]], list[Array]]:
        tables, covered = self._characters(examples, features, outputs)
        texts = [example.text for example in examples]
        return decode_texts(texts, tables, covered, self.task.labels), tables

    def _characters(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[Array], list[Array]]:
        """Distributions of every character, and which characters have one; all sentences at once."""
        if not features:
            return [], []
        ends = np.cumsum([len(example.text) for example in examples])
        starts = np.concatenate([[0], ends[:-1]])
        offsets = np.concatenate([record.fields["offsets"] + starts[record.example] for record in features])
        pieces = np.exp(log_softmax(np.concatenate([output["logits"] for output in outputs])))
        table, covered = character_probabilities(pieces, offsets, int(ends[-1]), self.task.labels)
        return np.split(table.astype(np.float16), ends[:-1]), np.split(covered, ends[:-1])

    def _decode_official(
        self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> tuple[list[tuple[str, ...]], list[Array]]:
        answers, tables = [], []
        for example, record, output in zip(examples, features, outputs, strict=True):
            pieces = np.exp(log_softmax(output["logits"]))
            table = spread(pieces, record.fields["owners"], record.fields["firsts"], self.task.labels)
            tables.append(table.astype(np.float16))
            answers.append(official_tags(pieces.argmax(axis=1), record, example.text, self.task.labels))
        return answers, tables

    def perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs]:
        """Sure of every gold label, but leaving out an entity whose B- no piece shows: its I- alone is not legal."""
        known, outside = np.arange(len(self.task.labels)), self.task.labels.index("O")
        outputs: list[Outputs] = []
        for labels in self._piece_labels(examples, features):
            logits = np.where(labels[:, None] == known, CERTAIN, 0.0).astype(np.float32)
            logits[:, outside] = np.maximum(logits[:, outside], CERTAIN - 1)
            outputs.append({"logits": logits})
        return outputs


def encode_windows(examples: Sequence[Any], kind: Kind) -> list[Features]:
    """Inputs with the characters that each piece decides; a sentence beyond the limit has several that overlap."""
    limit = kind.longest - kind.pieces.specials()
    features = []
    for number, sentence in enumerate(kind.pieces.cut([example.text for example in examples])):
        windows = sentence.windows(limit, limit // 2)
        for position, window in enumerate(windows):
            overlaps = (limit // 2 * (position > 0), limit // 2 * (position < len(windows) - 1))
            features.append(_window_features(number, window, overlaps, kind))
    return features


def _window_features(number: int, window: Cut, overlaps: tuple[int, int], kind: Kind) -> Features:
    """Features of a window that shares some pieces with those to its left and right; each decides its half."""
    joined = kind.pieces.join(window)
    inner = np.flatnonzero(np.array(joined.special_tokens_mask) == 0)
    left, right = overlaps[0] // 2, len(inner) - (overlaps[1] - overlaps[1] // 2)
    offsets = np.zeros((len(joined.ids), 2), dtype=np.int64)
    # the window's own offsets, since joining trims them once more with RoBERTa's processor
    found = window.trimmed_offsets()
    found = first_of_words(found, window.text) if kind.config.pieces == "first" else found
    offsets[inner[left:right]] = np.array(found).reshape(-1, 2)[left:right]
    positions = np.where(offsets[:, 0] < offsets[:, 1], offsets[:, 0], -1)
    return Features(
        number, joined.ids, joined.type_ids, {"offsets": offsets, "positions": positions, "truncated": False}
    )


def first_of_words(offsets: Sequence[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """The first piece of a word, by spaces, stands for all of it; the others have no place."""
    found: list[tuple[int, int]] = []
    reached = 0
    for start, end in offsets:
        is_first = start < end and start >= reached and (start == 0 or text[start - 1].isspace())
        if is_first:
            reached = start + len(text[start:].split(maxsplit=1)[0])
        found.append((start, reached) if is_first else (0, 0))
    return found
