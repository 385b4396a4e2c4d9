"""Read documents from text files as a stream: plain text or JSON lines, gzipped or not, files or folders."""

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from danseo.errors import DataError
from danseo.files import open_text, parse_json
from danseo.language import _
from danseo.rows import as_row
from danseo.text.normalization import compose

_SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_TITLE = re.compile(r"=+ (.+?) =+$")
_TEXT_FIELDS = ("text", "content", "document", "body")
_ID_FIELDS = ("id", "guid", "novel", "title", "url", "index")
_MAX_DOCUMENT = 200_000  # characters: longer documents are split, or memory would grow with them
_ENCODING_BYTES = 1 << 24  # bytes of a file that decide its encoding: corpora are large
_LONGEST_LINE = 1 << 26  # characters: many a corpus is one line per file
_POOL_SIZE = 10_000  # documents


@dataclass(frozen=True)
class Document:
    """A text with a name; its text never goes to both dev and test."""

    id: str
    source: str
    text: str

    @property
    def sha256(self) -> str:
        """A hash of the text, by which copies are found whatever their names are."""
        return hash_text(self.text)


def normalize_spaces(text: str) -> str:
    """Return the text with composed Hangul and one blank for any white space, for comparisons."""
    return " ".join(compose(text).split())


def hash_text(text: str) -> str:
    """Return sixteen hex digits of a text; its spacing and Unicode normal form do not count."""
    return hashlib.sha256(normalize_spaces(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def name_sources(paths: Sequence[Path]) -> dict[str, Path]:
    """Return short name -> path: the name without suffixes, or the whole path if two names are equal."""
    names = [path.name.split(".")[0] or str(path) for path in paths]
    return {name if names.count(name) == 1 else str(path): path for name, path in zip(names, paths, strict=True)}


def read_documents(source: str, path: Path) -> Iterator[Document]:
    """Yield the documents of a file, or of all text files of a folder."""
    count = 0
    for file in find_text_files(path):
        for name, text in _read_file(file):
            count += 1
            yield Document(f"{file.name.split('.')[0]}:{count}" if name is None else name, source, text)
    if not count:
        raise DataError(
            _("{path} contains no text; name a file of documents separated by blank lines, or of JSON lines").format(
                path=path
            )
        )


def find_text_files(path: Path) -> list[Path]:
    """Return the file itself, or the plain text and JSON lines files of a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(_SUFFIXES))
    if not files:
        raise DataError(f"{path} contains no text files; their names end in {', '.join(_SUFFIXES)}")
    return files


def _read_file(path: Path) -> Iterator[tuple[str | None, str]]:
    """Yield the name, if there is one, and the text of every document."""
    if path.exists() and not path.is_file():
        raise DataError(_("{path} is no file; name a text file, or a folder of them").format(path=path))
    with open_text(path, max_bytes=_ENCODING_BYTES) as file:
        read = _read_json_lines if path.name.removesuffix(".gz").endswith(".jsonl") else _read_plain_text
        yield from read(_read_lines(file, path), path)


def _read_lines(file: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file; refuse one that would fill the memory."""
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 1), ""), 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}, line {number}: more than {_LONGEST_LINE:,} characters; is this a file of text?")
        yield line


def _read_json_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[str | None, str]]:
    remedy = f"JSON lines have one of {', '.join(_TEXT_FIELDS)}"
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = as_row(parse_json(line, path, number), f"{path}, line {number}", remedy)
            field = next((field for field in _TEXT_FIELDS if field in row.values), _TEXT_FIELDS[0])
            name = next((str(row.values[field]) for field in _ID_FIELDS if field in row.values), None)
            if text := row.text(field).strip():
                yield name, text


def _read_plain_text(lines: Iterable[str], path: Path) -> Iterator[tuple[str | None, str]]:
    """Yield documents separated by blank lines; a first line `= title =` is the name of one."""
    title, parts, size = None, list[str](), 0
    for number, line in enumerate(chain(lines, [""]), 1):
        if "\0" in line:  # numbers or UTF-16 may be valid UTF-8
            raise DataError(f"{path}, line {number}: contains NUL bytes; name a text file in UTF-8")
        text = line.strip()
        if (not text or size > _MAX_DOCUMENT) and parts:
            yield title, "\n".join(parts)
            title, parts, size = (None if not text else title), [], 0
        if match := _TITLE.match(text) if not parts else None:
            title = match[1]
        elif text:
            parts.append(text)
            size += len(text)


def shuffle_documents(documents: Iterable[Document], seed: int) -> Iterator[Document]:
    """Yield the documents shuffled in a pool of fixed size, so that memory does not grow with the source."""
    rng, pool = random.Random(seed), list[Document]()
    for document in documents:
        pool.append(document)
        if len(pool) >= _POOL_SIZE:
            position = rng.randrange(len(pool))
            pool[position], pool[-1] = pool[-1], pool[position]
            yield pool.pop()
    rng.shuffle(pool)
    yield from pool


def split_passages(document: Document, max_length: int) -> Iterator[str]:
    """Yield parts of whole lines with at most `max_length` characters if lines allow; 0 does not split."""
    if not max_length or len(document.text) <= max_length:
        yield document.text
        return
    part = ""
    for line in document.text.split("\n"):
        if part and len(part) + 1 + len(line) > max_length:
            yield part
            part = ""
        part = f"{part}\n{line}" if part else line
    yield part


def hash_files(paths: Sequence[Path]) -> str:
    """Return sixteen hex digits of the content of files and folders, in order."""
    digest = hashlib.sha256()
    for file in (file for path in paths for file in find_text_files(path)):
        try:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    return digest.hexdigest()[:16]


def hash_tokenizer(tokenizer: Any) -> str:
    """Return sixteen hex digits of the rules, vocabulary and special tokens of a tokenizer."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}  # set by use
    specials = sorted(tokenizer.special_tokens_map.items(), key=str)
    return hashlib.sha256(json.dumps([rules, specials], sort_keys=True, default=str).encode()).hexdigest()[:16]
