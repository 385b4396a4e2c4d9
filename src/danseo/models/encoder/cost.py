"""What a tokenizer costs on given data, told before training: pieces, unknown ones, cuts, and the ceiling."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danseo.models.encoder.kind import Kind
from danseo.scoring.score import measure
from danseo.training.features import Features

_GOOD_CEILING = 99.0


@dataclass(frozen=True)
class Cost:
    """The figures of a tokenizer on some examples."""

    examples: int
    inputs: int
    pieces_per_character: float
    unknown_share: float
    truncated_share: float
    longest: int
    ceiling: float | None
    """The headline score of a network that knows the gold of its pieces; None where no piece can lose an answer."""
    shown: dict[str, Any] = field(default_factory=dict)
    """What the kind says of the inputs of train and dev, such as how many had to be cut, and how."""

    def warning(self) -> str | None:
        if self.ceiling is None or not self.ceiling < _GOOD_CEILING:
            return None
        causes = []
        if self.unknown_share > 0.001:
            causes.append(f"{100 * self.unknown_share:.2f} % of the pieces are unknown")
        if self.truncated_share > 0:
            causes.append(f"{100 * self.truncated_share:.1f} % of the inputs are cut")
        causes.append("pieces that reach over the border of an answer cannot be split")
        return f"no model with this tokenizer can score above {self.ceiling:.2f}: {'; '.join(causes)}"

    def line(self) -> str:
        """All figures on one line, and the warning on the next."""
        parts = [
            f"{self.examples} dev examples, {self.inputs} inputs of up to {self.longest} pieces",
            f"{self.pieces_per_character:.3f} pieces per character",
            f"unknown {100 * self.unknown_share:.2f} %",
            f"truncated {100 * self.truncated_share:.1f} %",
            *([f"ceiling {self.ceiling:.2f}"] if self.ceiling is not None else []),
        ]
        warning = self.warning()
        return "tokenizer: " + ", ".join(parts) + (f"\nWARNING: {warning}" if warning else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "inputs": self.inputs,
            "pieces_per_character": round(self.pieces_per_character, 4),
            "unknown_percent": round(100 * self.unknown_share, 4),
            "truncated_percent": round(100 * self.truncated_share, 4),
            "longest_input": self.longest,
            "ceiling": None if self.ceiling is None else round(self.ceiling, 4),
            "warning": self.warning(),
            **({"shown": self.shown} if self.shown else {}),
        }


def tokenizer_cost(kind: Kind, examples: Sequence[Any], features: Sequence[Features]) -> Cost:
    """The cost on examples whose features carry gold."""
    pieces = sum(map(len, features))
    characters = sum(_characters(example) for example in examples)
    unknown = sum(record.ids.count(kind.pieces.unknown) for record in features)
    cut = np.mean([bool(record.fields.get("truncated")) for record in features])
    outputs = kind.perfect_outputs(examples, features)
    ceiling = None
    if outputs is not None:
        predictions = kind.decode(examples, features, outputs)
        ceiling = measure(kind.task, examples, predictions)[kind.task.headline].value()
    specials = kind.pieces.specials() * len(features)
    return Cost(
        examples=len(examples),
        inputs=len(features),
        pieces_per_character=(pieces - specials) / max(1, characters),
        unknown_share=unknown / max(1, pieces - specials),
        truncated_share=float(cut),
        longest=max(map(len, features)),
        ceiling=ceiling,
    )


def _characters(example: Any) -> int:
    """The characters that an input is made of."""
    if hasattr(example, "turns"):
        return sum(map(len, example.turns))
    if hasattr(example, "words"):
        return sum(map(len, example.words)) + len(example.words) - 1
    return len(example.text) + len(getattr(example, "pair", None) or "") + len(getattr(example, "question", ""))
