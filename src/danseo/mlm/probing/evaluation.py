"""Evaluate checkpoints with probes (`danseo probe`): find them, probe each, compare, draw the curve."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from danseo.display.escaping import say
from danseo.display.progress import LiveDisplay, escape_markup
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import check_writable
from danseo.hub import resolve_model
from danseo.mlm.probing.checkpoints import Checkpoint, StepRange, find_checkpoints, format_name, is_written
from danseo.mlm.probing.items import ProbeItem, hash_items, read_bundled_items, read_items
from danseo.mlm.probing.probe import ProbeOptions, ProbeResult, Progress, probe_model
from danseo.mlm.probing.results import (
    CURVE,
    SCHEMA,
    SUMMARY,
    EvaluationKey,
    Record,
    compare_records,
    find_result,
    make_comparison_key,
    make_comparison_table,
    make_probe_chart,
    make_result_tables,
    make_row,
    make_sweep_table,
    read_record,
    read_reference,
    remove_partial_files,
    write_record,
    write_summary,
)
from danseo.models.encoder.model_info import PACKAGES
from danseo.runs.lock import lock_folder
from danseo.text.documents import hash_tokenizer
from danseo.text.morphology import Analyser, KiwiAnalyser


@dataclass
class CheckpointProber:
    """Probes checkpoints one by one on one set of items."""

    items: Sequence[ProbeItem]
    options: ProbeOptions
    analyser: Analyser
    output: Path | None = None
    device: str | None = None
    precision: str = "auto"
    trust_remote_code: bool = False
    on_progress: Progress = lambda done, total: None
    on_note: Callable[[str], None] = lambda line: None
    batch_size: int | None = None
    reference: Record | None = None
    is_alone: bool = False
    """Whether the user named only one checkpoint: its error is then the error of the command."""
    mode: tuple[str, str] | None = None
    """Precision and attention of all checkpoints, once chosen."""
    records: list[Record] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def probe(self, checkpoint: Checkpoint) -> Record:
        """Return the record of a checkpoint (earlier, new or failed) and save it."""
        folder = self.output or (checkpoint.path.resolve().parent if checkpoint.path.is_dir() else Path())
        try:
            resolve_model(checkpoint.source)
            self._choose_mode(checkpoint, folder)
            key = self.key(checkpoint)
            full = self.key(checkpoint, replace(self.options, quick=False))  # includes the --quick scores
            if record := find_result(folder, checkpoint.name, full) or find_result(folder, checkpoint.name, key):
                self.on_note(f"{format_name(checkpoint.source)}: already probed")
                record = {**record, "checkpoint": checkpoint.source}
            else:
                record = self._evaluate(checkpoint, key)
                write_record(folder, record)
                self.on_note(_format_line(record))
        except (DanseoError, RuntimeError, OSError, ValueError) as error:  # a broken checkpoint is a row, not the end
            if self.is_alone and isinstance(error, DanseoError):
                raise
            record = self._make_failure(checkpoint, error)
            self.on_note(f"{format_name(checkpoint.source)}: failed: {record['error']}")
        self.records.append(record)
        return record

    def _choose_mode(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Choose precision and attention for all: given, or from the training or earlier results, or measured."""
        from danseo.models.mlm.masked_model import OWN, MaskedModel

        if self.mode is None and self.precision != "auto":
            self.mode = self.precision, OWN
        if self.mode is None:
            self.mode = read_training_mode(checkpoint, self.device) or self._read_earlier_mode(folder)
        if self.mode is None:
            masked = MaskedModel.load(checkpoint.source, self.device, "auto", OWN, self.trust_remote_code)
            self.mode = masked.precision, OWN

    def _read_earlier_mode(self, folder: Path) -> tuple[str, str] | None:
        """Return the precision and attention of earlier `auto` results in the folder."""
        rows = (read_record(folder / SUMMARY) or {}).get("results", [])
        ours = (hash_items(self.items), self.options.spelling)
        same = (row for row in rows if row.get("precision") == "auto" and make_comparison_key(row)[:2] == ours)
        return next(((row["dtype"], row["attention"]) for row in same if row["status"] == "ok"), None)

    def key(self, checkpoint: Checkpoint, options: ProbeOptions | None = None) -> EvaluationKey:
        from danseo.models.mlm.masked_model import weights_hash

        settings = {**asdict(options or self.options), "compute": self.mode, "analyser": self.analyser.version}
        config = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        return EvaluationKey(weights_hash(checkpoint.source, self.trust_remote_code), hash_items(self.items), config)

    def _evaluate(self, checkpoint: Checkpoint, key: EvaluationKey) -> Record:
        from danseo.models.mlm.masked_model import MaskedModel

        start = time.perf_counter()
        assert self.mode
        precision, attention = self.mode
        masked = MaskedModel.load(
            checkpoint.source, self.device, precision, attention, self.trust_remote_code, self.batch_size
        )
        masked.on_note = self.on_note
        seconds = {"loading": time.perf_counter() - start}
        result = probe_model(masked, self.items, self.options, self.analyser, self.on_progress)
        self.batch_size = masked.batch_size  # the next checkpoint has the same size
        record = make_record(checkpoint, result, masked, key, {**seconds, **result.seconds})
        return record | {"precision": self.precision, "attention": attention}

    def _make_failure(self, checkpoint: Checkpoint, error: Exception) -> Record:
        return {
            "checkpoint": checkpoint.source,
            "status": "failed",
            "error": " ".join(str(error).split())[:300],
            "evaluated_at": _format_now(),
            "step": checkpoint.step,
            "epoch": checkpoint.epoch,
            "eval_set_hash": hash_items(self.items),
            "spelling": self.options.spelling,
        }

    def save(self, folder: Path, total: int, status: str) -> Record:
        """Write the summary of the records so far."""
        kinds = [item.kind for item in self.items]
        limits = {"coref": kinds.count("repeated"), "lambada": kinds.count("lambada")}
        rows = [make_row(record) for record in self.records]
        minutes = (time.monotonic() - self.started) / 60
        return write_summary(folder, rows, total, minutes, status, limits, self.reference)


