"""Predict a stream of lines in batches (`danseo predict`) with the model of a run or an export."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from danseo.data.input_reader import (
    BadLine,
    CsvLines,
    InputLine,
    LinesToUtf8,
    NumberedLine,
    group_lines,
    is_table_header,
    open_lines,
    read_line,
)
from danseo.display.escaping import BYTE_ORDER_MARK, say
from danseo.errors import DanseoError, DataError, PartlyDone
from danseo.files import make_write_error
from danseo.inference.output import ANSWER_ONLY, RecordOptions, get_writer, predict_records
from danseo.language import _
from danseo.models.base import LoadOptions, Model
from danseo.models.encoder.onnx_model import is_exported, load_exported
from danseo.models.registry import load_model
from danseo.runs.store import Run
from danseo.tasktypes.base import AnswerFixer, Task
from danseo.training.processes import join_processes


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model with its task."""

    model: Model
    task: Task
    name: str
    """The name of the run or folder."""
    fixer: AnswerFixer | None = None
    """Corrects its answers (`--fix-particles`)."""


def open_model(path: Path, loading: LoadOptions, *, fix_particles: bool = False) -> LoadedModel:
    """Load the model of a run directory or of an exported folder."""
    if is_exported(path):
        exported, task = load_exported(path, loading)
        return LoadedModel(exported, task, path.resolve().name, _make_fixer(task, fix_particles))
    if not (path / "config.toml").is_file():
        raise DanseoError(
            _("not a run directory or an exported model: {path}; `danseo runs` lists runs").format(path=path)
        )
    run = Run(path)
    fixer = _make_fixer(run.task, fix_particles)
    trust, on_note = loading.trust_remote_code, loading.on_note
    model = load_model(run, loading.device, loading.precision, trust_remote_code=trust, on_note=on_note)
    return LoadedModel(model, run.task, path.resolve().name, fixer)


def _make_fixer(task: Task, fix_particles: bool) -> AnswerFixer | None:
    return task.type.make_particle_fixer(task) if fix_particles else None


_MAX_MESSAGES = 5  # about bad lines; the final message counts them all


def predict_lines(
    path: Path,
    file: str,
    output: Path | None,
    *,
    batch: int = 512,
    source_format: str | None = None,
    style: str | None = None,
    encoding: str | None = None,
    options: RecordOptions = ANSWER_ONLY,
    device: str | None = None,
    precision: str | None = None,
    trust_remote_code: bool = False,
    on_note: Callable[[str], None] = lambda line: None,
    fix_particles: bool = False,
) -> None:
    """Read, predict and write lines; report bad lines on stderr and continue (exit 3).

    Of several processes, the first reads and writes; all of them predict.
    """
    style = style or guess_format(output)
    bad = done = 0
    workers = join_processes(device)
    is_first = workers.rank == 0
    with open_input(file if is_first else os.devnull) as raw:
        source = open_lines(raw, "standard input" if file == "-" else file, encoding)
        if is_first:
            check_target(output, file)
        loading = LoadOptions(device, precision, trust_remote_code, on_note)
        loaded = open_model(path, loading, fix_particles=fix_particles)
        options = RecordOptions(options.text or style in ("conll", "csv"), options.tags, loaded.fixer)
        model, task = loaded.model, loaded.task
        write = get_writer(style, task)
        with open_output(output if is_first else Path(os.devnull)) as sink:
            sink.write(BYTE_ORDER_MARK if style == "csv" and output else "")
            groups = read_groups(source, batch, task, source_format or guess_format(Path(file)), encoding)
            while (rows := workers.broadcast(next(map(list, groups), None))) is not None:
                good, unread = _read_rows(rows, task, with_pos=model.reads_pos)
                for line in unread[: max(0, _MAX_MESSAGES - bad) if is_first else 0]:
                    say(f"danseo: {line.reason}")
                sink.write(write(predict_records(model, task, good, options)))
                sink.flush()
                done, bad = done + len(good), bad + len(unread)
    if is_first:  # it reports bad lines after it has written the others
        _report_bad_lines(bad, done)


def _read_rows(
    rows: Iterable[NumberedLine | BadLine], task: Task, *, with_pos: bool
) -> tuple[list[InputLine], list[BadLine]]:
    """Return the examples of rows, and the rows that cannot be read; an empty line is neither."""
    found = [row if isinstance(row, BadLine) else read_line(row[1], row[0], task, with_pos=with_pos) for row in rows]
    return (
        [item for item in found if isinstance(item, InputLine)],
        [item for item in found if isinstance(item, BadLine)],
    )


def _report_bad_lines(bad: int, done: int) -> None:
    """Raise an error if lines could not be read: nothing was predicted, or a part."""
    if bad and not done:
        raise DataError(_("{bad} of {bad} lines could not be read; nothing is predicted").format(bad=bad))
    if bad:
        raise PartlyDone(
            _("{bad} of {all} lines could not be read; the other {done} are predicted").format(
                bad=bad, all=bad + done, done=done
            )
        )


def read_groups(
    source: BinaryIO, batch: int, task: Task, source_format: str, encoding: str | None
) -> Iterator[Iterable[NumberedLine | BadLine]]:
    """Yield groups of lines or table rows, and at the end the rest of an unfinished row."""
    own = task.custom
    converter = LinesToUtf8(encoding, own.encoding if own else "")
    table = CsvLines() if source_format == "csv" else None
    if own and table and not own.header:
        table = CsvLines(own.separator, header=False, quotes=own.quotes)
    first = True
    for group in group_lines(source, batch):
        lines = converter.convert(group)
        if first and own and source_format != "lines" and not table and not isinstance(lines[0], BadLine):
            table = CsvLines(quotes=own.quotes) if is_table_header(lines[0][1], own) else None
        first = False
        yield table.convert(lines) if table else lines
    if table:
        yield table.finish()


def guess_format(path: Path | None) -> str:
    """Return csv or conll by the suffix, else JSON lines."""
    name = path.name.removesuffix(".gz") if path else ""
    return "csv" if name.endswith(".csv") else "conll" if name.endswith((".conll", ".conllu")) else "jsonl"


def open_input(file: str) -> AbstractContextManager[BinaryIO]:
    """Open a file, or standard input for "-"."""
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}; name a file of lines, or - for standard input"
        ) from None


def check_target(output: Path | None, file: str) -> None:
    """Raise if the output is the input file or in a missing folder."""
    if output is None:
        return
    if file != "-" and output.exists() and output.samefile(file):
        raise DanseoError(_("output and input are the same file: {output}; name another output").format(output=output))
    if not output.parent.is_dir():
        raise DanseoError(
            _("{output} cannot be written: {parent} is no folder; make it, or choose another place").format(
                output=output, parent=output.parent
            )
        )


def open_output(output: Path | None) -> AbstractContextManager[TextIO]:
    """Open a file, or standard output."""
    if output is None:
        return nullcontext(sys.stdout)
    try:
        return output.open("w", encoding="utf-8")
    except OSError as error:
        raise make_write_error(output, error) from None
