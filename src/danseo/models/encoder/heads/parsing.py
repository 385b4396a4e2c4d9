"""Parsing head: the head and the relation of every word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.errors import DanseoError
from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead, log_softmax
from danseo.records import ParseExample, Prediction
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasks.klue.dp import TAGS
from danseo.tasktypes.decoding import FLOOR, find_best_tree
from danseo.training.features import IGNORED, Features, Outputs, pad_rows, to_array

if TYPE_CHECKING:
    from torch import Tensor, nn


class ParsingHead(TaskHead):
    """A dependency tree with labelled edges.

    The default scores heads and relations by biaffine layers on the first and last token of each word, knows nothing
    of POS tags, and takes the best tree with one root. The official architecture reads gold POS tags, puts LSTMs
    between, and takes the best head of each word for itself; its padding positions, which may win as heads there,
    never do here, and words find their tokens by character offsets in both.

    Of a sentence that is too long, the words past the limit hang on the word after them, the last one is the root,
    and what would be the root of the words before them hangs on the first of them.
    """

    auto_class = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.official = self.config.architecture == "official"
        self.index = {label: number for number, label in enumerate(self.task.labels)}

    @property
    def reads_pos(self) -> bool:
        """Whether the official architecture is used: it reads gold POS tags."""
        return self.official

    def encode(self, examples: Sequence[ParseExample], *, with_gold: bool) -> list[Features]:
        sentences = self.tokenizer.tokenize([" ".join(example.words) for example in examples])
        limit = self.max_length - self.tokenizer.count_special_tokens()
        features = []
        for number, (example, sentence) in enumerate(zip(examples, sentences, strict=True)):
            first, last = find_word_tokens(example.words, sentence.trimmed_offsets())
            kept = int((first < limit).sum())
            fields: dict[str, Any] = {"truncated": len(sentence) > limit, "words": len(example.words)}
            sentence.truncate(limit)
            joined = self.tokenizer.add_special_tokens(sentence)
            before = _specials_before(joined)
            fields["first"] = (first[:kept] + before).tolist()
            fields["last"] = (np.minimum(last[:kept], limit - 1) + before).tolist()
            if self.official:
                fields["pos"] = [len(TAGS), *encode_last_tags(example)[:kept]]
            features.append(Features(number, joined.ids, joined.type_ids, fields))
            if with_gold:
                fields["heads"], fields["relations"] = self._gold(example, kept)
        return features

    def _gold(self, example: ParseExample, kept: int) -> tuple[list[int], list[int]]:
        """Return heads and relations of the kept words; IGNORED for a head that is not kept."""
        positions = enumerate(example.gold[:kept], 1)
        heads = [head if head <= kept and head != position else IGNORED for position, (head, _) in positions]
        relations = [self.index[relation] for _, relation in example.gold[:kept]]
        return heads, [IGNORED if head == IGNORED else r for head, r in zip(heads, relations, strict=True)]

    def build_network_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads.biaffine import OfficialParser, Parser

        network = OfficialParser if self.official else Parser
        return network(body.config.hidden_size, len(self.task.labels), self.config)

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Any]:
        fill: dict[str, int] = {"first": 0, "last": 0}
        fill |= {"pos": len(TAGS)} if self.official else {}
        fill |= {"heads": IGNORED, "relations": IGNORED} if with_gold else {}
        batch = {name: pad_rows([f.fields[name] for f in features], value) for name, value in fill.items()}
        counts = [len(f.fields["first"]) for f in features]
        known = {"word_counts": tuple(counts)} if with_gold and self.official else {}  # known without asking a GPU
        return batch | {"words": np.array(counts)} | known

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.heads.losses import compute_balanced_weights

        relations = [r for f in features for r in f.fields["relations"] if r != IGNORED]
        if self.config.class_weights == "balanced":
            self.class_weights = compute_balanced_weights(relations, len(self.task.labels))

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.heads.losses import NOWHERE, position_cross_entropy

        arcs, smoothing = outputs["arcs"], self.config.label_smoothing
        head_loss, words = position_cross_entropy(arcs, batch["heads"], arcs > NOWHERE / 2, smoothing)
        return head_loss + self._relation_loss(outputs, batch), words

    def _relation_loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> Tensor:
        from danseo.models.encoder.heads.losses import weighted_cross_entropy

        relations, heads = outputs["relations"], batch["heads"]
        if relations.dim() == 4:  # scored for all heads
            relations = relations.take_along_dim(heads.clamp(min=0)[..., None, None], dim=2).squeeze(2)
        labels = batch["relations"].flatten()
        smoothing = self.config.label_smoothing
        return weighted_cross_entropy(relations.flatten(0, 1), labels, self.class_weights, smoothing)[0]

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        return answer.row is not None

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Any:
        """Return the distribution of heads of the kept words."""
        kept = len(record.fields["first"])
        if answer is None or answer.row is None:
            return np.full((kept, kept + 1), np.nan, dtype=np.float32)
        return np.exp(answer.row[0][:kept, : kept + 1].astype(np.float32))

    def collate_soft_targets(self, features: Sequence[Features]) -> Any:
        size = max(len(record.fields["first"]) for record in features)
        batch = np.full((len(features), size, size + 1), np.nan, dtype=np.float32)
        for row, record in zip(batch, features, strict=True):
            kept = len(record.fields["first"])
            row[:kept] = 0.0
            row[:kept, : kept + 1] = record.fields["soft_target"]
        return batch

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        """Return the loss of the heads; a teacher names one relation per head, so relations are those of the labels."""
        from danseo.models.encoder.heads.losses import soft_cross_entropy

        arcs = soft_cross_entropy(outputs["arcs"], batch["soft_target"], self.train.distill_temperature)
        return arcs + self._relation_loss(outputs, batch)

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        arcs = to_array(outputs["arcs"])
        relations = to_array(outputs["relations"]).argmax(-1).astype(np.int16)
        sizes = [len(f.fields["first"]) for f in features]
        return [
            {"arcs": arcs[k, :n, : n + 1].copy(), "relations": relations[k, :n, : n + 1].copy()}
            for k, n in enumerate(sizes)
        ]

    def decode(
        self, examples: Sequence[ParseExample], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> Answers:
        trees, predictions = [], []
        for example, record, output in zip(examples, features, outputs, strict=True):
            arcs = extend_arcs(log_softmax(output["arcs"].astype(np.float64)), record.fields["words"])
            kept = arcs.astype(np.float16)  # the tree is that of what is kept, so that it can be found again
            relations = self._extend_relations(output["relations"], record.fields["words"])
            heads = arcs.argmax(axis=1) if self.official else find_best_tree(kept)
            labels = [self.task.labels[r] for r in relations[np.arange(len(heads)), heads]]
            predictions.append(Prediction(example.guid, tuple(zip(heads.tolist(), labels, strict=True))))
            trees.append((kept, relations))
        return Answers(predictions, self.task.type.pack_arrays(self.task, trees) if trees else None)

    def _extend_relations(self, relations: Any, words: int) -> Any:
        """Return the best relation per word and head; words past the limit get the most frequent one."""
        kept = len(relations)
        whole = np.zeros((words, words + 1), dtype=np.int8)
        whole[:kept, : kept + 1] = relations
        if kept < words:
            whole[:kept, kept + 1] = relations[:, 0]
            whole[-1, 0] = self.index.get("VP", 0)
        return whole

    def make_perfect_outputs(self, examples: Sequence[ParseExample], features: Sequence[Features]) -> list[Outputs]:
        outputs = []
        for example, record in zip(examples, features, strict=True):
            kept = len(record.fields["first"])
            arcs = np.zeros((kept, kept + 1), dtype=np.float32)
            heads = [head if head <= kept else 0 for head, _ in example.gold[:kept]]
            arcs[np.arange(kept), heads] = 100.0
            names = np.array([self.index[relation] for _, relation in example.gold[:kept]], dtype=np.int16)
            outputs.append({"arcs": arcs, "relations": np.repeat(names[:, None], kept + 1, axis=1)})
        return outputs


def find_word_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Return the first and last token of each word; a word without tokens takes the token before it.

    That is -1, so the special token in front, for a word at the beginning.
    """
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    numbers = np.append(np.flatnonzero(spans[:, 1] > spans[:, 0]), -1)  # the last one means "before all"
    real = spans[numbers[:-1]]
    first = np.searchsorted(real[:, 1], starts, side="right")
    last = np.searchsorted(real[:, 0], ends, side="left") - 1
    return numbers[np.minimum(first, last)], numbers[last]


