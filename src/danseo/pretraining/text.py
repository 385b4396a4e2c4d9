"""The training text: a stream of documents, what identifies it, and which of them are held out."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from danseo.errors import DataError
from danseo.probing.overlap import Guard
from danseo.text.documents import Document, read_documents, source_names


def stream(paths: Sequence[Path], guard: Guard | None = None) -> Iterator[Document]:
    """Every document of files and folders, plain or gzipped, one at a time; a guard lets through what probes allow."""
    if not paths:
        raise DataError("no text; name files or folders with --text")
    for source, path in source_names(paths).items():
        documents = read_documents(source, path)
        yield from guard.passed(documents) if guard else documents


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
