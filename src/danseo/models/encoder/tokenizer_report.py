"""Report what a tokenizer does to the data: tokens, unknown tokens, truncation, and the best possible score."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.display.table import Table
from danseo.models.encoder.heads import get_head_class
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.network import load_encoder_tokenizer
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.scoring.score import measure
from danseo.tasktypes.base import Splits, Task
from danseo.training.features import Features

_GOOD_CEILING = 99.0


@dataclass(frozen=True)
class TokenizerReport:
    """Figures of a tokenizer on examples."""

    examples: int
    inputs: int
    tokens_per_character: float
    unknown_share: float
    truncated_share: float
    longest: int
    ceiling: float | None
    """The headline score with gold labels for all tokens; None if tokenization cannot lose an answer."""
    shown: dict[str, Any] = field(default_factory=dict)
    """What the head reports about the inputs of train and dev, such as truncation."""

    def warning(self) -> str | None:
        if self.ceiling is None or not self.ceiling < _GOOD_CEILING:
            return None
        causes = []
        if self.unknown_share > 0.001:
            causes.append(f"{100 * self.unknown_share:.2f} % of the tokens are unknown")
        if self.truncated_share > 0:
            causes.append(f"{100 * self.truncated_share:.1f} % of the inputs are truncated")
        causes.append("tokens that cross the boundary of an answer cannot be split")
        return f"no model with this tokenizer can score above {self.ceiling:.2f}: {'; '.join(causes)}"

    def line(self) -> str:
        """Return the figures on one line, and the warning on the next."""
        parts = [
            f"{self.examples} dev examples, {self.inputs} inputs of up to {self.longest} tokens",
            f"{self.tokens_per_character:.3f} tokens per character",
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
            "tokens_per_character": round(self.tokens_per_character, 4),
            "unknown_percent": round(100 * self.unknown_share, 4),
            "truncated_percent": round(100 * self.truncated_share, 4),
            "longest_input": self.longest,
            "ceiling": None if self.ceiling is None else round(self.ceiling, 4),
            "warning": self.warning(),
            **({"shown": self.shown} if self.shown else {}),
        }


def make_tokenizer_report(
    task_head: TaskHead, examples: Sequence[Any], features: Sequence[Features]
) -> TokenizerReport:
    """Compute the report for examples whose features have gold labels."""
    tokens = sum(map(len, features))
    characters = sum(_characters(example) for example in examples)
    unknown = sum(record.ids.count(task_head.tokenizer.unk_id) for record in features)
    cut = np.mean([bool(record.fields.get("truncated")) for record in features])
    outputs = task_head.make_perfect_outputs(examples, features)
    ceiling = None
    if outputs is not None:
        predictions = task_head.decode(examples, features, outputs)
        ceiling = measure(task_head.task, examples, predictions)[task_head.task.headline].value()
    specials = task_head.tokenizer.count_special_tokens() * len(features)
    return TokenizerReport(
        examples=len(examples),
        inputs=len(features),
        tokens_per_character=(tokens - specials) / max(1, characters),
        unknown_share=unknown / max(1, tokens - specials),
        truncated_share=float(cut),
        longest=max(map(len, features)),
        ceiling=ceiling,
    )


def _characters(example: Any) -> int:
    """Return the number of characters of an example."""
    if hasattr(example, "turns"):
        return sum(map(len, example.turns))
    if hasattr(example, "words"):
        return sum(map(len, example.words)) + len(example.words) - 1
    return len(example.text) + len(getattr(example, "pair", None) or "") + len(getattr(example, "question", ""))


LIMITS = (128, 160, 256)
_SHARES = (50, 95, 99)


def tokenizer_tables(
    task: Task, splits: Splits, texts: Callable[[Any], tuple[str, ...]], model: str, *, trust_remote_code: bool = False
) -> list[Table]:
    """Return tables of lengths and unknown tokens; for relations also of truncation."""
    config = RunConfig(task=task.settings_name, model=model, trust_remote_code=trust_remote_code)
    tokenizer = load_encoder_tokenizer(config)
    rows = [(split, *_counts(tokenizer, examples, texts)) for split, examples in splits.items()]
    columns = (
        "split",
        *(f"p{share}" for share in _SHARES),
        "max",
        *(f"above {limit} %" for limit in LIMITS),
        "unknown %",
        "unknown in entities %",
    )
    note = "Tokens of all texts of an example, including special ones, without markers."
    tables = [Table(f"Tokens of {model}", columns, list(rows), note)]
    return [*tables, _window_table(config, task, splits)] if get_head_class(task).reads_entities else tables


def _counts(
    tokenizer: EncoderTokenizer, examples: Sequence[Any], texts: Callable[[Any], tuple[str, ...]]
) -> list[object]:
    parts = [texts(example) for example in examples]
    cuts = iter(tokenizer.tokenize([text for each in parts for text in each]))
    ids = [[id for _ in each for id in next(cuts).ids] for each in parts]
    lengths = np.array([len(row) for row in ids]) + tokenizer.count_special_tokens(max(map(len, parts)) > 1)
    marks = [int(np.percentile(lengths, share, method="higher")) for share in _SHARES]
    above = [100 * float(np.mean(lengths > limit)) for limit in LIMITS]
    named = [entity.word for e in examples if hasattr(e, "subject") for entity in (e.subject, e.object)]
    inner = [cut.ids for cut in tokenizer.tokenize(named)] if named else []
    return [*marks, int(lengths.max()), *above, _unknown(tokenizer, ids), _unknown(tokenizer, inner)]


def _unknown(tokenizer: EncoderTokenizer, rows: Sequence[Sequence[int]]) -> float | None:
    total = sum(map(len, rows))
    return 100 * sum(row.count(tokenizer.unk_id) for row in rows) / total if total else None


def _window_table(config: RunConfig, task: Task, splits: Splits) -> Table:
    """Return how many sentences are truncated and how, with the default markers."""
    rows: list[tuple[object, ...]] = []
    modes: dict[str, None] = {"whole": None}
    cls = get_head_class(task)
    tokenizer = load_encoder_tokenizer(config, cls.added_tokens(config.encoder))
    found: dict[tuple[str, int], Counter[str]] = {}
    for limit in (limit for limit in LIMITS if limit <= tokenizer.max_length):
        task_head = cls(task, tokenizer, config.encoder, update_config(config, {"train.max_length": limit}).train)
        for split, examples in splits.items():
            records = task_head.encode(examples, with_gold=False)
            found[split, limit] = Counter(record.fields["window"] for record in records)
            modes |= dict.fromkeys(found[split, limit])
    rows += [(split, limit, *(counts[mode] for mode in modes)) for (split, limit), counts in found.items()]
    note = f"Markers: {config.encoder.markers}. Both entities are read in every window."
    return Table(f"Windows with {config.model}", ("split", "max_length", *modes), rows, note)