def read_training_mode(checkpoint: Checkpoint, device: str | None) -> tuple[str, str] | None:
    """Return precision and attention of the checkpoint's training, if recorded for the same device type."""
    from danseo.training.precision import COMPUTE_FILE

    record = read_record(checkpoint.path.resolve().parent / COMPUTE_FILE) if checkpoint.path.is_dir() else None
    if record is None:
        return None
    from danseo.models.mlm.masked_model import choose_device

    if not {"precision", "attention"} <= record.keys() or record.get("device") != choose_device(device).type:
        return None
    return str(record["precision"]), str(record["attention"])


def make_record(
    checkpoint: Checkpoint, result: ProbeResult, masked: Any, key: EvaluationKey, seconds: dict[str, float]
) -> Record:
    """Return a result record: fields of earlier results (lenient rule), then the newer ones."""
    from danseo.models.mlm.masked_model import library_versions

    return {
        **_make_legacy_fields(checkpoint, result, masked.model.config.model_type, seconds),
        "schema_version": SCHEMA,
        "status": "ok",
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        **_make_strict_fields(result),
        **vars(key),
        "spelling": result.spelling,
        "tokenizer_hash": hash_tokenizer(masked.tokenizer),
        "analyser": result.analyser,
        "device": str(masked.device),
        "dtype": masked.precision,
        "libraries": library_versions(),
        "probes": dict(result.probes),
        "hits": {kind: dict(hits) for kind, hits in result.hits.items()},
    }


def _make_legacy_fields(checkpoint: Checkpoint, result: ProbeResult, family: str, seconds: dict[str, float]) -> Record:
    """Return the fields that earlier evaluations wrote, under their names."""
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
        "evaluated_at": _format_now(),
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


def _make_strict_fields(result: ProbeResult) -> Record:
    return {
        "strict1": result.value("repeated", "strict@1"),
        "strict1_interval": [result.share("repeated", "strict@1").get(end) for end in ("low", "high")],
        "strict5": result.value("repeated", "strict@5"),
        "choice1": result.value("repeated", "choice@1"),
        "lambada_strict1": result.value("lambada", "strict@1"),
        "composite": result.composite("strict"),
        "weights": list(result.weights),
    }


def _format_now() -> str:
    return datetime.now(UTC).replace(microsecond=0, tzinfo=None).isoformat()


def _format_line(record: Record) -> str:
    fields = {"strict@1": "strict1", "strict@5": "strict5", "choice@1": "choice1", "composite": "composite"}
    scores = ", ".join(f"{name} {100 * record[key]:.1f}" for name, key in fields.items() if record[key] is not None)
    return f"{format_name(record['checkpoint'])}: {scores} ({record['total_time']:.1f} s)"


@dataclass(frozen=True)
class ProbeJob:
    """Arguments of the command; poll is the interval with --watch, else None."""

    checkpoints: tuple[str, ...]
    options: ProbeOptions = field(default_factory=ProbeOptions)
    steps: StepRange = field(default_factory=StepRange)
    items: Path | None = None
    split: str = "dev"
    output: Path | None = None
    reference: Path | None = None
    poll: float | None = None
    precision: str = "auto"
    device: str | None = None
    batch_size: int | None = None
    """Windows per forward pass at most; None is limited by their tokens only."""
    trust_remote_code: bool = False
    wait: bool = True
    """Whether to wait for a folder that another process has locked."""


@dataclass(frozen=True)
class ProbeReport:
    """Results of the command: records, summary, comparison and curve."""

    records: list[Record]
    summary: Record
    folder: Path
    reference: Record | None = None
    differences: list[Record] = field(default_factory=list)
    curve: Path | None = None

    @property
    def exit_code(self) -> int:
        """3 if a checkpoint failed, else 0."""
        return 3 if any(record["status"] == "failed" for record in self.records) else 0

    def tables(self) -> list[Table]:
        good = [record for record in self.records if record["status"] == "ok"]
        tables = list(make_result_tables(good[0])) if len(good) == 1 else []
        tables.append(make_sweep_table(self.summary))
        if self.reference:
            tables.append(make_comparison_table(self.differences, self.reference))
        return tables

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "summary": self.summary,
            "records": self.records,
            "comparison": self.differences,
            "curve": str(self.curve) if self.curve else None,
        }


