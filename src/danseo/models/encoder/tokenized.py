"""What tokenizers make of a task: lengths in pieces, unknown ones, cuts, and how long sentences are windowed."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from danseo.config import RunConfig
from danseo.display.table import Table
from danseo.eda.view import Splits
from danseo.models.encoder.kinds import kind_of
from danseo.models.encoder.network import load_pieces
from danseo.models.encoder.pieces import Pieces
from danseo.settings.values import with_settings
from danseo.tasks.task import Task

LIMITS = (128, 160, 256)
_SHARES = (50, 95, 99)


def tokenizer_tables(
    task: Task, splits: Splits, texts: Callable[[Any], tuple[str, ...]], model: str, *, trust_remote_code: bool = False
) -> list[Table]:
    """Pieces and unknown ones of all texts; of relations also of the entities, and how inputs are cut to a length."""
    config = RunConfig(task=task.called, model=model, trust_remote_code=trust_remote_code)
    pieces = load_pieces(config)
    rows = [(split, *_counts(pieces, examples, texts)) for split, examples in splits.items()]
    columns = (
        "split",
        *(f"p{share}" for share in _SHARES),
        "max",
        *(f"above {limit} %" for limit in LIMITS),
        "unknown %",
        "unknown in entities %",
    )
    note = "Pieces of all texts of an example with the special ones; markers are not counted."
    tables = [Table(f"Pieces of {model}", columns, list(rows), note)]
    return [*tables, _window_table(config, task, splits)] if task.form == "relation" else tables


def _counts(pieces: Pieces, examples: Sequence[Any], texts: Callable[[Any], tuple[str, ...]]) -> list[object]:
    parts = [texts(example) for example in examples]
    cuts = iter(pieces.cut([text for each in parts for text in each]))
    ids = [[id for _ in each for id in next(cuts).ids] for each in parts]
    lengths = np.array([len(row) for row in ids]) + pieces.specials(max(map(len, parts)) > 1)
    marks = [int(np.percentile(lengths, share, method="higher")) for share in _SHARES]
    above = [100 * float(np.mean(lengths > limit)) for limit in LIMITS]
    named = [entity.word for e in examples if hasattr(e, "subject") for entity in (e.subject, e.object)]
    inner = [cut.ids for cut in pieces.cut(named)] if named else []
    return [*marks, int(lengths.max()), *above, _unknown(pieces, ids), _unknown(pieces, inner)]


def _unknown(pieces: Pieces, rows: Sequence[Sequence[int]]) -> float | None:
    total = sum(map(len, rows))
    return 100 * sum(row.count(pieces.unknown) for row in rows) / total if total else None


def _window_table(config: RunConfig, task: Task, splits: Splits) -> Table:
    """How many sentences are read whole, and what becomes of the others, with the default markers."""
    rows: list[tuple[object, ...]] = []
    modes: dict[str, None] = {"whole": None}
    cls = kind_of(task)
    pieces = load_pieces(config, cls.added_pieces(config.head))
    found: dict[tuple[str, int], Counter[str]] = {}
    for limit in (limit for limit in LIMITS if limit <= pieces.longest):
        kind = cls(task, pieces, with_settings(config, {"max_length": limit}).head)
        for split, examples in splits.items():
            records = kind.encode(examples, with_gold=False)
            found[split, limit] = Counter(record.fields["window"] for record in records)
            modes |= dict.fromkeys(found[split, limit])
    rows += [(split, limit, *(counts[mode] for mode in modes)) for (split, limit), counts in found.items()]
    note = f"Markers: {config.head.markers}. Both entities are read in every window."
    return Table(f"Windows with {config.model}", ("split", "max_length", *modes), rows, note)
