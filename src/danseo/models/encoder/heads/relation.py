"""Relation head: a sentence with two marked entities, and one label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.train import TrainSettings
from danseo.data.dev_split import take_split
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.models.base import Answers
from danseo.models.encoder.heads.classification import ClassificationHead
from danseo.models.encoder.heads.entity_markers import (
    MarkerStyle,
    TokenizedSentence,
    between_markers,
    continuation_prefix,
    continue_word,
    insert_markers_officially,
    tokenize_parts,
)
from danseo.models.encoder.heads.entity_windows import MarkedSentence, find_common_length, keep_ends, truncate_sentence
from danseo.models.encoder.heads.input_check import check_marked_inputs
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.records import RelationExample
from danseo.scoring.score import measure
from danseo.tasks.klue.re import TYPES, TypeMask, learn_type_mask, type_pair
from danseo.tasktypes.base import Task
from danseo.training.features import Array, Features, Outputs

if TYPE_CHECKING:
    from torch import Tensor

    from danseo.models.encoder.entity_positions import EntityPositions

_NOISE = 0.1  # of the spread of the embeddings, so that markers of one type do not stay the same


class RelationHead(ClassificationHead):
    """One label for a sentence with a marked subject and object."""

    reads_entities = True

    def __init__(self, task: Task, tokenizer: EncoderTokenizer, config: EncoderSettings, train: TrainSettings) -> None:
        super().__init__(task, tokenizer, config, train)
        self.style = make_marker_style(config)
        self.prefix = continuation_prefix(tokenizer)
        forms = [self.style.marker_pair(role, type) for role in (0, 1) for type in TYPES]
        self._added = frozenset(self.style.list_added_tokens(TYPES))
        self._texts = {text for form in forms for text in (form.opening, form.closing)}
        self._kept: dict[str, list[int]] = {}
        self.mask: TypeMask | None = None
        self.unmasked: Answers | None = None
        is_plain = self.style.name == "klue" and not config.add_query and config.pooling in ("auto", "cls")
        if self._official and (not is_plain or config.max_entity_distance):
            raise DanseoError(
                "the official architecture has markers = klue, pooling = cls, no query and no max_entity_distance; "
                "leave architecture out"
            )

    @classmethod
    def added_tokens(cls, config: EncoderSettings) -> tuple[str, ...]:
        return tuple(make_marker_style(config).list_added_tokens(TYPES))

    def init_added_embeddings(self, rows: Tensor) -> None:
        """Initialize markers as the mean embedding of a word for their type (단체 for ORG) or role, with noise.

        Those of the official architecture stay as the library makes them: at random, like the rows that are there.
        """
        import torch

        if self._official:
            return
        for token, word in self.style.list_added_tokens(TYPES).items():
            ids = [id for id in self.tokenizer.tokenize([word])[0].ids if id != self.tokenizer.unk_id]
            if ids:
                found = rows.data[ids].float()
                noise = torch.randn(rows.shape[1]) * found.std() * _NOISE
                rows.data[self.tokenizer.token_id(token)] = (found.mean(dim=0) + noise).to(rows.dtype)

    def build_entity_positions(self, tokens: Any) -> EntityPositions | None:
        from danseo.models.encoder.entity_positions import EntityPositions

        distance = min(self.config.max_entity_distance, self.max_length)
        return EntityPositions(tokens, distance) if distance else None

    # Labels that entity types allow

    def learn_constraints(self, train: Sequence[Any]) -> None:
        if self.config.type_mask != "none":
            config, is_wide = self.config, self.config.type_mask_table == "wide"
            least, strength = config.type_mask_min_count, config.type_mask_bias
            self.mask = learn_type_mask(self.task, train, min_count=least, is_widened=is_wide, strength=strength)

    def mask_logits(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
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

    def describe_predictions(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the scores of the last decoded predictions without the type mask."""
        if self.mask is None or self.unmasked is None:
            return {}
        found = {}
        for split in ("report", "dev"):
            measured = measure(self.task, *take_split(self.task, examples, self.unmasked, split))
            found[split] = {id_: to_finite(statistic.value()) for id_, statistic in measured.items()}
        return {"without_type_mask": found, "gold_outside_mask": len(self.mask.find_forbidden(examples))}

    def get_state(self) -> dict[str, Any]:
        return {"type_mask": self.mask.as_dict()} if self.mask else {}

    def restore_state(self, state: dict[str, Any]) -> None:
        if kept := state.get("type_mask"):
            self.mask = TypeMask(self.task.labels, self.task.nothing, **kept)

    # From examples to tokens

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        marked = self._mark_officially(examples) if self._official else self._mark(examples)
        labels = {label: number for number, label in enumerate(self.task.labels)}
        features = []
        for number, (example, sentence) in enumerate(zip(examples, marked, strict=True)):
            record = self._make_input(number, example, sentence)
            record.fields["types"] = type_pair(example)
            if with_gold:
                record.fields["label"] = labels[example.gold]
            features.append(record)
        return features

    @property
    def _official(self) -> bool:
        return self.config.architecture == "official"

    def _make_input(self, number: int, example: RelationExample, sentence: MarkedSentence) -> Features:
        """Return the input: the query or names before the sentence, and the truncated sentence."""
        has_prefix = self.style.has_prefix
        frame = self.tokenizer.get_special_tokens(pair=has_prefix)
        room = self.max_length - len(frame)
        front, spans, is_cut = self._build_prefix(example, room // 2)
        sentence = self._truncate(example, sentence, room - len(front))
        sentence.mode = "names cut" if is_cut and sentence.mode == "whole" else sentence.mode
        ids, segments = frame.fill([front, sentence.ids] if has_prefix else [sentence.ids])
        start = len(ids) - len(frame.after) - len(sentence.ids)
        positions = tuple(position + start if position >= 0 else -1 for position in sentence.positions)
        inner = ((positions[k] + sentence.widths[k], positions[k + 1]) for k in (0, 2))
        entities = tuple((a, b) if a < b else (a - 1, a) for a, b in inner)  # a hidden entity is its marker
        fields = {
            "truncated": sentence.mode != "whole",
            "window": sentence.mode,
            "markers": positions,
            "starts": (positions[0], positions[2]),
            "entities": entities,
            "spans": entities,
        }
        if spans:
            moved = tuple((a + len(frame.before), b + len(frame.before)) for a, b in spans)
            fields |= {"spans": moved, "starts": tuple(a for a, _ in moved)}
        return Features(number, ids, segments, fields)

    def _truncate(self, example: RelationExample, sentence: MarkedSentence, room: int) -> MarkedSentence:
        """Truncate the sentence: all of it, the context of the entities, or (official) its beginning."""
        if room < max(sum(sentence.widths), 1):
            raise DanseoError(
                f"max_length {self.max_length} has no room for the entity markers of {example.guid}; raise it"
            )
        if self._official and len(sentence.ids) > room:
            kept = [position if position < room else -1 for position in sentence.positions]
            return MarkedSentence(sentence.ids[:room], kept, sentence.widths, "right")
        return truncate_sentence(sentence, room, self.gap)

    def _build_prefix(self, example: RelationExample, most: int) -> tuple[list[int], list[tuple[int, int]], bool]:
        """Return the tokens before the sentence, the entity spans in them, and whether names were truncated."""
        if not self.style.has_prefix:
            return [], [], False
        words = [self._encode_text(entity.word) for entity in (example.subject, example.object)]
        times = (self.style.question and self.style.name != "entity_mask") + (self.style.name == "concat")
        fixed = sum(map(len, self._prefix_parts(example, [[], []])))
        is_cut = fixed + times * sum(map(len, words)) > most
        if is_cut:
            if times and most - fixed < 2 * times:
                raise DanseoError(f"max_length {self.max_length} has no room to name the entities of {example.guid}")
            longest = find_common_length([len(word) for word in words] * times, max(0, most - fixed)) if times else 0
            words = [keep_ends(word, longest, self.gap) for word in words]
        ids = [id for part in self._prefix_parts(example, words) for id in part]
        if self.style.name != "concat":
            return ids, [], is_cut
        second = len(ids) - len(words[1])
        return ids, [(second - 1 - len(words[0]), second - 1), (second, len(ids))], is_cut

    def _prefix_parts(self, example: RelationExample, words: Sequence[list[int]]) -> list[list[int]]:
        separator = [int(self.tokenizer.hf_tokenizer.sep_token_id)]
        named = [words[0], separator, words[1]] if self.style.name == "concat" else []
        if not self.style.question:
            return named
        forms = self.style.marker_pairs(example)
        asked = []
        for form, word, particle in zip(forms, words, ("와", "의"), strict=True):
            asked += [
                self._encode_opening(form.opening),
                [] if form.hides else word,
                self._encode_closing(form.closing),
            ]
            asked.append(self._encode_text(particle, continues=True))
        return [*asked, self._encode_text("관계"), *([separator] if named else []), *named]

    def _mark(self, examples: Sequence[RelationExample]) -> list[MarkedSentence]:
        """Tokenize as if unmarked, and split tokens at entity boundaries."""
        whole = self.style.name == "concat"
        cuts = self.tokenizer.tokenize([example.text for example in examples])
        sentences = [TokenizedSentence(c, e, self.prefix, whole=whole) for c, e in zip(cuts, examples, strict=True)]
        sides = tokenize_parts({side for sentence in sentences for side in sentence.list_split_parts()}, self.tokenizer)
        return [
            sentence.insert_markers(self.markers(example), sides, hides=self.style.name == "entity_mask")
            for sentence, example in zip(sentences, examples, strict=True)
        ]

    def _mark_officially(self, examples: Sequence[RelationExample]) -> list[MarkedSentence]:
        cuts = iter(self.tokenizer.tokenize([part for example in examples for part in between_markers(example)]))
        return [
            insert_markers_officially([next(cuts) for _ in range(5)], example, self.markers(example), self.tokenizer)
            for example in examples
        ]

    def markers(self, example: RelationExample) -> list[list[int]]:
        """Return the tokens before and after the subject, and before and after the object."""
        forms = self.style.marker_pairs(example)
        return [part for f in forms for part in (self._encode_opening(f.opening), self._encode_closing(f.closing))]

    def _encode_opening(self, text: str) -> list[int]:
        return self._encode_text(text)

    def _encode_closing(self, text: str) -> list[int]:
        """Return the tokens of a closing marker; BERT never continues a word with punctuation."""
        return self._encode_text(text, continues=not self.prefix)

    def _encode_text(self, text: str, *, continues: bool = False) -> list[int]:
        """Return the tokens of a marker or a short text, cached."""
        key = f"{text}\0{continues}"
        if key not in self._kept:
            self._kept[key] = self._cut_short(text, continues=continues)
        return self._kept[key]

    def _cut_short(self, text: str, *, continues: bool) -> list[int]:
        if not text:
            return []
        if text in self._added:
            found = self.tokenizer.token_id(text)
            if found == self.tokenizer.unk_id:
                raise DanseoError(f"the tokenizer lacks the entity marker {text}; train the run anew")
            return [found]
        cut = self.tokenizer.tokenize([text])[0]
        if self.tokenizer.unk_id in cut.ids and text in self._texts:
            raise DanseoError(
                f"the tokenizer does not know {text}, so it cannot mark entities; use other encoder.markers"
            )
        return continue_word(cut.ids, cut.tokens, self.tokenizer) if continues else cut.ids

    @property
    def gap(self) -> int:
        """The token for omitted text."""
        found = self.tokenizer.token_id("…")
        return int(self.tokenizer.hf_tokenizer.sep_token_id) if found == self.tokenizer.unk_id else found

    # Batches and input checks

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        batch = super().collate(features, with_gold)
        if with_gold and self.mask and self.config.type_mask == "training":
            batch["bias"] = np.array([self._bias(record) for record in features], dtype=np.float32)
        if self.config.max_entity_distance:
            batch["entities"] = np.array([record.fields["entities"] for record in features])
        if self.auto_class:
            return batch
        positions = {key: np.array([record.fields[key] for record in features]) for key in ("starts", "spans")}
        return {**batch, **positions}

    def _bias(self, record: Features) -> Array:
        """Return the type bias of an example; zero if it would forbid the gold label."""
        assert self.mask is not None
        bias = self.mask.bias(record.fields["types"])
        return bias if np.isfinite(bias[record.fields["label"]]) else np.zeros_like(bias)

    def check_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> None:
        check_marked_inputs(self, examples, features)

    def describe_inputs(self, examples: Sequence[Any], features: Sequence[Features]) -> dict[str, Any]:
        windows = Counter(record.fields["window"] for record in features)
        outside = {"gold_outside_mask": len(self.mask.find_forbidden(examples))} if self.mask else {}
        reads = self.style.text(examples[0]) if examples else ""
        return {**outside, "windows": dict(windows.most_common()), "reads": reads}


def make_marker_style(config: EncoderSettings) -> MarkerStyle:
    """Return the marker style of the settings."""
    char = config.object_marker
    if len(char) != 1 or char.isspace() or char.isalnum() or char in "@*^":
        raise DanseoError(f"encoder.object_marker = {char}: should be one sign such as # or &, not @, * or ^")
    return replace(MarkerStyle(), name=config.markers, object_char=char, question=config.add_query)
