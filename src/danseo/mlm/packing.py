"""Text as a stream of documents, and as rows of tokens on disk: tokenized once, and memory-mapped.

A document is split into parts of at most seq_len tokens, each with the special tokens of the model. A row holds one
part, or several short ones up to seq_len. Positions restart with each part and attention stays inside it
(models/mlm/objective.py), so packing changes speed and nothing else.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from danseo.config.mlm import PretrainConfig
from danseo.errors import DanseoError, DataError
from danseo.files import make_write_error
from danseo.mlm.masking import BEGINS, CONTINUES, SPECIAL
from danseo.mlm.overlap import OverlapFilter
from danseo.mlm.probing.items import ProbeItem
from danseo.rows import read_object
from danseo.text.documents import Document, name_sources, read_documents
from danseo.training.features import Features


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


_MAX_OPEN_ROWS = 32  # rows that short parts can still be added to
SPLITS = ("train", "held_out")
FILES = ("ids", "marks", "parts", "rows")


@dataclass(frozen=True)
class PackedFacts:
    """The sizes of a packed text."""

    documents: int
    rows: int
    parts: int
    tokens: int


class RowWriter:
    """Writes rows to disk, one after the other."""

    def __init__(self, folder: Path, dtype: Any, seq_len: int, pack: bool) -> None:
        folder.mkdir(parents=True)
        self.folder, self.dtype, self.seq_len, self.pack = folder, dtype, seq_len, pack
        self.open_rows: list[list[tuple[Any, Any]]] = []
        self.documents = self.rows = self.parts = self.tokens = 0
        self.hashes = {name: hashlib.sha256() for name in FILES}
        self.stack = ExitStack()
        self.files: dict[str, BinaryIO] = {
            name: self.stack.enter_context((folder / f"{name}.bin").open("wb")) for name in FILES
        }

    def add(self, ids: Any, marks: Any) -> None:
        """Add one part of a document, with its special tokens."""
        if not self.pack or len(ids) == self.seq_len:
            self._write([(ids, marks)])
            return
        open_rows = [row for row in self.open_rows if _count_tokens(row) + len(ids) <= self.seq_len]
        if open_rows:
            row = max(open_rows, key=_count_tokens)
            row.append((ids, marks))
        else:
            row = [(ids, marks)]
            self.open_rows.append(row)
        if len(self.open_rows) > _MAX_OPEN_ROWS:
            row = max(self.open_rows, key=_count_tokens)
            self.open_rows = [other for other in self.open_rows if other is not row]
            self._write(row)

    def _write(self, row: list[tuple[Any, Any]]) -> None:
        self._put("rows", np.array([self.tokens, self.parts], dtype=np.int64).tobytes())
        for ids, marks in row:
            self._put("ids", ids.astype(self.dtype).tobytes())
            self._put("marks", marks.astype(np.uint8).tobytes())
            self._put("parts", np.uint32(len(ids)).tobytes())
            self.tokens += len(ids)
        self.parts += len(row)
        self.rows += 1

    def _put(self, name: str, content: bytes) -> None:
        self.files[name].write(content)
        self.hashes[name].update(content)

    def close(self) -> PackedFacts:
        """Write the open rows, and return the sizes."""
        for row in self.open_rows:
            self._write(row)
        self._put("rows", np.array([self.tokens, self.parts], dtype=np.int64).tobytes())
        self.stack.close()
        return PackedFacts(self.documents, self.rows, self.parts, self.tokens)


def _count_tokens(row: list[tuple[Any, Any]]) -> int:
    return sum(len(ids) for ids, _ in row)


class PackedRows(Sequence["Features"]):
    """The rows of a packed text, read from disk on access."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        dtype = read_object(folder.parent / "facts.json").text("dtype")
        try:
            self.ids, self.marks, self.parts = (
                _map_file(folder / f"{name}.bin", kind)
                for name, kind in (("ids", np.dtype(dtype)), ("marks", np.uint8), ("parts", np.uint32))
            )
            self.rows = _map_file(folder / "rows.bin", np.int64).reshape(-1, 2)
            is_complete = tuple(self.rows[-1]) == (len(self.ids), len(self.parts)) and len(self.marks) == len(self.ids)
        except (OSError, TypeError, ValueError, IndexError):  # missing, or cut off in the middle of a number
            is_complete = False
        if not is_complete:
            raise DanseoError(f"corrupted files: {folder.parent}; remove it and run the command again")
        self.total = min(len(self.rows) - 1, limit or len(self.rows))

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(self.total))]
        if not 0 <= index < self.total:
            raise IndexError(index)
        (start, first), (end, last) = self.rows[index], self.rows[index + 1]
        fields = {"marks": np.asarray(self.marks[start:end]), "parts": np.asarray(self.parts[first:last])}
        return Features(index, self.ids[start:end].astype(np.int64), [], fields)

    def lengths(self) -> Any:
        """Return the number of tokens of each row."""
        return np.diff(self.rows[: self.total + 1, 0])


