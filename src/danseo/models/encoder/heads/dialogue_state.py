"""Dialogue-state head: a gate for every slot, and values generated token by token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.records import DialogueExample, Prediction
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.dialogue_state import slot_of
from danseo.text.normalization import compose
from danseo.training.features import IGNORED, Array, Features, Outputs, pad_rows, to_array

if TYPE_CHECKING:
    from torch import Tensor, nn

GATES = ("none", "dontcare", "ptr", "yes", "no")
"""Gates of a slot; ptr means that its value is generated."""
PTR = GATES.index("ptr")
Ids = tuple[int, ...]
_GATE = {name: number for number, name in enumerate(GATES) if name != "ptr"}


class DialogueStateHead(TaskHead):
    """The state of a dialogue up to a user turn, as domain-slot-value.

    Written tokens become the value of the training states that has the same tokens (kept in get_state), else the
    words of the dialogue that do, else what the tokenizer makes of them.
    """

    auto_class = ""
    has_eval_loss = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.values = KnownValues(self.tokenizer)
        self._slots = {name: number for number, name in enumerate(self.task.labels)}
        tokenizer = self.tokenizer.hf_tokenizer
        self._first, self._end = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
        self._closing = set(tokenizer.all_special_ids)
        self.uses_pooler = self._official
        if not self._official:
            self._closing.discard(self.tokenizer.unk_id)

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        return False

    @property
    def _official(self) -> bool:
        return self.config.architecture == "official"

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        said = self._ids(chain.from_iterable(example.turns for example in examples))
        features = [self._input(number, example, said) for number, example in enumerate(examples)]
        if with_gold:
            states = [self._state(example) for example in examples]
            values = self._ids(chain(GATES, chain.from_iterable(state.values() for state in states)))
            values = {text: [*ids, self._end] for text, ids in values.items()}
            for record, state in zip(features, states, strict=True):
                record.fields |= self._gold(state, values)
        return features

    def _ids(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Return text -> tokens, for each distinct text."""
        unique = list(dict.fromkeys(texts))
        return {text: code.ids for text, code in zip(unique, self.tokenizer.tokenize(unique), strict=True)}

    def _input(self, number: int, example: DialogueExample, ids: dict[str, list[int]]) -> Features:
        """Return [CLS] history [SEP] system [SEP] user [SEP]; a long dialogue keeps its end."""
        tokens = [self._end] if len(example.turns) == 1 else []
        for turn in example.turns:
            tokens.append(self._end)
            tokens += ids[turn]
        cut = len(tokens) > self.max_length - 2
        kept = [self._first, *tokens[max(0, len(tokens) - self.max_length + 2) :], self._end]
        return Features(number, kept, [0] * len(kept), {"truncated": cut})

    def _state(self, example: DialogueExample) -> dict[int, str]:
        """Return slot -> gold value."""
        return {self._slots[slot_of(item)]: item[len(slot_of(item)) + 1 :] for item in example.gold}

    def _gold(self, state: dict[int, str], ids: dict[str, list[int]]) -> dict[str, Any]:
        """Return the gates of all slots, and the tokens of the values to generate."""
        gates = np.zeros(len(self.task.labels), dtype=np.int64)
        for slot, value in state.items():
            gates[slot] = _GATE.get(value, PTR)
        written = {slot: value for slot, value in state.items() if gates[slot] == PTR}
        if self._official:
            targets = {slot: ids[state.get(slot, "none")] for slot in range(len(gates))}
        else:
            targets = {slot: ids[value][: self.config.max_value_length] for slot, value in written.items()}
        return {"gates": gates, "state": written, "targets": targets}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.heads.losses import compute_balanced_weights

        self.values = KnownValues(self.tokenizer, count_values(record.fields["state"] for record in features))
        gates = np.concatenate([record.fields["gates"] for record in features])
        if self.config.class_weights == "balanced":
            self.class_weights = compute_balanced_weights(gates.tolist(), len(GATES))
        weights = np.ones(len(GATES)) if self.class_weights is None else self.class_weights.numpy()
        tokens = sum(len(ids) for record in features for ids in record.fields["targets"].values())
        self._usual = float(weights[gates].sum()) / len(features), max(1, tokens) / len(features)

    def get_state(self) -> dict[str, Any]:
        """Return the values of the training states, by slot."""
        return {"values": {self.task.labels[slot]: texts for slot, texts in self.values.texts.items()}}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take up what get_state gave."""
        self.values = KnownValues(self.tokenizer, {self._slots[name]: texts for name, texts in state["values"].items()})

    def build_network_head(self, body: Any) -> nn.Module:
        import torch

        from danseo.models.encoder.heads.slot_decoder import DecoderSizes, QueryHead, TradeHead

        names = [code.ids for code in self.tokenizer.tokenize([name.replace("-", " ") for name in self.task.labels])]
        measures = DecoderSizes(
            size=body.config.hidden_size,
            heads=math.gcd(body.config.hidden_size, body.config.num_attention_heads),
            dropout=0.1,
            slots=torch.from_numpy(pad_rows(names, self.tokenizer.pad_id)),
            pad=self.tokenizer.pad_id,
            end=self._end,
            max_length=self.config.max_value_length,
        )
        if self._official:
            pools = getattr(body, "pooler", None) is None
            return TradeHead(measures, body.get_input_embeddings(), self.config.teacher_forcing_ratio, pools=pools)
        return QueryHead(measures, body.get_input_embeddings())

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        if not with_gold:
            return {}
        targets = [record.fields["targets"] for record in features]
        steps = max((len(ids) for values in targets for ids in values.values()), default=1)
        table = np.full((len(features), max(1, *map(len, targets)), steps), IGNORED, dtype=np.int64)
        for number, values in enumerate(targets):
            for position, ids in enumerate(values.values()):
                table[number, position, : len(ids)] = ids
        return {
            "gates": np.stack([record.fields["gates"] for record in features]),
            "slots": pad_rows([[*values] or [0] for values in targets], 0),
            "targets": table,
            "target_cells": np.flatnonzero(table.ravel() >= 0),
        }

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss over gates plus the mean loss over value tokens.

        Both divide by what an example of the training set has on average, not by what this batch happens to have: a
        batch worked off in parts then has the gradient of the whole.
        """
        from danseo.models.encoder.heads.losses import weighted_cross_entropy

        gates, _ = weighted_cross_entropy(
            outputs["gates"].flatten(0, 1), batch["gates"].flatten(), self.class_weights, self.config.label_smoothing
        )
        weight, tokens = self._usual
        return gates / weight + outputs["surprise"].sum() / tokens, gates.new_full((), len(batch["gates"]))

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        gates, values = to_array(outputs["gates"]), to_array(outputs["values"]).astype(np.int32)
        return [{"gates": a, "values": b} for a, b in zip(gates, values, strict=True)]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        gates = [output["gates"].argmax(-1) for output in outputs]
        written = [self._read_values(row, output["values"]) for row, output in zip(gates, outputs, strict=True)]
        texts = self._official_texts(written) if self._official else self._texts(examples, written)
        columns = zip(examples, gates, texts, strict=True)
        return Answers([Prediction(example.guid, self._answer(row, values)) for example, row, values in columns])

    def _read_values(self, gates: Any, values: Any) -> dict[int, Ids]:
        """Return the tokens of each generated slot, up to the first special token."""
        written = {}
        for slot in np.flatnonzero(gates == PTR).tolist():
            ids = values[slot].tolist()
            stop = next((position for position, id in enumerate(ids) if id in self._closing), len(ids))
            written[slot] = tuple(ids[:stop])
        return written

    def _official_texts(self, written: Sequence[dict[int, Ids]]) -> list[dict[int, str]]:
        """Return texts as KLUE's code: keep an empty value, drop "none"."""
        texts = [{slot: spell_tokens(ids, self.tokenizer) for slot, ids in row.items()} for row in written]
        return [{slot: text for slot, text in row.items() if text != "none"} for row in texts]

    def _texts(self, examples: Sequence[DialogueExample], written: Sequence[dict[int, Ids]]) -> list[dict[int, str]]:
        """Return the best text of every generated value; drop empty ones."""
        strange = [any(self.values.find(slot, ids) is None for slot, ids in row.items() if ids) for row in written]
        turns = (e.turns for e, is_strange in zip(examples, strange, strict=True) if is_strange)
        said = Utterances(self.tokenizer, chain.from_iterable(turns))
        texts = [
            {slot: self._text(slot, ids, example, said) for slot, ids in row.items() if ids}
            for example, row in zip(examples, written, strict=True)
        ]
        return [{slot: text for slot, text in row.items() if text} for row in texts]

    def _text(self, slot: int, ids: Ids, example: DialogueExample, said: Utterances) -> str:
        return self.values.find(slot, ids) or said.find(ids, example.turns) or spell_tokens(ids, self.tokenizer)

    def _answer(self, gates: Any, texts: dict[int, str]) -> tuple[str, ...]:
        """Return the state in the order of slots."""
        chosen = {slot: GATES[gates[slot]] for slot in np.flatnonzero((gates != PTR) & (gates != 0)).tolist()}
        return tuple(f"{self.task.labels[slot]}-{value}" for slot, value in sorted((chosen | texts).items()))

    def make_perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs]:
        """Return gold gates, and the gold tokens up to the length limit."""
        outputs = []
        for record in features:
            gates, targets = record.fields["gates"], record.fields["targets"]
            values = np.full((len(gates), self.config.max_value_length), self._end, dtype=np.int32)
            for slot, ids in targets.items():
                kept = ids[: self.config.max_value_length]
                values[slot, : len(kept)] = kept
            outputs.append({"gates": np.eye(len(GATES), dtype=np.float32)[gates], "values": values})
        return outputs


