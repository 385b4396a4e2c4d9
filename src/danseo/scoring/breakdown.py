"""Where a score comes from: per label, entity type, relation, question type or slot; calibration; scores on tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import to_finite
from danseo.language import _
from danseo.metrics.statistic import Counts
from danseo.metrics.tagging import Tagged, entity_counts, find_padded_rows, get_token_tags, tag_macro_f1
from danseo.records import Prediction
from danseo.scoring.score import compute_headline
from danseo.tasks.klue.ner import TYPES
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class RankedErrors:
    """The wrong examples, the one most worth reading first."""

    positions: list[int]
    """The position of each among the examples."""
    parts: list[dict[str, str]]
    """The contents of each: part -> text."""
    order: str
    """A description of the order."""


def rank_errors(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> RankedErrors:
    """Return all wrong examples, by confidence if that is known, else by how much is wrong."""
    pairs = zip(examples, predictions, strict=True)
    described = [(task.type.describe_error(task, *pair), position) for position, pair in enumerate(pairs)]
    errors = [(error, position) for error, position in described if error]
    is_ranked = not task.type.ranks_by_confidence or all(each.probabilities for each in predictions)
    if is_ranked:
        errors.sort(key=lambda pair: -pair[0].severity)  # of equal ones the first of the file
    order = task.type.error_order if is_ranked else _("in the order of the file")
    return RankedErrors([position for _, position in errors], [error.parts for error, _ in errors], order)


def mistakes_table(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], most: int) -> Table:
    """Return the first of the wrong examples: one row per part of each."""
    ranked = rank_errors(task, examples, predictions)
    rows: list[tuple[object, ...]] = [
        (number, part, " ⏎ ".join(content.split("\n")))
        for number, (position, parts) in enumerate(zip(ranked.positions[:most], ranked.parts, strict=False), 1)
        for part, content in {"guid": examples[position].guid, **parts}.items()
    ]
    count = len(ranked.positions)
    note = _("{n} of {all} wrong examples, {order}").format(n=min(most, count), all=count, order=ranked.order)
    return Table("wrong examples", ("number", "part", "content"), rows, note)


def details(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    whole: bool = True,
    errors: int = 0,
    train: Sequence[Any] = (),
) -> list[Table]:
    """Return the breakdown of the task type if `whole` is set, and that many of the wrong examples.

    With train, entities that train has are distinguished from others.
    """
    tables = task.type.breakdown(task, examples, predictions) if whole else []
    seen = task.type.breakdown_by_seen(task, train, examples, predictions) if whole and train else None
    tables = [*tables, seen] if seen else tables
    return [*tables, mistakes_table(task, examples, predictions, errors)] if errors else tables


_PARTS = 4


def by_length(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """Return the headline of quarters of the examples, the shortest first; equal lengths stay together."""
    lengths = np.array([task.type.measure_length(example) for example in examples])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _PARTS + 1)[1:-1], method="lower"))
    positions = np.searchsorted(edges, lengths, side="left")
    rows: list[tuple[object, ...]] = []
    for part in np.unique(positions):
        mine = [int(k) for k in np.flatnonzero(positions == part)]
        limits = f"{lengths[mine].min()} – {lengths[mine].max()}"
        value = compute_headline(task, [examples[k] for k in mine], [predictions[k] for k in mine])
        rows.append((limits, len(mine), to_finite(value)))
    return Table("by length", (task.type.length_unit, "n", task.headline), rows)


METRICS = {
    "ner/entity_f1@subword-1": "entity F1 over tokens, the longest sentences of each batch left out",
    "ner/char_f1@subword-1": "mean F1 over 13 tags of tokens, the same sentences left out",
}


def load_tokenizer(path: Path) -> Any:
    """Load a tokenizer.json, a WordPiece vocab.txt, or a folder that holds one of them."""
    require("tokenizers")
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    files = [path / "tokenizer.json", path / "vocab.txt"] if path.is_dir() else [path]
    for file in files:
        if file.is_file():
            try:
                if file.suffix == ".json":
                    return Tokenizer.from_file(str(file))
                return BertWordPieceTokenizer(str(file), lowercase=False, strip_accents=False)
            except Exception as error:  # the library raises bare Exceptions
                raise DanseoError(f"{file} is not a readable tokenizer: {error}") from None
    raise DanseoError(f"{path} holds no tokenizer.json or vocab.txt; name one with --tokenizer")


def measure_tokens(
    examples: Sequence[Any], predictions: Sequence[Prediction], tokenizer: Any, batch: int = 32
) -> dict[str, Counts]:
    """Return both scores: a token has the tag of its first character, special tokens are O.

    A sentence as long as its padded batch is not scored, as in those reports; the rows of such sentences are zero.
    """
    encodings = [tokenizer.encode(example.text) for example in examples]
    golds = [get_token_tags(example.gold, e.offsets) for example, e in zip(examples, encodings, strict=True)]
    answers = [
        get_token_tags(prediction.answer, e.offsets) for prediction, e in zip(predictions, encodings, strict=True)
    ]
    kept = np.zeros((len(examples), 1))
    kept[find_padded_rows([len(row) for row in golds], batch)] = 1
    tagged = Tagged.encode(golds, answers, TYPES)
    statistics = (entity_counts(tagged), tag_macro_f1(tagged, with_o=True))
    return {id_: Counts(s.table * kept, s.formula) for id_, s in zip(METRICS, statistics, strict=True)}
