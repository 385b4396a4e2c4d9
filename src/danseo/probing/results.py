"""Result files of probed checkpoints: one per checkpoint, a summary and a CSV, resumable by content."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.display.escaping import to_csv
from danseo.errors import DanseoError, DataError
from danseo.files import write_atomically
from danseo.rows import read_object

SCHEMA = 2
SUMMARY, TABLE, CURVE = "probe_summary.json", "probe_summary.csv", "probe_curve.png"
LEGACY = ("checkpoint", "seq_len", "lambada_top1", "real1", "real5", "score", "epoch")
ADDED = (
    "step",
    "status",
    "strict1",
    "strict5",
    "choice1",
    "lambada_strict1",
    "composite",
    "eval_set_hash",
    "error",
    "spelling",
)
_ENDING = "_eval_results.json"
_FOUR = ("lambada_top1", "real1", "real5", "score", "strict1", "strict5", "choice1", "lambada_strict1", "composite")

Record = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What makes two evaluations the same: weights, items, and how it was asked."""

    model_hash: str
    eval_set_hash: str
    eval_config_hash: str

    def matches(self, record: Mapping[str, Any]) -> bool:
        return all(record.get(key) == value for key, value in vars(self).items())


def tidy(folder: Path) -> None:
    """Remove what a kill has left half-written of such files; the folder is the user's, and nothing else is touched."""
    for name in (SUMMARY, TABLE, CURVE, f"*{_ENDING}"):
        for draft in folder.glob(f".{name}.*.part"):
            draft.unlink(missing_ok=True)


def read_record(path: Path) -> Record | None:
    """A result file, or None where it is missing or unreadable."""
    try:
        return dict(read_object(path).values)
    except DataError:
        return None


def done_before(folder: Path, name: str, identity: Identity) -> Record | None:
    """The result of the same evaluation, if it is there."""
    for path in sorted(folder.glob(f"*{name}*{_ENDING}")):
        record = read_record(path)
        if record and record.get("status") == "ok" and identity.matches(record):
            return record
    return None


def result_path(folder: Path, record: Mapping[str, Any]) -> Path:
    """Where a result goes: <checkpoint>_eval_results.json; another evaluation's file is never overwritten."""
    name, parent = record["checkpoint_info"]["name"], Path(record["checkpoint"]).resolve().parent.name
    key = f"{record['eval_set_hash'][:4]}{record['eval_config_hash'][:4]}"
    choices = (name, f"{parent}--{name}", f"{parent}--{name}--{key}")
    paths = [folder / f"{choice}{_ENDING}" for choice in choices]
    return next((path for path in paths if _is_free(path, record)), paths[-1])


def _is_free(path: Path, record: Mapping[str, Any]) -> bool:
    present = read_record(path)
    same = ("eval_set_hash", "eval_config_hash", "checkpoint")
    return present is None or all(present.get(key) == record[key] for key in same)


def write_record(folder: Path, record: Mapping[str, Any]) -> Path:
    """Write one checkpoint's result."""
    path = result_path(folder, record)
    write_atomically(path, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    return path


def merged(existing: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Rows by checkpoint, the newest wins, in the order of first appearance."""
    return list({row["checkpoint"]: row for row in [*existing, *new]}.values())


def row_of(record: Mapping[str, Any]) -> Record:
    """A checkpoint's line of the summary: the record without what is long."""
    return {key: value for key, value in record.items() if key not in ("probes", "hits", "libraries")}


def write_summary(
    folder: Path, rows: Sequence[Record], total: int, minutes: float, status: str, limits: Record
) -> Record:
    """The state of a sweep after each checkpoint: JSON and CSV; rows of other items or another spelling stand apart."""
    before = read_record(folder / SUMMARY) or {}
    old = [row for row in [*before.get("results", []), *before.get("other_sets", [])] if isinstance(row, dict)]
    ours = {asked(row) for row in rows}
    ours |= {(*key[:2], None, None) for key in ours}  # failures, which say nothing of how it was computed
    same, others = ([row for row in old if (asked(row) in ours) == is_ours] for is_ours in (True, False))
    results = sorted(merged(same, rows), key=lambda row: (row.get("step") is None, row.get("step") or 0))
    good = [row for row in results if row["status"] == "ok"]
    document = {
        "schema_version": SCHEMA,
        "status": status,
        "evaluated_at": max((row["evaluated_at"] for row in results), default=None),
        "total_checkpoints": total,
        "completed": len(rows),
        "progress_pct": round(100 * len(rows) / max(1, total), 1),
        "successful_evaluations": len(good),
        "elapsed_time_minutes": round(minutes, 3),
        "limits": limits,
        **{f"best_by_{key}": best_by(good, key) for key in ("score", "real1", "real5", "composite")},
        "results": results,
        "other_sets": others,
    }
    write_atomically(folder / SUMMARY, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    write_atomically(folder / TABLE, csv_text(results))
    return document


def asked(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two results must agree in to be compared: the items, how their gaps are spelled, and how it was computed."""
    mode = (record.get("dtype"), record.get("attention", "own")) if record.get("status") == "ok" else (None, None)
    return record.get("eval_set_hash"), record.get("spelling", "separate"), *mode  # separate was the only way once


def best_by(rows: Sequence[Record], key: str) -> Record | None:
    """The row with the highest value; none where several share it."""
    known = [row for row in rows if row.get(key) is not None]
    best = [row for row in known if row[key] == max(float(each[key]) for each in known)]
    return best[0] if len(best) == 1 else None


def csv_text(rows: Sequence[Record]) -> str:
    """The old columns first, then the new ones; scores with four decimals, texts quoted where needed."""
    columns = (*LEGACY, *ADDED)
    return to_csv([columns, *([_cell(key, row.get(key)) for key in columns] for row in rows)])


def _cell(key: str, value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.4f}" if key in _FOUR else value


def read_reference(path: Path, eval_set_hash: str, spelling: str) -> Record:
    """A stored result to compare with; on other items, or with gaps spelled otherwise, there is nothing to compare."""
    record = read_record(path)
    if record is None or "hits" not in record:
        raise DanseoError(f"{path} is no result file of `danseo probe`; name a <checkpoint>{_ENDING}")
    if record.get("eval_set_hash") != eval_set_hash:
        raise DanseoError(
            f"{path} was probed on other items ({record.get('eval_set_hash')}, here {eval_set_hash}); "
            "probe both on one set"
        )
    if asked(record)[1] != spelling:
        raise DanseoError(
            f"{path} was probed with --spelling {asked(record)[1]}, here it is {spelling}; use one of them"
        )
    return record