class KnownValues:
    """The values of every slot in training, found by their tokens, most frequent first."""

    def __init__(self, tokenizer: EncoderTokenizer, texts: Mapping[int, Sequence[str]] | None = None) -> None:
        self.texts = {slot: list(values) for slot, values in (texts or {}).items()}
        unique = sorted({value for values in self.texts.values() for value in values})
        ids = {value: tuple(code.ids) for value, code in zip(unique, tokenizer.tokenize(unique), strict=True)}
        self._of_slot: dict[tuple[int, Ids], str] = {}
        self._of_any: dict[Ids, str] = {}
        for slot, values in self.texts.items():
            for value in values:
                self._of_slot.setdefault((slot, ids[value]), value)
                self._of_any.setdefault(ids[value], value)

    def find(self, slot: int, ids: Ids) -> str | None:
        """Return the value with these tokens: of this slot, else of another one."""
        return self._of_slot.get((slot, ids)) or self._of_any.get(ids)


def count_values(states: Iterable[Mapping[int, str]]) -> dict[int, list[str]]:
    """Return slot -> values, most frequent first."""
    counts = Counter((slot, value) for state in states for slot, value in state.items())
    texts: dict[int, list[str]] = {}
    for slot, value in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        texts.setdefault(slot, []).append(value)
    return texts


