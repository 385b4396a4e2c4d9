"""What quantized networks lose on the dev set, overall and per label, against float32; also their size and speed."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.data.find import data_root, find_file, load
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.export.base import ExportRefused
from danseo.export.onnx_quantization import FP32
from danseo.language import _
from danseo.models.base import LoadOptions
from danseo.models.encoder.onnx_model import load_exported
from danseo.records import Prediction
from danseo.scoring.compare import compare
from danseo.scoring.score import compute_headline
from danseo.tasktypes.base import Task

_PART = 256  # examples that a variant predicts before the next one has its turn
_MIN_GOLD = 50  # examples of a label; with fewer, a single answer can cost points
_LABEL_SCORES = ("F1", "exact match", "Pearson")


@dataclass
class VariantResult:
    """An exported folder on the dev set."""

    size: int
    """Bytes of the folder."""
    predictions: list[Prediction] = field(default_factory=list)
    seconds: float = 0.0
    """CPU seconds of the predictions."""


def load_dev_examples(task: Task, data_dir: str | None) -> list[Any]:
    """Return the dev set of a task; raise if it is missing."""
    root = data_root(data_dir)
    if not find_file(task, "dev", root):
        raise DanseoError(
            _(
                "the loss of a smaller model cannot be checked: no dev set of {task} in {root}; "
                "name its folder with --data, or use --no-check"
            ).format(root=root, task=task.name)
        )
    return load(task, "dev", root)


def measure_variants(folders: Mapping[str, Path], examples: Sequence[Any]) -> dict[str, VariantResult]:
    """Predict the examples with every exported folder; they take turns, so that other work slows all of them."""
    models = {name: load_exported(folder, LoadOptions())[0] for name, folder in folders.items()}
    results = {name: VariantResult(measure_size(folder)) for name, folder in folders.items()}
    for start in range(0, len(examples), _PART):
        for name, model in models.items():
            began = time.process_time()
            results[name].predictions += model.predict(examples[start : start + _PART]).predictions
            results[name].seconds += time.process_time() - began
    return results


def measure_size(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class VariantTables:
    """The comparison of all variants with float32."""

    tables: list[Table]
    drops: dict[str, float]
    """Variant -> lost points of the headline."""
    label_drops: dict[str, tuple[float, str]]
    """Variant -> the largest loss of a label that is frequent enough, and the label."""


def compare_variants(task: Task, examples: Sequence[Any], results: Mapping[str, VariantResult]) -> VariantTables:
    """Compare the score, size and speed of every variant with float32, and the scores of every label."""
    base, rows, drops = results[FP32], list[tuple[object, ...]](), dict[str, float]()
    skip = [id_ for id_ in task.metrics if id_ != task.headline]
    for name, each in results.items():
        changes: tuple[object, ...] = (None, None, None)
        if name != FP32:
            pair = {FP32: base.predictions, name: each.predictions}
            (difference,) = compare(task, examples, pair, skip=skip).differences
            changed = sum(a.answer != b.answer for a, b in zip(*pair.values(), strict=True))
            interval = format_interval((difference.low, difference.high), signed=True)
            changes, drops[name] = (difference.value, interval, 100 * changed / len(examples)), -difference.value
        sizes = (each.size / 1e6, each.size / base.size, len(examples) / each.seconds, base.seconds / each.seconds)
        rows.append((name, *sizes, compute_headline(task, examples, each.predictions), *changes))
    columns = (
        "variant", "MB", "size ratio", "examples/s", "speed ratio", task.headline, "difference", "95 % interval",
        "changed %",
    )  # fmt: skip
    note = _(
        "dev set, n = {n:,}; speed in CPU seconds; difference from fp32 in points, paired; "
        "changed: examples with another answer"
    )
    by_label, label_drops = _compare_labels(task, examples, results)
    return VariantTables([Table("variants", columns, rows, note.format(n=len(examples))), by_label], drops, label_drops)


def _compare_labels(
    task: Task, examples: Sequence[Any], results: Mapping[str, VariantResult]
) -> tuple[Table, dict[str, tuple[float, str]]]:
    """Return the score of every label in float32 with the differences of the variants, and the largest losses."""
    found = {name: task.type.breakdown(task, examples, each.predictions)[0] for name, each in results.items()}
    first = found[FP32]
    column = next(name for name in (*_LABEL_SCORES, first.columns[-1]) if name in first.columns)
    values = {
        name: {str(row[0]): row[table.columns.index(column)] for row in table.rows} for name, table in found.items()
    }
    others = [name for name in results if name != FP32]
    rows = list[tuple[object, ...]]()
    for row in first.rows:
        scores = [values[name].get(str(row[0])) for name in results]
        rows.append((*row[:2], scores[0], *(_subtract(score, scores[0]) for score in scores[1:])))
    rows.sort(key=lambda row: min(_to_number(value) for value in row[3:]))
    frequent = [row for row in rows if _to_number(row[1]) >= _MIN_GOLD]
    losses = {
        name: min(((_to_number(row[3 + k]), str(row[0])) for row in frequent), default=(0.0, ""))
        for k, name in enumerate(others)
    }
    note = _("{score}: of fp32, and the difference of each variant; the largest loss first").format(score=column)
    table = Table(first.title, (*first.columns[:2], FP32, *others), rows, note)
    return table, {name: (-value, label) for name, (value, label) in losses.items()}


def _subtract(score: object, base: object) -> float | None:
    """Return a difference of scores; a label that is no longer answered has no score and counts as 0."""
    if not isinstance(base, int | float) or math.isnan(base):
        return None
    return (score if isinstance(score, int | float) and not math.isnan(score) else 0.0) - base


def _to_number(value: object) -> float:
    return value if isinstance(value, int | float) else math.inf


def refuse_losses(variant: str, task: Task, compared: VariantTables, most: float, most_of_label: float) -> None:
    """Raise with the tables if a variant loses more points than allowed, overall or in a label."""
    drop, (label_drop, label) = compared.drops[variant], compared.label_drops[variant]
    if not drop <= most:  # also if it is not a number
        raise ExportRefused(
            _(
                "not written: {variant} loses {drop:.2f} points of {metric}, at most {most:g} are allowed; "
                "try another variant (--compare-variants), or set --max-drop"
            ).format(variant=variant, drop=drop, metric=task.headline, most=most),
            compared.tables,
        )
    if label_drop > most_of_label:
        raise ExportRefused(
            _(
                "not written: {variant} loses {drop:.2f} points of {label}, at most {most:g} are allowed per label; "
                "try another variant (--compare-variants), or set --max-label-drop"
            ).format(variant=variant, drop=label_drop, label=label, most=most_of_label),
            compared.tables,
        )
