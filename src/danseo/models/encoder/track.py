"""Dialogue states from encoders: a gate for every slot, and values written piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.models.encoder.kind import Kind
from danseo.models.encoder.values import GATES, PTR, Ids, Said, Values, count_values, spelled
from danseo.models.protocol import Answers
from danseo.records import DialogueExample, Prediction
from danseo.tasks.wos import slot_of
from danseo.training.features import IGNORED, Array, Features, Outputs, as_array, padded

if TYPE_CHECKING:
    from torch import Tensor, nn

_GATE = {name: number for number, name in enumerate(GATES) if name != "ptr"}


class Track(Kind):
    """A dialogue up to a user turn in, its state as domain-slot-value out.

    Written pieces become the value of the training states that has the same pieces (kept in extra_state), else the
    words of the dialogue that do, else what the tokenizer makes of them.
    """

    head = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.values = Values(self.pieces)
        self._slots = {name: number for number, name in enumerate(self.task.labels)}
        tokenizer = self.pieces.tokenizer
        self._first, self._end = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
        self._closing = set(tokenizer.all_special_ids)
        self.pools = self._official
        if not self._official:
            self._closing.discard(self.pieces.unknown)

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
        """Each text once, with its pieces."""
        unique = list(dict.fromkeys(texts))
        return {text: code.ids for text, code in zip(unique, self.pieces.cut(unique), strict=True)}

    def _input(self, number: int, example: DialogueExample, ids: dict[str, list[int]]) -> Features:
        """[CLS] history [SEP] system [SEP] user [SEP], the first two empty at first; when too long, its end."""
        pieces = [self._end] if len(example.turns) == 1 else []
        for turn in example.turns:
            pieces.append(self._end)
            pieces += ids[turn]
        cut = len(pieces) > self.longest - 2
        kept = [self._first, *pieces[max(0, len(pieces) - self.longest + 2) :], self._end]
        return Features(number, kept, [0] * len(kept), {"truncated": cut})

    def _state(self, example: DialogueExample) -> dict[int, str]:
        """Slot -> gold value."""
        return {self._slots[slot_of(item)]: item[len(slot_of(item)) + 1 :] for item in example.gold}

    def _gold(self, state: dict[int, str], ids: dict[str, list[int]]) -> dict[str, Any]:
        """The gates of all slots, and the pieces of the values that are to be written, with their end."""
        gates = np.zeros(len(self.task.labels), dtype=np.int64)
        for slot, value in state.items():
            gates[slot] = _GATE.get(value, PTR)
        written = {slot: value for slot, value in state.items() if gates[slot] == PTR}
        if self._official:
            targets = {slot: ids[state.get(slot, "none")] for slot in range(len(gates))}
        else:
            targets = {slot: ids[value][: self.config.value_length] for slot, value in written.items()}
        return {"gates": gates, "state": written, "targets": targets}

    def prepare_loss(self, features: Sequence[Features]) -> None:
        from danseo.models.encoder.losses import balanced_weights

        self.values = Values(self.pieces, count_values(record.fields["state"] for record in features))
        gates = np.concatenate([record.fields["gates"] for record in features])
        if self.train.class_weights == "balanced":
            self.class_weights = balanced_weights(gates.tolist(), len(GATES))
        weights = np.ones(len(GATES)) if self.class_weights is None else self.class_weights.numpy()
        pieces = sum(len(ids) for record in features for ids in record.fields["targets"].values())
        self._usual = float(weights[gates].sum()) / len(features), max(1, pieces) / len(features)

    def extra_state(self) -> dict[str, Any]:
        """What decoding needs beyond weights, for a JSON file: the values of the training states, by slot."""
        return {"values": {self.task.labels[slot]: texts for slot, texts in self.values.texts.items()}}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take up what extra_state gave."""
        self.values = Values(self.pieces, {self._slots[name]: texts for name, texts in state["values"].items()})

    def build_head(self, body: Any) -> nn.Module:
        import torch

        from danseo.models.encoder.writer import Measures, QueryHead, TradeHead

        names = [code.ids for code in self.pieces.cut([name.replace("-", " ") for name in self.task.labels])]
        measures = Measures(
            size=body.config.hidden_size,
            heads=math.gcd(body.config.hidden_size, body.config.num_attention_heads),
            dropout=0.1,
            slots=torch.from_numpy(padded(names, self.pieces.pad)),
            pad=self.pieces.pad,
            end=self._end,
            longest=self.config.value_length,
        )
        if self._official:
            pools = getattr(body, "pooler", None) is None
            return TradeHead(measures, body.get_input_embeddings(), self.config.teacher_forcing, pools=pools)
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
            "slots": padded([[*values] or [0] for values in targets], 0),
            "targets": table,
        }

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The mean over gates plus the mean over pieces of values.

        Both divide by what an example of the training set has on average, not by what this batch happens to have: a
        batch worked off in parts then has the gradient of the whole.
        """
        from danseo.models.encoder.losses import weighted_cross_entropy

        gates, _ = weighted_cross_entropy(
            outputs["gates"].flatten(0, 1), batch["gates"].flatten(), self.class_weights, self.train.label_smoothing
        )
        weight, pieces = self._usual
        return gates / weight + outputs["surprise"].sum() / pieces, gates.new_full((), len(batch["gates"]))

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        gates, values = as_array(outputs["gates"]), as_array(outputs["values"]).astype(np.int32)
        return [{"gates": a, "values": b} for a, b in zip(gates, values, strict=True)]

    def decode(self, examples: Sequence[Any], features: Sequence[Features], outputs: Sequence[Outputs]) -> Answers:
        gates = [output["gates"].argmax(-1) for output in outputs]
        written = [self._written(row, output["values"]) for row, output in zip(gates, outputs, strict=True)]
        texts = self._official_texts(written) if self._official else self._texts(examples, written)
        columns = zip(examples, gates, texts, strict=True)
        return Answers([Prediction(example.guid, self._answer(row, values)) for example, row, values in columns])

    def _written(self, gates: Any, values: Any) -> dict[int, Ids]:
        """The pieces of each slot that was written, up to the first special one."""
        written = {}
        for slot in np.flatnonzero(gates == PTR).tolist():
            ids = values[slot].tolist()
            stop = next((position for position, id in enumerate(ids) if id in self._closing), len(ids))
            written[slot] = tuple(ids[:stop])
        return written

    def _official_texts(self, written: Sequence[dict[int, Ids]]) -> list[dict[int, str]]:
        """As KLUE's code: an empty value stays, the value "none" goes."""
        texts = [{slot: spelled(ids, self.pieces) for slot, ids in row.items()} for row in written]
        return [{slot: text for slot, text in row.items() if text != "none"} for row in texts]

    def _texts(self, examples: Sequence[DialogueExample], written: Sequence[dict[int, Ids]]) -> list[dict[int, str]]:
        """The best text for every written value; an empty one goes."""
        strange = [any(self.values.find(slot, ids) is None for slot, ids in row.items() if ids) for row in written]
        turns = (e.turns for e, is_strange in zip(examples, strange, strict=True) if is_strange)
        said = Said(self.pieces, chain.from_iterable(turns))
        texts = [
            {slot: self._text(slot, ids, example, said) for slot, ids in row.items() if ids}
            for example, row in zip(examples, written, strict=True)
        ]
        return [{slot: text for slot, text in row.items() if text} for row in texts]

    def _text(self, slot: int, ids: Ids, example: DialogueExample, said: Said) -> str:
        return self.values.find(slot, ids) or said.find(ids, example.turns) or spelled(ids, self.pieces)

    def _answer(self, gates: Any, texts: dict[int, str]) -> tuple[str, ...]:
        """The state in the order of the slots."""
        chosen = {slot: GATES[gates[slot]] for slot in np.flatnonzero((gates != PTR) & (gates != 0)).tolist()}
        return tuple(f"{self.task.labels[slot]}-{value}" for slot, value in sorted((chosen | texts).items()))

    def perfect_outputs(self, examples: Sequence[Any], features: Sequence[Features]) -> list[Outputs]:
        """Gold gates, and as much of the gold pieces as can be written."""
        outputs = []
        for record in features:
            gates, targets = record.fields["gates"], record.fields["targets"]
            values = np.full((len(gates), self.config.value_length), self._end, dtype=np.int32)
            for slot, ids in targets.items():
                kept = ids[: self.config.value_length]
                values[slot, : len(kept)] = kept
            outputs.append({"gates": np.eye(len(GATES), dtype=np.float32)[gates], "values": values})
        return outputs