def encode_last_tags(example: ParseExample) -> list[int]:
    """Return the index of the last POS tag of each word: NNG+JKO gives JKO."""
    if len(example.pos) != len(example.words):
        raise DanseoError(
            f"{example.guid}: the official dp architecture reads gold POS tags; "
            "add them, or train with encoder.architecture=default, which needs none"
        )
    tags = [pos.split("+")[-1] for pos in example.pos]
    if unknown := [tag for tag in tags if tag not in TAGS]:
        raise DanseoError(f"{example.guid}: unknown POS tag {unknown[0]!r}; known: {', '.join(TAGS)}")
    return [TAGS.index(tag) for tag in tags]


def _specials_before(joined: Any) -> int:
    """Return the number of special tokens before the text; one if there is no text."""
    mask: list[int] = joined.special_tokens_mask
    return mask.index(0) if 0 in mask else 1


def extend_arcs(arcs: Any, words: int) -> Any:
    """Return log-probabilities of heads for all words; words past the limit form a chain."""
    kept = len(arcs)
    whole = np.full((words, words + 1), FLOOR)
    whole[:kept, : kept + 1] = np.maximum(arcs, FLOOR)
    if kept < words:
        whole[:kept, kept + 1], whole[:kept, 0] = whole[:kept, 0], FLOOR
        tail = np.arange(kept, words)
        whole[tail, np.where(tail + 1 < words, tail + 2, 0)] = 0.0
    return whole
