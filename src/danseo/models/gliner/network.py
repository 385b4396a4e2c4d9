"""GLiNER 2 as a network that training can drive, and as a finder of spans; weights are safetensors alone."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import torch
from torch import Tensor

from danseo.errors import DanseoError
from danseo.hub import pretrained
from danseo.models.spans import Span, characters
from danseo.training.features import Features, Outputs
from danseo.training.network import TrainableNetwork

PREFIX = "gliner:"
_NARROWEST = 24  # characters: a span head of fewer misses too many Korean entities
Labels = dict[str, tuple[str, ...]]
"""Type -> the words that the model reads for it."""


class Splitter:
    """Every character is a word: entities of Korean end inside words."""

    def __call__(self, text: str, lower: bool = True) -> Iterator[tuple[str, int, int]]:
        for start, end in characters(text):
            word = normalize("NFC", text[start:end])  # as vocabularies have it
            yield (word.lower() if lower else word), start, end


class Packed:
    """A batch of the library, with as much of a tensor as moving it takes."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def to(self, device: torch.device, non_blocking: bool = False) -> "Packed":
        return Packed(self.batch.to(device))

    def pin_memory(self) -> "Packed":
        return self


class GlinerNetwork(TrainableNetwork):
    """Texts with labels in, the library's own loss out."""

    def __init__(self, extractor: Any) -> None:
        super().__init__()
        self.extractor = extractor

    @property
    def model(self) -> Any:
        """The encoder, of which training asks the width."""
        return self.extractor.encoder

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        made = self.extractor(batch["packed"].batch, return_candidates=False)
        return {"loss": made["total_loss"]}

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        rows = [(record.fields["text"], record.fields["schema"]) for record in features]
        batch = self.extractor.processor.collate_fn_train(rows, architecture=self.extractor.architecture)
        return {"packed": Packed(batch), "input_ids": batch.input_ids}


class Objective:
    """The library's loss, weighed by texts."""

    usual_weight: float | None = None

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Nothing is drawn anew."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        texts = len(batch["input_ids"])
        return outputs["loss"] * texts, outputs["loss"].new_full((), texts)

    def unpack(self, outputs: Any, batch: Any, features: Sequence[Features]) -> list[Outputs]:
        raise NotImplementedError  # spans are found by the library itself


def features_of(number: int, text: str, spans: Sequence[Span], labels: Labels) -> Features:
    """A text with the positions of its entities under the words of their types."""
    gold: dict[str, list[dict[str, Any]]] = {words[0]: [] for words in labels.values()}
    for start, end, type, _ in spans:
        gold[labels[type][0]].append({"text": text[start:end], "start": start, "end": end})
    return Features(number, [0] * len(text), [], {"text": text, "schema": {"entities": gold}})


def found_spans(extractor: Any, texts: Sequence[str], labels: Labels, least: float, batch: int) -> list[list[Span]]:
    """All spans of the texts whose score reaches the least, overlapping ones too."""
    types = {word: type for type, words in labels.items() for word in words}
    with torch.inference_mode():
        results = extractor.batch_extract_entities(
            list(texts),
            list(types),
            batch_size=batch,
            threshold=least,
            include_confidence=True,
            include_spans=True,
            overlap_policy="nested",
        )
    return [
        [
            Span(one["start"], min(one["end"], len(text)), types[word], float(one["confidence"]))
            for word, listed in result["entities"].items()
            for one in listed
        ]
        for text, result in zip(texts, results, strict=True)
    ]


def load_extractor(name: str, trust_remote_code: bool = False) -> Any:
    """A GLiNER 2 checkpoint, by folder or Hub id, that reads characters."""
    from gliner2 import AutoExtractor
    from gliner2.models.loading import checkpoint_file

    from danseo.models.encoder.network import quiet_transformers

    quiet_transformers()
    position, options = pretrained(name)
    try:
        files = {
            file: Path(checkpoint_file(position, file, options))
            for file in ("config.json", "encoder_config/config.json", "model.safetensors")
        }
    except Exception as error:  # of the Hub
        raise DanseoError(f"{name} is no GLiNER 2 checkpoint with safetensors: {_line(error)}") from None
    if missing := [file for file, path in files.items() if not path.is_file()]:
        raise DanseoError(f"{name} is no GLiNER 2 checkpoint with safetensors: no {missing[0]}; see docs/systems.md")
    _check(name, json.loads(files["config.json"].read_text("utf-8")))
    if "auto_map" in json.loads(files["encoder_config/config.json"].read_text("utf-8")) and not trust_remote_code:
        raise DanseoError(f"{name} wants to run code of its own; allow it with --trust-remote-code")
    try:
        extractor = AutoExtractor.from_pretrained(position, word_splitter=Splitter(), **options)
    except Exception as error:  # the library raises many kinds for the same few causes
        raise DanseoError(f"{name} does not load as a GLiNER 2 model: {_line(error)}") from None
    extractor.processor.sampling_config.synthetic_entity_label_prob = 0.0  # its labels are ours
    return extractor


def _check(name: str, config: dict[str, Any]) -> None:
    """Refuse models that cannot name a Korean entity as a whole."""
    width = (config.get("span_head") or config).get("max_width", 8)
    if config.get("architecture", "span") == "span" and width < _NARROWEST:
        raise DanseoError(
            f"{name} finds spans of at most {width} characters, and Korean entities are longer; use one of the "
            f"boundary architecture, or with a width of {_NARROWEST} and more"
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
