"""From documents to parts of pieces with their marks: tokenised some at a time, cut, and split by document."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.masking import BEGINS, CONTINUES
from danseo.pretraining.packing import parts_of, with_specials, write_packed
from danseo.pretraining.text import in_share, stream
from danseo.probing.items import ProbeItem
from danseo.probing.overlap import Guard
from danseo.text.documents import Document

_AT_A_TIME = 256
Part = tuple[str, int, Any, Any]
"""The split, the number of the document, and the ids and marks of a part."""


def pack_texts(
    folder: Path, paths: list[Path], tokenizer: Any, config: PretrainConfig, exclude: Sequence[ProbeItem] = ()
) -> None:
    """Encode the texts into a folder of rows, without the documents that hold probe items."""
    guard = Guard(exclude)
    parts = encoded_parts(stream(paths, guard), tokenizer, config)
    write_packed(folder, parts, len(tokenizer), config.text.seq_len, config.text.pack, guard.as_dict)


def encoded_parts(documents: Iterable[Document], tokenizer: Any, config: PretrainConfig) -> Iterator[Part]:
    """The parts of all documents in order."""
    around = specials_around(tokenizer)
    room = config.text.seq_len - sum(map(len, around))
    for number, (document, ids, marks) in enumerate(encoded(documents, tokenizer, config.mask.whole_words)):
        split = "held_out" if in_share(document, config.text.held_out, "pretrain") else "train"
        for part, its_marks in parts_of(ids, marks, room):
            yield split, number, *with_specials(part, its_marks, around)


def encoded(documents: Iterable[Document], tokenizer: Any, units: str) -> Iterator[tuple[Document, Any, Any]]:
    """Every document with its pieces and their marks; units says what is masked as a whole."""
    from danseo.models.encoder.pieces import Pieces

    pieces, waiting = Pieces(tokenizer, 0), iter(documents)
    while some := list(islice(waiting, _AT_A_TIME)):
        texts = [document.text for document in some]
        morphemes = morpheme_spans(texts) if units == "morpheme" else [None] * len(texts)
        for document, encoding, known in zip(some, pieces.cut(texts), morphemes, strict=True):
            if encoding.ids:
                yield document, np.array(encoding.ids), unit_marks(document.text, encoding.offsets, known)


def unit_marks(text: str, offsets: list[tuple[int, int]], morphemes: list[tuple[int, int]] | None = None) -> Any:
    """Which pieces begin an eojeol or, with their spans given, a morpheme."""
    positions = np.array(offsets).reshape(-1, 2)
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
    spaces = np.isin(letters, _SPACES)
    begins = np.maximum(positions[:, 0], 0)
    inside = begins < len(letters)
    on_space = np.zeros(len(begins), dtype=bool)
    on_space[inside] = spaces[begins[inside]]  # SentencePiece counts the space to the word after it
    begins = begins + on_space
    first = (begins == 0) | spaces[np.clip(begins - 1, 0, len(letters) - 1)]
    if morphemes is not None:
        starts, torn = _seams(morphemes, len(letters))
        first = (first | starts[begins]) & ~torn[begins]
    first[1:] &= begins[1:] != begins[:-1]  # a lone ▁ has begun the word already
    first[1:] &= begins[1:] >= positions[:-1, 1]  # pieces of bytes may share a letter
    first[:1] = True
    return np.where(first, BEGINS, CONTINUES).astype(np.uint8)


def morpheme_cuts(morphemes: list[tuple[int, int]], length: int) -> Any:
    """Where a text may be cut into morphemes: before one, and never inside of another that shares the syllable."""
    starts, torn = _seams(morphemes, length)
    return starts & ~torn


def _seams(morphemes: list[tuple[int, int]], length: int) -> tuple[Any, Any]:
    """Where morphemes begin, and where a cut would tear one: 아름다운 is 아름답 + 은, and 운 belongs to both."""
    starts, torn = np.zeros((2, length + 1), dtype=bool)
    for start, end in morphemes:
        starts[start] = True
        torn[start + 1 : end] = True
    return starts, torn


_SPACES = np.array([ord(character) for character in " \t\n\r\v\f\u00a0\u3000\u2009\u200a"], dtype=np.uint32)


def morpheme_spans(texts: list[str]) -> list[list[tuple[int, int]]]:
    """Where Kiwi's morphemes are; two may share a syllable, and a name may hold a space."""
    return [[(token.start, token.end) for token in tokens] for tokens in _kiwi().tokenize(iter(texts))]


@cache
def _kiwi() -> Any:
    from danseo.text.morphology import KiwiAnalyser

    workers = KiwiAnalyser().workers  # one line where Kiwi is not installed
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=workers)


def specials_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special pieces before and after a text."""
    backend = tokenizer.backend_tokenizer
    plain, full = (backend.encode("가", add_special_tokens=added).ids for added in (False, True))
    before = next(k for k in range(len(full) + 1) if full[k : k + len(plain)] == plain)
    return full[:before], full[before + len(plain) :]