@dataclass(frozen=True, slots=True)
class Utterance:
    """A turn that can be searched by tokens."""

    text: str
    code: str
    """One character per token, so that str.find finds tokens."""
    offsets: list[tuple[int, int]]


class Utterances:
    """The turns of dialogues, tokenized once."""

    def __init__(self, tokenizer: EncoderTokenizer, turns: Iterable[str]) -> None:
        self._utterances = {
            cut.text: Utterance(cut.text, _code(cut.ids), cut.trimmed_offsets())
            for cut in tokenizer.tokenize(list(dict.fromkeys(turns)))
        }

    def find(self, ids: Ids, turns: Sequence[str]) -> str | None:
        """Return the text of the last turn that contains these tokens, NFC-normalized."""
        code = _code(ids)
        for turn in reversed(turns):
            utterance = self._utterances[turn]
            position = utterance.code.find(code)
            if position >= 0:
                positions = [span for span in utterance.offsets[position : position + len(ids)] if span[0] < span[1]]
                return compose(utterance.text[positions[0][0] : positions[-1][1]]) if positions else None
        return None


def _code(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def spell_tokens(ids: Ids, tokenizer: EncoderTokenizer) -> str:
    """Return the text of tokens as KLUE's code writes it."""
    text: str = tokenizer.backend.decode(list(ids), skip_special_tokens=True)
    return text.replace(" : ", ":").replace(" , ", ", ").replace("##", "").strip()
