"""Documents from text files as a stream: plain text, JSON lines, gzipped or not, single files or folders."""

import gzip
import hashlib
import random
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from danseo.errors import DataError
from danseo.files import parse_json
from danseo.rows import as_row

_SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_TITLE = re.compile(r"=+ (.+?) =+$")
_TEXT_FIELDS = ("text", "content", "document", "body")
_ID_FIELDS = ("id", "guid", "novel", "title", "url", "index")
_LONGEST = 200_000  # characters of one document: a file without blank lines is cut, or memory would grow with it
_LONGEST_LINE = 1 << 26  # characters: many a corpus is one line per file
_POOL = 10_000  # documents that are mixed at a time


@dataclass(frozen=True)
class Document:
    """A text with a name; what stands in one document never goes to both dev and test."""

    id: str
    source: str
    text: str

    @property
    def sha256(self) -> str:
        """A hash of the text, by which copies are known whatever they are called."""
        return text_hash(self.text)


def folded(text: str) -> str:
    """The text as it is compared with others: composed Hangul, and one blank for any white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def text_hash(text: str) -> str:
    """Sixteen hex digits of a text; spacing and the form of its Hangul do not count."""
    return hashlib.sha256(folded(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_names(paths: Sequence[Path]) -> dict[str, Path]:
    """A short name for each file or folder: its own without endings, or the whole path where two are alike."""
    names = [path.name.split(".")[0] or str(path) for path in paths]
    return {name if names.count(name) == 1 else str(path): path for name, path in zip(names, paths, strict=True)}


def read_documents(source: str, path: Path) -> Iterator[Document]:
    """The documents of a file, or of all text files of a folder."""
    count = 0
    for file in text_files(path):
        for name, text in _documents_of(file):
            count += 1
            yield Document(f"{file.name.split('.')[0]}:{count}" if name is None else name, source, text)
    if not count:
        raise DataError(f"{path} holds no text; name a file with documents, blank lines between them, or JSON lines")


def text_files(path: Path) -> list[Path]:
    """The file itself, or what a folder holds of plain text and JSON lines."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(_SUFFIXES))
    if not found:
        raise DataError(f"{path} holds no text files; their names end in {', '.join(_SUFFIXES)}")
    return found


def _documents_of(path: Path) -> Iterator[tuple[str | None, str]]:
    try:
        with _opened(path) as file:
            if path.name.removesuffix(".gz").endswith(".jsonl"):
                yield from _from_json_lines(_lines(file, path), path)
            else:
                yield from _from_plain(_without_nul(_lines(file, path), path))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8; convert it: iconv -f CP949 -t UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path} is a damaged gzip file; fetch it again") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    """The lines of a file; one without end would fill the memory."""
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 1), ""), 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}, line {number}: more than {_LONGEST_LINE:,} characters; is this a file of text?")
        yield line


def _without_nul(lines: Iterable[str], path: Path) -> Iterator[str]:
    """The lines of a text; a file of numbers or UTF-16 may pass for UTF-8 and is none."""
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise DataError(f"{path}, line {number}: holds NUL bytes and is no UTF-8 text; name a text file")
        yield line


def _opened(path: Path) -> IO[str]:
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is no file; name a text file, or a folder of them")
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def _from_json_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[str | None, str]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = as_row(
                parse_json(line, path, number),
                f"{path}, line {number}",
                f"JSON lines have one of {', '.join(_TEXT_FIELDS)}",
            )
            field = next((field for field in _TEXT_FIELDS if field in row.values), _TEXT_FIELDS[0])
            name = next((str(row.values[field]) for field in _ID_FIELDS if field in row.values), None)
            if text := row.text(field).strip():
                yield name, text


def _from_plain(lines: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """Blank lines part documents; a first line `= title =` is the name of one."""
    title, parts, size = None, list[str](), 0
    for line in _ended(lines):
        text = line.strip()
        if (not text or size > _LONGEST) and parts:
            yield title, "\n".join(parts)
            title, parts, size = (None if not text else title), [], 0
        if match := _TITLE.match(text) if not parts else None:
            title = match[1]
        elif text:
            parts.append(text)
            size += len(text)


def _ended(lines: Iterable[str]) -> Iterator[str]:
    yield from lines
    yield ""


def shuffled(documents: Iterable[Document], seed: int) -> Iterator[Document]:
    """The documents mixed within a pool of fixed size, so that memory does not grow with the source."""
    rng, pool = random.Random(seed), list[Document]()
    for document in documents:
        pool.append(document)
        if len(pool) >= _POOL:
            position = rng.randrange(len(pool))
            pool[position], pool[-1] = pool[-1], pool[position]
            yield pool.pop()
    rng.shuffle(pool)
    yield from pool


def passages(document: Document, longest: int) -> Iterator[str]:
    """The document in parts of whole lines, each at most so long where lines allow; 0 leaves it whole."""
    if not longest or len(document.text) <= longest:
        yield document.text
        return
    part = ""
    for line in document.text.split("\n"):
        if part and len(part) + 1 + len(line) > longest:
            yield part
            part = ""
        part = f"{part}\n{line}" if part else line
    yield part
