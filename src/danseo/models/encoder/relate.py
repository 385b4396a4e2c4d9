"""Relations from encoders: two entities of a sentence shown in one of many ways, and one label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config import HeadConfig, TrainConfig
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.models.encoder.borders import (
    Sentence,
    continuation_prefix,
    continued,
    cut_sides,
    marked_officially,
)
from danseo.models.encoder.classify import Classify
from danseo.models.encoder.marking import Variant, between_markers
from danseo.models.encoder.pieces import Pieces
from danseo.models.encoder.shown import check_shown
from danseo.models.encoder.windows import Marked, fit_window, head_and_tail, level
from danseo.models.protocol import Answers
from danseo.predictions.type_mask import TypeMask, learned_mask, type_pair
from danseo.records import RelationExample
from danseo.runs.scores import finite
from danseo.scoring.score import measure
from danseo.tasks.relation import TYPES
from danseo.tasks.task import Task
from danseo.training.features import Array, Features, Outputs

if TYPE_CHECKING:
    from torch import Tensor

_NOISE = 0.1  # of the spread of the embeddings, so that markers of one type do not stay the same


class Relate(Classify):
    """A sentence that shows its subject and object in, one label out."""

    reads_entities = True

    def __init__(self, task: Task, pieces: Pieces, config: HeadConfig, train: TrainConfig | None = None) -> None:
        super().__init__(task, pieces, config, train)
        self.variant = variant_of(config)
        self.prefix = continuation_prefix(pieces)
        forms = [self.variant.form(role, type) for role in (0, 1) for type in TYPES]
        self._added = frozenset(self.variant.added(TYPES))
        self._texts = {text for form in forms for text in (form.opening, form.closing)}
        self._kept: dict[str, list[int]] = {}
        self.mask: TypeMask | None = None
        self.unmasked: Answers | None = None
        is_plain = self.variant.name == "klue" and not config.query and config.pooling in ("auto", "cls")
        if self._official and not is_plain:
            raise DanseoError(
                "the official architecture has markers = klue, pooling = cls and no query; leave architecture out"
            )

    @classmethod
    def added_pieces(cls, config: HeadConfig) -> tuple[str, ...]:
        return tuple(variant_of(config).added(TYPES))

    def start_rows(self, rows: Tensor) -> None:
        """New markers begin as the mean of the pieces of their type's word, 단체 for ORG, or their role's, with noise.

        Those of the official architecture stay as the library makes them: at random, like the rows that are there.
        """
        import torch

        if self._official:
            return
        for token, word in self.variant.added(TYPES).items():
            pieces = [id for id in self.pieces.cut([word])[0].ids if id != self.pieces.unknown]
            if pieces:
                found = rows.data[pieces].float()
                noise = torch.randn(rows.shape[1]) * found.std() * _NOISE
                rows.data[self.pieces.id(token)] = (found.mean(dim=0) + noise).to(rows.dtype)

    # Labels that the types allow

    def learn_types(self, train: Sequence[Any]) -> None:
        if self.config.type_mask != "none":
            config, is_wide = self.config, self.config.type_prior == "wide"
            least, strength = config.type_count, config.type_bias
            self.mask = learned_mask(self.task, train, least=least, is_widened=is_wide, strength=strength)

    def admitted(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return logits.float() + batch["bias"] if "bias" in batch else logits

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        plain = super().decode(examples, features, outputs)
        if self.mask is None:
            return plain
        self.unmasked = plain
        biases = {pair: self.mask.bias(pair) for pair in {type_pair(example) for example in examples}}
        masked = [
            {"logits": output["logits"].astype(np.float64) + biases[type_pair(example)]}
            for example, output in zip(examples, outputs, strict=True)
        ]
        return super().decode(examples, features, masked)

    def answer_facts(self, examples: Sequence[Any]) -> dict[str, Any]:
        """What the answers last decoded would score without the mask."""
        if self.mask is None or self.unmasked is None:
            return {}
        found = {
            half: {id_: finite(s.value()) for id_, s in measure(self.task, *self._half(examples, half)).items()}
            for half in ("report", "dev")
        }
        return {"without_type_mask": found, "gold_outside_mask": len(self.mask.outside(examples))}

    def _half(self, examples: Sequence[Any], half: str) -> tuple[list[Any], list[Any]]:
        assert self.unmasked is not None
        positions = in_half(self.task, examples, half)
        return [examples[position] for position in positions], [self.unmasked[position] for position in positions]

    def extra_state(self) -> dict[str, Any]:
        return {"type_mask": self.mask.as_dict()} if self.mask else {}

    def restore_state(self, state: dict[str, Any]) -> None:
        if kept := state.get("type_mask"):
            self.mask = TypeMask(self.task.labels, self.task.nothing, **kept)

    # From examples to pieces

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        marked = self._mark_officially(examples) if self._official else self._mark(examples)
        labels = {label: number for number, label in enumerate(self.task.labels)}
        features = []
        for number, (example, sentence) in enumerate(zip(examples, marked, strict=True)):
            record = self._whole(number, example, sentence)
            record.fields["types"] = type_pair(example)
            if with_gold:
                record.fields["label"] = labels[example.gold]
            features.append(record)
        return features

    @property
    def _official(self) -> bool:
        return self.config.architecture == "official"

    def _whole(self, number: int, example: RelationExample, sentence: Marked) -> Features:
        """The input: what goes before the sentence, and what of the sentence fits."""
        has_front = self.variant.has_front
        frame = self.pieces.frame(pair=has_front)
        room = self.longest - len(frame)
        front, spans, is_cut = self._front(example, room // 2)
        sentence = self._fitted(example, sentence, room - len(front))
        sentence.mode = "names cut" if is_cut and sentence.mode == "whole" else sentence.mode
        ids, segments = frame.filled([front, sentence.ids] if has_front else [sentence.ids])
        start = len(ids) - len(frame.after) - len(sentence.ids)
        positions = tuple(position + start if position >= 0 else -1 for position in sentence.positions)
        inner = tuple((positions[k] + sentence.widths[k], positions[k + 1]) for k in (0, 2))
        fields = {
            "truncated": sentence.mode != "whole",
            "window": sentence.mode,
            "markers": positions,
            "starts": (positions[0], positions[2]),
            "spans": tuple((a, b) if a < b else (a - 1, a) for a, b in inner),  # a hidden one is its marker
        }
        if spans:
            moved = tuple((a + len(frame.before), b + len(frame.before)) for a, b in spans)
            fields |= {"spans": moved, "starts": tuple(a for a, _ in moved)}
        return Features(number, ids, segments, fields)

    def _fitted(self, example: RelationExample, sentence: Marked, room: int) -> Marked:
        """The sentence within its room: all of it, what surrounds the entities, or (official) its beginning."""
        if room < max(sum(sentence.widths), 1):
            raise DanseoError(
                f"max_length {self.longest} has no room for the entity markers of {example.guid}; raise it"
            )
        if self._official and len(sentence.ids) > room:
            kept = [position if position < room else -1 for position in sentence.positions]
            return Marked(sentence.ids[:room], kept, sentence.widths, "right")
        return fit_window(sentence, room, self.gap)

    def _front(self, example: RelationExample, most: int) -> tuple[list[int], list[tuple[int, int]], bool]:
        """The pieces before the sentence, where concat names the entities in them, and whether names had to be cut."""
        if not self.variant.has_front:
            return [], [], False
        words = [self._pieces(entity.word) for entity in (example.subject, example.object)]
        times = (self.variant.question and self.variant.name != "entity_mask") + (self.variant.name == "concat")
        fixed = sum(map(len, self._front_parts(example, [[], []])))
        is_cut = fixed + times * sum(map(len, words)) > most
        if is_cut:
            if times and most - fixed < 2 * times:
                raise DanseoError(f"max_length {self.longest} has no room to name the entities of {example.guid}")
            longest = level([len(word) for word in words] * times, max(0, most - fixed)) if times else 0
            words = [head_and_tail(word, longest, self.gap) for word in words]
        ids = [id for part in self._front_parts(example, words) for id in part]
        if self.variant.name != "concat":
            return ids, [], is_cut
        second = len(ids) - len(words[1])
        return ids, [(second - 1 - len(words[0]), second - 1), (second, len(ids))], is_cut

    def _front_parts(self, example: RelationExample, words: Sequence[list[int]]) -> list[list[int]]:
        separator = [int(self.pieces.tokenizer.sep_token_id)]
        named = [words[0], separator, words[1]] if self.variant.name == "concat" else []
        if not self.variant.question:
            return named
        forms = self.variant.forms(example)
        asked = []
        for form, word, particle in zip(forms, words, ("와", "의"), strict=True):
            asked += [self._opening(form.opening), [] if form.hides else word, self._closing(form.closing)]
            asked.append(self._pieces(particle, continues=True))
        return [*asked, self._pieces("관계"), *([separator] if named else []), *named]

    def _mark(self, examples: Sequence[RelationExample]) -> list[Marked]:
        """Cut as if unmarked, and at entity borders where markers stand."""
        whole = self.variant.name == "concat"
        cuts = self.pieces.cut([example.text for example in examples])
        sentences = [Sentence(c, e, self.prefix, whole=whole) for c, e in zip(cuts, examples, strict=True)]
        sides = cut_sides({side for sentence in sentences for side in sentence.sides()}, self.pieces)
        return [
            sentence.marked(self.markers(example), sides, hides=self.variant.name == "entity_mask")
            for sentence, example in zip(sentences, examples, strict=True)
        ]

    def _mark_officially(self, examples: Sequence[RelationExample]) -> list[Marked]:
        cuts = iter(self.pieces.cut([part for example in examples for part in between_markers(example)]))
        return [
            marked_officially([next(cuts) for _ in range(5)], example, self.markers(example), self.pieces)
            for example in examples
        ]

    def markers(self, example: RelationExample) -> list[list[int]]:
        """The pieces before and after the subject, and before and after the object."""
        forms = self.variant.forms(example)
        return [part for f in forms for part in (self._opening(f.opening), self._closing(f.closing))]

    def _opening(self, text: str) -> list[int]:
        return self._pieces(text)

    def _closing(self, text: str) -> list[int]:
        """As it reads right after a word; BERT never continues a word with punctuation."""
        return self._pieces(text, continues=not self.prefix)

    def _pieces(self, text: str, *, continues: bool = False) -> list[int]:
        """The pieces of a marker or a short text, cut once."""
        key = f"{text}\0{continues}"
        if key not in self._kept:
            self._kept[key] = self._cut_short(text, continues=continues)
        return self._kept[key]

    def _cut_short(self, text: str, *, continues: bool) -> list[int]:
        if not text:
            return []
        if text in self._added:
            found = self.pieces.id(text)
            if found == self.pieces.unknown:
                raise DanseoError(f"the tokenizer lacks the entity marker {text}; train the run anew")
            return [found]
        cut = self.pieces.cut([text])[0]
        if self.pieces.unknown in cut.ids and text in self._texts:
            raise DanseoError(f"the tokenizer does not know {text}, so it cannot mark entities; use other head.markers")
        return continued(cut.ids, cut.tokens, self.pieces) if continues else cut.ids

    @property
    def gap(self) -> int:
        """The piece that stands for what was left out."""
        found = self.pieces.id("…")
        return int(self.pieces.tokenizer.sep_token_id) if found == self.pieces.unknown else found

    # What training is told, and told to look at

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        batch = super().collate(features, with_gold)
        if with_gold and self.mask and self.config.type_mask == "training":
            batch["bias"] = np.array([self._bias(record) for record in features], dtype=np.float32)
        if self.head:
            return batch
        positions = {key: np.array([record.fields[key] for record in features]) for key in ("starts", "spans")}
        return {**batch, **positions}

    def _bias(self, record: Features) -> Array:
        """What the types allow; nothing is forbidden to an example whose gold would be, else its loss had no end."""
        assert self.mask is not None
        bias = self.mask.bias(record.fields["types"])
        return bias if np.isfinite(bias[record.fields["label"]]) else np.zeros_like(bias)

    def check_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> None:
        check_shown(self, examples, features)

    def input_facts(self, examples: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        windows = Counter(record.fields["window"] for record in features)
        outside = {"gold_outside_mask": len(self.mask.outside(examples))} if self.mask else {}
        reads = self.variant.text(examples[0]) if examples else ""
        return {**outside, "windows": dict(windows.most_common()), "reads": reads}


def variant_of(config: HeadConfig) -> Variant:
    """How the settings show entities."""
    char = config.object_char
    if len(char) != 1 or char.isspace() or char.isalnum() or char in "@*^":
        raise DanseoError(f"head.object_char = {char}: should be one sign such as # or &, not @, * or ^")
    return replace(Variant(), name=config.markers, object_char=char, question=config.query)
