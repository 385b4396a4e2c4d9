"""Read the training text as a stream of documents, and decide which of them are held out."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from danseo.errors import DataError
from danseo.mlm.overlap import OverlapFilter
from danseo.text.documents import Document, name_sources, read_documents


def stream_documents(
    paths: Sequence[Path],
    overlap_filter: OverlapFilter | None = None,
    on_read: Callable[[int], None] = lambda count: None,
) -> Iterator[Document]:
    """Yield the documents of files and folders, plain or gzipped, without those that the filter removes."""
    if not paths:
        raise DataError("no text; name files or folders with --text")
    for source, path in name_sources(paths).items():
        documents = read_documents(source, path)
        for document in overlap_filter.filter_documents(documents) if overlap_filter else documents:
            on_read(1)
            yield document


def is_held_out(document: Document, share: float, salt: str) -> bool:
    """Return whether a document is in a pseudo-random share; its text alone decides, so copies stay together."""
    digest = hashlib.sha256(f"{salt} {document.sha256}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def sample_evenly(documents: Iterator[Document], count: int) -> Iterator[Document]:
    """Yield at least `count` and less than 2 × `count` documents, evenly spread; fewer if the stream is shorter."""
    kept: list[Document] = []
    every = 1
    for number, document in enumerate(documents):
        if number % every == 0:
            kept.append(document)
        if len(kept) >= 2 * count:
            kept, every = kept[::2], 2 * every
    yield from kept
