"""The training text: a stream of documents, what identifies it, and which of them are held out."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.probing.overlap import Guard
from danseo.probing.texts import Document, read_documents, source_names, text_files


def stream(paths: Sequence[Path], guard: Guard | None = None) -> Iterator[Document]:
    """Every document of files and folders, plain or gzipped, one at a time; a guard lets through what probes allow."""
    if not paths:
        raise DataError("no text; name files or folders with --text")
    for source, path in source_names(paths).items():
        documents = read_documents(source, path)
        yield from guard.passed(documents) if guard else documents


def text_identity(paths: Sequence[Path]) -> str:
    """Sixteen hex digits of the files: their bytes, in order."""
    digest = hashlib.sha256()
    for file in (file for path in paths for file in text_files(path)):
        try:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    return digest.hexdigest()[:16]


def tokenizer_identity(tokenizer: Any) -> str:
    """Sixteen hex digits of what a tokenizer makes of text: its rules, vocabulary and special pieces."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}  # set by use
    specials = sorted(tokenizer.special_tokens_map.items(), key=str)
    return hashlib.sha256(json.dumps([rules, specials], sort_keys=True, default=str).encode()).hexdigest()[:16]


def in_share(document: Document, share: float, salt: str) -> bool:
    """Whether a document falls into a share that depends on its text alone, so that copies fall together."""
    digest = hashlib.sha256(f"{salt} {document.sha256}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def spread(documents: Iterator[Document], count: int) -> Iterator[Document]:
    """That many documents, up to twice as many, from all over a stream: every second, fourth, eighth … of it."""
    kept: list[Document] = []
    every = 1
    for number, document in enumerate(documents):
        if number % every == 0:
            kept.append(document)
        if len(kept) >= 2 * count:
            kept, every = kept[::2], 2 * every
    yield from kept
