"""In which encoding a user's file is written, and the first line that is not."""

import codecs
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from danseo.errors import DataError
from danseo.files import GZIP_MAGIC

_CHUNK = 1 << 16  # bytes


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, plain or gzipped."""
    with path.open("rb") as raw:
        packed = raw.peek(2).startswith(GZIP_MAGIC)
        yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw


def odd_line(path: Path, encoding: str) -> int | None:
    """The first line that is not in the encoding."""
    decoder, line = codecs.getincrementaldecoder(encoding)(), 1
    with unpacked(path) as stream:
        while True:
            chunk = stream.read(_CHUNK)
            try:
                line += decoder.decode(chunk, final=not chunk).count("\n")
            except UnicodeDecodeError as error:
                return line + error.object[: error.start].count(b"\n")
            if not chunk:
                return None


def encoding_of(path: Path) -> str | None:
    """utf-8 or cp949, where all of a file is in it."""
    if odd_line(path, "utf-8") is None:
        return "utf-8"
    return None if _is_mostly_utf8(path) or odd_line(path, "cp949") else "cp949"


def _is_mostly_utf8(path: Path) -> bool:
    """Whether no fewer lines beyond ASCII are UTF-8 than not; those of another encoding hardly ever look so."""
    balance = 0
    with unpacked(path) as stream:
        for line in stream:
            if not line.isascii():
                balance += 1 if _decodes(line, "utf-8") else -1
    return balance >= 0


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def complaint(path: Path, encoding: str | None = None) -> DataError:
    """What to say of a file that is not in its encoding, or in none that danseo can tell."""
    encoding = encoding or ("utf-8" if _is_mostly_utf8(path) else "cp949")
    where = f"{path}, line {odd_line(path, encoding) or 1}"
    if whole := encoding_of(path):
        remedy = f'say encoding = "{whole}" in the task file, for train and dev alike'
        return DataError(f"{where}: not {encoding}, but the whole file is {whole}; {remedy}")
    return DataError(f"{where}: not {encoding} like other lines of it; convert the file to one encoding")
