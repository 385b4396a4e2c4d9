"""Answer a stream of lines: what `danseo predict` does, a few lines at a time."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO

from danseo.data.lines import BadLine, Line, Numbered, lines_in, read_line, unpacked
from danseo.data.tables import CsvLines
from danseo.display.escaping import say
from danseo.errors import DanseoError, DataError, PartlyDone
from danseo.models.protocol import Loading
from danseo.predict.opening import open_model
from danseo.predict.records import PLAIN, Wanted, answered
from danseo.predict.writing import writer_of


def predict_lines(
    path: Path,
    file: str,
    output: Path | None,
    *,
    batch: int = 512,
    source_format: str | None = None,
    style: str | None = None,
    wanted: Wanted = PLAIN,
    device: str | None = None,
    precision: str | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Read, answer and write; bad lines are named on stderr, the others go on, and the end tells (exit 3)."""
    opened_model = open_model(path, Loading(device, precision, trust_remote_code))
    model, task = opened_model.model, opened_model.task
    style = style or _format_of(output)
    write = writer_of(style, task)
    wanted = Wanted(wanted.text or style == "conll", wanted.tags)
    bad = done = 0
    with opened(file) as raw, target(output, file) as sink:
        source = unpacked(raw, "standard input" if file == "-" else file)
        table = CsvLines() if (source_format or _format_of(Path(file))) == "csv" else None
        for rows in _groups(source, batch, table):
            found = [
                row if isinstance(row, BadLine) else read_line(row[1], row[0], task, with_pos=model.reads_pos)
                for row in rows
            ]
            good = [item for item in found if isinstance(item, Line)]
            unread = [item for item in found if isinstance(item, BadLine)]  # an empty line is neither
            for line in unread:
                say(f"danseo: {line.reason}")
            sink.write(write(answered(model, task, good, wanted)))
            sink.flush()
            done, bad = done + len(good), bad + len(unread)
    if bad and not done:
        raise DataError(f"{bad} of {bad} lines could not be read; nothing is answered")
    if bad:
        raise PartlyDone(f"{bad} of {bad + done} lines could not be read; the other {done} are answered")


def _groups(source: BinaryIO, batch: int, table: CsvLines | None) -> Iterator[Iterable[Numbered | BadLine]]:
    """Lines, or rows of a table, as they come; last what is left of a row that never ends."""
    for group in lines_in(source, batch):
        yield table.rows(group) if table else group
    if table:
        yield table.rest()


def _format_of(path: Path | None) -> str:
    """csv where the name says so; lines otherwise."""
    name = path.name.removesuffix(".gz") if path else ""
    return "csv" if name.endswith(".csv") else "conll" if name.endswith((".conll", ".conllu")) else "jsonl"


def opened(file: str) -> AbstractContextManager[BinaryIO]:
    """A file, or standard input for "-"."""
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}; name a file of lines, or - for standard input"
        ) from None


def target(output: Path | None, file: str) -> AbstractContextManager[TextIO]:
    """A file, or standard output; never the file that is read."""
    if output is None:
        return nullcontext(sys.stdout)
    try:
        if file != "-" and output.exists() and output.samefile(file):
            raise DanseoError(f"{output} is what is read; write the answers to another file")
        return output.open("w", encoding="utf-8")
    except OSError as error:
        raise DanseoError(f"{output} cannot be written: {error.strerror}") from None
