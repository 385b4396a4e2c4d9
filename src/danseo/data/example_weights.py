"""Read and write the weights of training examples: a CSV of guids and weights, as `danseo mine` writes it."""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from danseo.errors import DataError
from danseo.files import quote, read_text, write_atomically

_COLUMNS = ["guid", "weight"]


def read_weights(path: Path) -> dict[str, float]:
    """Return guid -> weight; examples that the file does not name have weight 1."""
    rows = list(csv.reader(read_text(path).splitlines()))
    if not rows or [cell.strip() for cell in rows[0][:2]] != _COLUMNS:
        raise DataError(f"{path}, line 1: should be the header guid,weight; add it")
    weights: dict[str, float] = {}
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        guid, weight = _read_row(row, f"{path}, line {line}")
        if guid in weights:
            raise DataError(f"{path}, line {line}: {quote(guid)} occurs twice; keep one of them")
        weights[guid] = weight
    return weights


def _read_row(row: Sequence[str], where: str) -> tuple[str, float]:
    if len(row) < 2:
        raise DataError(f"{where}: no weight; write guid,weight")
    try:
        weight = float(row[1])
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise DataError(f"{where}: the weight {quote(row[1])} should be a number, 0 or more; correct it")
    return row[0], weight


def write_weights(path: Path, weights: Mapping[str, float]) -> None:
    """Write weights for read_weights; guids are not escaped for spreadsheets."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_COLUMNS, *weights.items()])
    write_atomically(path, buffer.getvalue())


def load_weights(path: Path, guids: Collection[str]) -> dict[str, float]:
    """Return the weights of a file; refuse one that names unknown examples or leaves no weight above 0."""
    weights = read_weights(path)
    known = set(guids)
    if (unknown := next((guid for guid in weights if guid not in known), None)) is not None:
        raise DataError(f"{path}: no training example has the guid {quote(unknown)}; is the file for other data?")
    if not any(weights.get(guid, 1.0) for guid in known):
        raise DataError(f"{path}: every training example has weight 0; keep some of them")
    return weights