def _map_file(path: Path, dtype: Any) -> Any:
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)


def split_into_parts(ids: Any, marks: Any, length: int) -> Iterator[tuple[Any, Any]]:
    """Split a document into parts of at most `length` tokens, if possible before a token that begins a unit.

    marks: for each token whether it begins a unit that is masked as a whole (BEGINS), or CONTINUES one.
    """
    start = 0
    while start < len(ids):
        end = min(start + length, len(ids))
        if end < len(ids):
            near = np.flatnonzero(marks[start + length // 2 : end + 1] == BEGINS)
            end = start + length // 2 + int(near[-1]) if len(near) else end
        yield ids[start:end], marks[start:end]
        start = end


def add_special_tokens(ids: Any, marks: Any, special_tokens: tuple[list[int], list[int]]) -> tuple[Any, Any]:
    """Return a part with its special tokens: [CLS] … [SEP]."""
    before, after = special_tokens
    edges = np.full(len(before), SPECIAL), np.full(len(after), SPECIAL)
    return np.concatenate([before, ids, after]).astype(np.int64), np.concatenate([edges[0], marks, edges[1]])


def write_packed(
    folder: Path,
    parts: Iterator[tuple[str, int, Any, Any]],
    vocabulary: int,
    seq_len: int,
    pack: bool,
    left_out: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Write (split, document number, ids, marks) to a folder, completely or not at all."""
    fresh = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    dtype = np.uint16 if vocabulary <= 2**16 else np.uint32
    try:
        writers = {split: RowWriter(fresh / split, dtype, seq_len, pack) for split in SPLITS}
        latest = dict.fromkeys(SPLITS, -1)
        for split, document, ids, marks in parts:
            writers[split].add(ids, marks)
            writers[split].documents += document != latest[split]
            latest[split] = document
        facts = {split: asdict(writer.close()) for split, writer in writers.items()}
        description = {"dtype": np.dtype(dtype).name, **facts, "left_out": left_out()}
        description["sha256"] = {
            f"{split}/{name}": digest.hexdigest()
            for split, writer in writers.items()
            for name, digest in writer.hashes.items()
        }
        (fresh / "facts.json").write_text(json.dumps(description), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    except OSError as error:
        raise make_write_error(folder, error) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_facts(folder: Path, noun: str = "document", setting: str = "text.held_out_ratio") -> dict[str, PackedFacts]:
    """Return the sizes of each split; raise an error that names the setting if one is empty."""
    document = read_object(folder / "facts.json")
    names = [field.name for field in fields(PackedFacts)]
    facts = {split: PackedFacts(*map(document.child(split).integer, names)) for split in SPLITS}
    if not facts["train"].rows:
        raise DanseoError(f"no {noun} is left to train on; give more text or lower {setting}")
    if not facts["held_out"].rows:
        raise DanseoError(f"no {noun} is held out; give more text or raise {setting}")
    return facts


def check_packed(folder: Path) -> None:
    """Raise an error if rows differ from their recorded hashes: only a hash finds a changed bit."""
    known = read_object(folder / "facts.json").values.get("sha256") or {}
    for name in known if isinstance(known, dict) else ():
        try:
            with (folder / f"{name}.bin").open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            digest = ""
        if digest != known[name]:
            raise DanseoError(f"corrupted file: {folder / name}.bin; remove {folder} and run the command again")


def read_left_out(folder: Path) -> dict[str, Any]:
    """Return the counts of documents removed because they contain probe items."""
    return dict(read_object(folder / "facts.json").values.get("left_out") or {})


_BATCH_SIZE = 256
Part = tuple[str, int, Any, Any]
"""Split name, document number, ids and marks of a part."""


def pack_texts(
    folder: Path,
    paths: list[Path],
    tokenizer: Any,
    config: PretrainConfig,
    exclude: Sequence[ProbeItem] = (),
    on_read: Callable[[int], None] = lambda count: None,
) -> None:
    """Tokenize the texts into a folder of rows, without the documents that contain probe items."""
    overlap_filter = OverlapFilter(exclude)
    parts = encode_parts(stream_documents(paths, overlap_filter, on_read), tokenizer, config)
    write_packed(folder, parts, len(tokenizer), config.text.seq_len, config.text.packing, overlap_filter.as_dict)


def encode_parts(documents: Iterable[Document], tokenizer: Any, config: PretrainConfig) -> Iterator[Part]:
    """Yield the parts of all documents in order."""
    special_tokens = find_special_tokens(tokenizer)
    length = config.text.seq_len - sum(map(len, special_tokens))
    for number, (document, ids, marks) in enumerate(encode_documents(documents, tokenizer, config.mask.whole_word)):
        split = "held_out" if is_held_out(document, config.text.held_out_ratio, "pretrain") else "train"
        for part, part_marks in split_into_parts(ids, marks, length):
            yield split, number, *add_special_tokens(part, part_marks, special_tokens)


def encode_documents(documents: Iterable[Document], tokenizer: Any, units: str) -> Iterator[tuple[Document, Any, Any]]:
    """Yield every document with its token ids and marks; `units` names what is masked as a whole."""
    from danseo.models.encoder.tokenizer import EncoderTokenizer

    encoder, remaining = EncoderTokenizer(tokenizer, 0), iter(documents)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        texts = [document.text for document in batch]
        morphemes = find_morpheme_spans(texts) if units == "morpheme" else [None] * len(texts)
        for document, encoding, known in zip(batch, encoder.tokenize(texts), morphemes, strict=True):
            if encoding.ids:
                yield document, np.array(encoding.ids), mark_units(document.text, encoding.offsets, known)


def mark_units(text: str, offsets: list[tuple[int, int]], morphemes: list[tuple[int, int]] | None = None) -> Any:
    """Mark the tokens that begin an eojeol or, if morpheme spans are given, a morpheme."""
    positions = np.array(offsets).reshape(-1, 2)
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
    spaces = np.isin(letters, _SPACES)
    begins = np.maximum(positions[:, 0], 0)
    is_valid = begins < len(letters)
    on_space = np.zeros(len(begins), dtype=bool)
    on_space[is_valid] = spaces[begins[is_valid]]  # SentencePiece adds the space to the word after it
    begins = begins + on_space
    first = (begins == 0) | spaces[np.clip(begins - 1, 0, len(letters) - 1)]
    if morphemes is not None:
        starts, inside = _find_boundaries(morphemes, len(letters))
        first = (first | starts[begins]) & ~inside[begins]
    first[1:] &= begins[1:] != begins[:-1]  # the token before is a lone ▁, which already begins this word
    first[1:] &= begins[1:] >= positions[:-1, 1]  # byte tokens may share a character
    first[:1] = True
    return np.where(first, BEGINS, CONTINUES).astype(np.uint8)


def find_morpheme_cuts(morphemes: list[tuple[int, int]], length: int) -> Any:
    """Return where a text may be split: at the start of a morpheme, unless another one continues in that syllable."""
    starts, inside = _find_boundaries(morphemes, length)
    return starts & ~inside


def _find_boundaries(morphemes: list[tuple[int, int]], length: int) -> tuple[Any, Any]:
    """Return where morphemes begin, and which positions are inside one (아름다운 is 아름답 + 은: 운 is in both)."""
    starts, inside = np.zeros((2, length + 1), dtype=bool)
    for start, end in morphemes:
        starts[start] = True
        inside[start + 1 : end] = True
    return starts, inside


_SPACES = np.array([ord(character) for character in " \t\n\r\v\f\u00a0\u3000\u2009\u200a"], dtype=np.uint32)


def find_morpheme_spans(texts: list[str]) -> list[list[tuple[int, int]]]:
    """Return the spans of Kiwi's morphemes; two may share a syllable, and a name may contain a space."""
    return [[(token.start, token.end) for token in tokens] for tokens in _kiwi().tokenize(iter(texts))]


@cache
def _kiwi() -> Any:
    from danseo.text.morphology import KiwiAnalyser

    workers = KiwiAnalyser().workers  # raises a one-line error if Kiwi is not installed
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=workers)


def find_special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text."""
    backend = tokenizer.backend_tokenizer
    plain, full = (backend.encode("가", add_special_tokens=added).ids for added in (False, True))
    before = next(k for k in range(len(full) + 1) if full[k : k + len(plain)] == plain)
    return full[:before], full[before + len(plain) :]
