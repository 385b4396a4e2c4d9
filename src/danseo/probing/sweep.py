"""danseo probe: many checkpoints, each saved when it is done, none asked twice."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.hub import pretrained
from danseo.probing.checkpoints import Checkpoint, shown_name
from danseo.probing.items import ProbeItem, items_hash
from danseo.probing.probe import ProbeOptions, ProbeResult, Progress, probe_model
from danseo.probing.results import (
    SCHEMA,
    SUMMARY,
    Identity,
    Record,
    asked,
    done_before,
    read_record,
    row_of,
    write_record,
    write_summary,
)
from danseo.text.morphology import Analyser


@dataclass
class Sweep:
    """Checkpoints on one set of items."""

    items: Sequence[ProbeItem]
    options: ProbeOptions
    analyser: Analyser
    output: Path | None = None
    device: str | None = None
    precision: str = "auto"
    trust_remote_code: bool = False
    on_progress: Progress = lambda done, total: None
    on_note: Callable[[str], None] = lambda line: None
    is_alone: bool = False
    """Whether one checkpoint was named: what is wrong with it is then the error of the command."""
    mode: tuple[str, str] | None = None
    """Precision and attention of the whole series, once they are settled."""
    records: list[Record] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def probe(self, checkpoint: Checkpoint) -> Record:
        """The record of a checkpoint: from an earlier run, fresh, or a failure; saved at once."""
        folder = self.folder_of(checkpoint)
        try:
            pretrained(checkpoint.source)
            self._settle(checkpoint, folder)
            identity = self.identity(checkpoint)
            if record := done_before(folder, checkpoint.name, identity):
                self.on_note(f"{shown_name(checkpoint.source)}: already probed")
                record = {**record, "checkpoint": checkpoint.source}
            else:
                record = self._fresh(checkpoint, identity)
                write_record(folder, record)
                self.on_note(_line(record))
        except (DanseoError, RuntimeError, OSError, ValueError) as error:  # a broken checkpoint is a row, not the end
            if self.is_alone and isinstance(error, DanseoError):
                raise
            record = self._failure(checkpoint, error)
            self.on_note(f"{shown_name(checkpoint.source)}: failed: {record['error']}")
        self.records.append(record)
        return record

    def folder_of(self, checkpoint: Checkpoint) -> Path:
        """The output folder, else the one that holds the checkpoint; for a Hub id the current one."""
        return self.output or (checkpoint.path.resolve().parent if checkpoint.path.is_dir() else Path())

    def _settle(self, checkpoint: Checkpoint, folder: Path) -> None:
        """One precision and attention for all: as named, as the training had them, as earlier results, or measured."""
        from danseo.models.masked.load import OWN, MaskedModel

        if self.mode is None and self.precision != "auto":
            self.mode = self.precision, OWN
        if self.mode is None:
            self.mode = trained_mode(checkpoint, self.device) or self._earlier_mode(folder)
        if self.mode is None:
            trusted = self.trust_remote_code
            masked = MaskedModel.load(checkpoint.source, self.device, "auto", self.on_note, trust_remote_code=trusted)
            self.mode = masked.precision, OWN

    def _earlier_mode(self, folder: Path) -> tuple[str, str] | None:
        """That of results in the folder which were made without a wish either."""
        rows = (read_record(folder / SUMMARY) or {}).get("results", [])
        ours = (items_hash(self.items), self.options.spelling)
        found = (row for row in rows if row.get("precision") == "auto" and asked(row)[:2] == ours)
        return next(((row["dtype"], row["attention"]) for row in found if row["status"] == "ok"), None)

    def identity(self, checkpoint: Checkpoint) -> Identity:
        from danseo.models.masked.load import weights_hash

        settings = {**asdict(self.options), "gear": self.mode, "analyser": self.analyser.version}
        config = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        return Identity(weights_hash(checkpoint.source, self.trust_remote_code), items_hash(self.items), config)

    def _fresh(self, checkpoint: Checkpoint, identity: Identity) -> Record:
        from danseo.models.masked.load import MaskedModel

        start = time.perf_counter()
        assert self.mode
        precision, attention = self.mode
        trusted = self.trust_remote_code
        masked = MaskedModel.load(checkpoint.source, self.device, precision, self.on_note, attention, trusted)
        loaded = time.perf_counter() - start
        result = probe_model(masked, self.items, self.options, self.analyser, self.on_progress)
        seconds = {"loading": loaded, **result.seconds}
        wishes = {"precision": self.precision, "attention": attention}
        return record_of(checkpoint, result, masked, identity, seconds) | wishes

    def _failure(self, checkpoint: Checkpoint, error: Exception) -> Record:
        return {
            "checkpoint": checkpoint.source,
            "status": "failed",
            "error": " ".join(str(error).split())[:300],
            "evaluated_at": _now(),
            "step": checkpoint.step,
            "epoch": checkpoint.epoch,
            "eval_set_hash": items_hash(self.items),
            "spelling": self.options.spelling,
        }

    def save(self, folder: Path, total: int, status: str) -> Record:
        """Write the summary as it stands."""
        kinds = [item.kind for item in self.items]
        limits = {"coref": kinds.count("repeated"), "lambada": kinds.count("lambada")}
        rows = [row_of(record) for record in self.records]
        return write_summary(folder, rows, total, (time.monotonic() - self.started) / 60, status, limits)


def trained_mode(checkpoint: Checkpoint, device: str | None) -> tuple[str, str] | None:
    """The precision and attention of the training that the checkpoint is of, where that is known and was here."""
    record = read_record(checkpoint.path.resolve().parent / "gear.json") if checkpoint.path.is_dir() else None
    if record is None:
        return None
    from danseo.models.masked.load import usable_device

    if not {"precision", "attention"} <= record.keys() or record.get("device") != usable_device(device).type:
        return None
    return str(record["precision"]), str(record["attention"])


def record_of(
    checkpoint: Checkpoint, result: ProbeResult, masked: Any, identity: Identity, seconds: dict[str, float]
) -> Record:
    """The old fields, by the old lenient rule, and the new ones."""
    from danseo.models.masked.load import library_versions
    from danseo.probing.filter import tokenizer_hash

    return {
        **_old_fields(checkpoint, result, masked.model.config.model_type, seconds),
        "schema_version": SCHEMA,
        "status": "ok",
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        **_strict_fields(result),
        **vars(identity),
        "spelling": result.spelling,
        "tokenizer_hash": tokenizer_hash(masked.tokenizer),
        "analyser": result.analyser,
        "device": str(masked.device),
        "dtype": masked.precision,
        "libraries": library_versions(),
        "probes": dict(result.probes),
        "hits": {kind: dict(found) for kind, found in result.hits.items()},
    }


def _old_fields(checkpoint: Checkpoint, result: ProbeResult, family: str, seconds: dict[str, float]) -> Record:
    """What the old evaluation wrote, under its names."""
    info = {
        "path": checkpoint.source,
        "name": checkpoint.name,
        "seq_len": result.seq_len,
        "model_type": family,
        "global_step": checkpoint.step,
        "epoch": checkpoint.epoch,
    }
    return {
        "checkpoint": checkpoint.source,
        "seq_len": result.seq_len,
        "evaluated_at": _now(),
        "lambada_top1": result.value("lambada", "lenient@1"),
        "real1": result.value("repeated", "lenient@1"),
        "real5": result.value("repeated", "lenient@5"),
        "coref_samples": result.probes.get("repeated", {}).get("n", 0),
        "score": result.composite("lenient"),
        "total_time": sum(seconds.values()),
        "eval_time_seconds": result.seconds["probing"],
        "timings": seconds,
        "checkpoint_info": info,
    }


def _strict_fields(result: ProbeResult) -> Record:
    return {
        "strict1": result.value("repeated", "strict@1"),
        "strict1_interval": [result.share("repeated", "strict@1").get(end) for end in ("low", "high")],
        "strict5": result.value("repeated", "strict@5"),
        "choice1": result.value("repeated", "choice@1"),
        "lambada_strict1": result.value("lambada", "strict@1"),
        "composite": result.composite("strict"),
        "weights": list(result.weights),
    }


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0, tzinfo=None).isoformat()


def _line(record: Record) -> str:
    shown = {"strict@1": "strict1", "strict@5": "strict5", "choice@1": "choice1", "composite": "composite"}
    scores = ", ".join(f"{name} {100 * record[key]:.1f}" for name, key in shown.items() if record[key] is not None)
    return f"{shown_name(record['checkpoint'])}: {scores} ({record['total_time']:.1f} s)"