def run_probe(job: ProbeJob, quiet: bool = False) -> ProbeReport:
    """Probe all checkpoints; write the results after each one."""
    items = read_items(job.items, job.split) if job.items else read_bundled_items(job.split)
    waiting = find_checkpoints(job.checkpoints, job.steps, allow_empty=job.poll is not None)
    folder = job.output or _choose_output_folder(job, waiting)
    check_writable(folder)
    with lock_folder(folder, wait=job.wait, on_note=lambda line: None if quiet else say(line), inside=True):
        remove_partial_files(folder)
        return _probe_all(job, items, waiting, folder, quiet)


def _probe_all(
    job: ProbeJob, items: Sequence[ProbeItem], waiting: list[Checkpoint], folder: Path, quiet: bool
) -> ProbeReport:
    spelling = job.options.spelling
    reference = read_reference(job.reference, hash_items(items), spelling) if job.reference else None
    require(*PACKAGES, "kiwipiepy")
    with _Display(quiet=quiet) as display:
        prober = CheckpointProber(
            items, job.options, KiwiAnalyser(), job.output, job.device, job.precision, job.trust_remote_code
        )
        prober.on_progress, prober.on_note = display.progress, display.note
        prober.batch_size, prober.reference = job.batch_size, reference
        prober.is_alone = job.poll is None and [each.source for each in waiting] == list(job.checkpoints)[:1]
        for number, checkpoint in enumerate(_iterate_checkpoints(job, waiting, display), 1):
            display.start(number, max(number, len(waiting)), format_name(checkpoint.source))
            prober.probe(checkpoint)
            prober.save(folder, max(number, len(waiting)), "running")
    summary = prober.save(folder, max(len(prober.records), len(waiting)), "complete")
    good = [record for record in prober.records if record["status"] == "ok"]
    differences = compare_records(good, reference) if reference else []
    return ProbeReport(prober.records, summary, folder, reference, differences, _draw_curve(summary, good, folder))


def _choose_output_folder(job: ProbeJob, checkpoints: list[Checkpoint]) -> Path:
    """Return the folder of the summary without --output-dir: the named folder, or the checkpoint's parent."""
    first = Path(job.checkpoints[0])
    is_parent = first.is_dir() and [each.source for each in checkpoints] != [str(first)]
    return first if is_parent else first.resolve().parent if first.is_dir() else Path()


def _iterate_checkpoints(job: ProbeJob, waiting: list[Checkpoint], display: "_Display") -> Iterator[Checkpoint]:
    """Yield the present checkpoints, then new ones with --watch; Ctrl-C ends the watching and keeps the results."""
    seen: dict[str, None] = {}
    try:
        for checkpoint in waiting:
            if job.poll is None or not checkpoint.path.is_dir() or is_written(checkpoint):
                seen[checkpoint.source] = None
                yield checkpoint
        if job.poll is not None:
            display.note(f"waiting for checkpoints in {', '.join(job.checkpoints)}; Ctrl-C ends")
            display.work_on("")  # there may be nothing to do for hours
        while job.poll is not None:
            time.sleep(job.poll)
            for checkpoint in find_checkpoints(job.checkpoints, job.steps, allow_empty=True):
                if checkpoint.source not in seen and is_written(checkpoint):
                    seen[checkpoint.source] = None
                    yield checkpoint
    except KeyboardInterrupt:
        if job.poll is None:
            raise
        display.note("no longer waiting")


def _draw_curve(summary: Record, good: list[Record], folder: Path) -> Path | None:
    from danseo.display.plots.image_files import save_figures

    rows = [row for row in summary["results"] if row["status"] == "ok"]
    scores = good[0]["probes"].get("repeated", {}).get("baselines", {}) if good else {}
    names = {"nearest": "nearest noun @1", "frequent": "most frequent noun @1"}
    baselines = {label: scores[name]["strict@1"]["value"] for name, label in names.items() if name in scores}
    chart = make_probe_chart(rows, baselines)
    if chart is None:
        return None
    save_figures(folder / CURVE, [chart])
    return folder / CURVE


class _Display(LiveDisplay):
    """Shows a progress bar on a terminal, a line per checkpoint elsewhere."""

    title = ""

    def start(self, number: int, count: int, name: str) -> None:
        """Start the bar of the next checkpoint in place of the last one."""
        self.title = f"{name} ({number} of {count})" if count > 1 else name
        self.work_on(f"probing {self.title}")
        if self.bar:
            for task in self.bar.task_ids:
                self.bar.remove_task(task)

    def draw_on(self, console: Any) -> Any:
        from rich.progress import Progress

        return Progress(console=console, transient=True)

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.bar:
            if not self.bar.task_ids:
                self.bar.add_task(escape_markup(self.title), total=total)
            self.bar.update(self.bar.task_ids[0], completed=done)
