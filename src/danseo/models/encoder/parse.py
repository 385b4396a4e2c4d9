"""Heads and relations of words from encoders: dependency parsing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.errors import DanseoError
from danseo.models.encoder.kind import Kind, log_softmax
from danseo.models.protocol import Answers
from danseo.predictions.evidence import tree_arrays
from danseo.predictions.trees import FLOOR, best_tree
from danseo.records import ParseExample, Prediction
from danseo.tasks.dp import TAGS
from danseo.training.features import IGNORED, Array, Features, Outputs, as_array, padded

if TYPE_CHECKING:
    from torch import Tensor, nn


class Parse(Kind):
    """Words in, a tree of labelled edges out.

    The default scores heads and relations by biaffine layers on the first and last piece of each word, knows nothing
    of POS tags, and takes the best tree with one root. The official architecture reads gold POS tags, puts LSTMs
    between, and takes the best head of each word for itself; its padding positions, which may win as heads there,
    never do here, and words find their pieces by character offsets in both.

    Of a sentence that is too long, the words past the limit hang on the word after them, the last one is the root,
    and what would be the root of the words before them hangs on the first of them.
    """

    head = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.official = self.config.architecture == "official"
        self.index = {label: number for number, label in enumerate(self.task.labels)}

    def encode(self, examples: Sequence[ParseExample], *, with_gold: bool) -> list[Features]:
        sentences = self.pieces.cut([" ".join(example.words) for example in examples])
        limit = self.longest - self.pieces.specials()
        features = []
        for number, (example, sentence) in enumerate(zip(examples, sentences, strict=True)):
            first, last = word_pieces(example.words, sentence.trimmed_offsets())
            kept = int((first < limit).sum())
            fields: dict[str, Any] = {"truncated": len(sentence) > limit, "words": len(example.words)}
            sentence.truncate(limit)
            joined = self.pieces.join(sentence)
            before = _specials_before(joined)
            fields["first"] = (first[:kept] + before).tolist()
            fields["last"] = (np.minimum(last[:kept], limit - 1) + before).tolist()
            if self.official:
                fields["pos"] = [len(TAGS), *last_tags(example)[:kept]]
            features.append(Features(number, joined.ids, joined.type_ids, fields))
            if with_gold:
                fields["heads"], fields["relations"] = self._gold(example, kept)
        return features

    def _gold(self, example: ParseExample, kept: int) -> tuple[list[int], list[int]]:
        """Heads and relation numbers of the kept words; a head that is not among them has no place."""
        positions = enumerate(example.gold[:kept], 1)
        heads = [head if head <= kept and head != position else IGNORED for position, (head, _) in positions]
        relations = [self.index[relation] for _, relation in example.gold[:kept]]
        return heads, [IGNORED if head == IGNORED else r for head, r in zip(heads, relations, strict=True)]

    def build_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.biaffine import OfficialParser, Parser

        network = OfficialParser if self.official else Parser
        return network(body.config.hidden_size, len(self.task.labels), self.config)

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        fill = {"first": 0, "last": 0}
        fill |= {"pos": len(TAGS)} if self.official else {}
        fill |= {"heads": IGNORED, "relations": IGNORED} if with_gold else {}
        batch = {name: padded([f.fields[name] for f in features], value) for name, value in fill.items()}
        return batch | {"words": np.array([len(f.fields["first"]) for f in features])}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.losses import balanced_weights

        relations = [r for f in features for r in f.fields["relations"] if r != IGNORED]
        self.usual_weight = len(relations) / len(features)
        if self.train.class_weights == "balanced":
            self.class_weights = balanced_weights(relations, len(self.task.labels))

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.losses import NOWHERE, position_cross_entropy, weighted_cross_entropy

        arcs, relations, heads = outputs["arcs"], outputs["relations"], batch["heads"]
        smoothing = self.train.label_smoothing
        head_loss, words = position_cross_entropy(arcs, heads, arcs > NOWHERE / 2, smoothing)
        if relations.dim() == 4:  # scored for all heads
            relations = relations.take_along_dim(heads.clamp(min=0)[..., None, None], dim=2).squeeze(2)
        labels = batch["relations"].flatten()
        relation_loss, _ = weighted_cross_entropy(relations.flatten(0, 1), labels, self.class_weights, smoothing)
        return head_loss + relation_loss, words

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        arcs = as_array(outputs["arcs"])
        relations = as_array(outputs["relations"]).argmax(-1).astype(np.int16)
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
            arcs = whole_arcs(log_softmax(output["arcs"].astype(np.float64)), record.fields["words"])
            kept = arcs.astype(np.float16)  # the tree is that of what is kept, so that it can be found again
            relations = self._whole_relations(output["relations"], record.fields["words"])
            heads = arcs.argmax(axis=1) if self.official else best_tree(kept)
            labels = [self.task.labels[r] for r in relations[np.arange(len(heads)), heads]]
            predictions.append(Prediction(example.guid, tuple(zip(heads.tolist(), labels, strict=True))))
            trees.append((kept, relations))
        return Answers(predictions, tree_arrays(trees, self.task.labels) if trees else None)

    def _whole_relations(self, relations: Any, words: int) -> Any:
        """The best relation for each word and head; words past the limit get the most frequent one, the root VP."""
        kept = len(relations)
        whole = np.zeros((words, words + 1), dtype=np.int8)
        whole[:kept, : kept + 1] = relations
        if kept < words:
            whole[:kept, kept + 1] = relations[:, 0]
            whole[-1, 0] = self.index.get("VP", 0)
        return whole

    def perfect_outputs(self, examples: Sequence[ParseExample], features: Sequence[Features]) -> list[Outputs]:
        outputs = []
        for example, record in zip(examples, features, strict=True):
            kept = len(record.fields["first"])
            arcs = np.zeros((kept, kept + 1), dtype=np.float32)
            heads = [head if head <= kept else 0 for head, _ in example.gold[:kept]]
            arcs[np.arange(kept), heads] = 100.0
            names = np.array([self.index[relation] for _, relation in example.gold[:kept]], dtype=np.int16)
            outputs.append({"arcs": arcs, "relations": np.repeat(names[:, None], kept + 1, axis=1)})
        return outputs


def word_pieces(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """The first and the last piece of each word of the joined words; a word without any takes the piece before it.

    That is -1, so the special piece in front, for a word at the beginning.
    """
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    numbers = np.append(np.flatnonzero(spans[:, 1] > spans[:, 0]), -1)  # the last one stands for "before all"
    real = spans[numbers[:-1]]
    first = np.searchsorted(real[:, 1], starts, side="right")
    last = np.searchsorted(real[:, 0], ends, side="left") - 1
    return numbers[np.minimum(first, last)], numbers[last]


def last_tags(example: ParseExample) -> list[int]:
    """The number of the last POS tag of each word: NNG+JKO gives that of JKO."""
    if len(example.pos) != len(example.words):
        raise DanseoError(
            f"{example.guid}: the official dp architecture reads gold POS tags; "
            "add them, or train with head.architecture=default, which needs none"
        )
    tags = [pos.split("+")[-1] for pos in example.pos]
    if unknown := [tag for tag in tags if tag not in TAGS]:
        raise DanseoError(f"{example.guid}: unknown POS tag {unknown[0]!r}; known: {', '.join(TAGS)}")
    return [TAGS.index(tag) for tag in tags]


def _specials_before(joined: Any) -> int:
    """How many special pieces stand before the text; one where there is no text."""
    mask: list[int] = joined.special_tokens_mask
    return mask.index(0) if 0 in mask else 1


def whole_arcs(arcs: Any, words: int) -> Any:
    """Log probabilities of heads for all words; those past the limit form a chain that carries the others."""
    kept = len(arcs)
    whole = np.full((words, words + 1), FLOOR)
    whole[:kept, : kept + 1] = np.maximum(arcs, FLOOR)
    if kept < words:
        whole[:kept, kept + 1], whole[:kept, 0] = whole[:kept, 0], FLOOR
        tail = np.arange(kept, words)
        whole[tail, np.where(tail + 1 < words, tail + 2, 0)] = 0.0
    return whole
