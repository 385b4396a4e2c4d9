"""Text as sequences of pieces on disk: encoded once, read by memory map, so that memory does not grow with the text.

A document is cut into parts of at most seq_len pieces, each with the special pieces of the model around it. A row
holds one part, or several short ones up to seq_len. A part never sees its neighbours in the row: positions begin
anew with each, and attention stays inside (models/masked_head.py), so packing changes speed and nothing else.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from danseo.errors import DanseoError, WorkFailed
from danseo.files import remedy
from danseo.pretraining.masking import BEGINS, SPECIAL
from danseo.rows import read_object
from danseo.training.features import Features

_OPEN_ROWS = 32  # that still wait for short parts
SPLITS = ("train", "held_out")
FILES = ("ids", "marks", "parts", "rows")


@dataclass(frozen=True)
class PackedFacts:
    """What a packed text holds."""

    documents: int
    rows: int
    parts: int
    pieces: int


class RowWriter:
    """Rows to disk, one after the other."""

    def __init__(self, folder: Path, dtype: Any, seq_len: int, pack: bool) -> None:
        folder.mkdir(parents=True)
        self.folder, self.dtype, self.seq_len, self.pack = folder, dtype, seq_len, pack
        self.open_rows: list[list[tuple[Any, Any]]] = []
        self.documents = self.rows = self.parts = self.pieces = 0
        self.hashes = {name: hashlib.sha256() for name in FILES}
        self.stack = ExitStack()
        self.files: dict[str, BinaryIO] = {
            name: self.stack.enter_context((folder / f"{name}.bin").open("wb")) for name in FILES
        }

    def add(self, ids: Any, marks: Any) -> None:
        """One part of a document, special pieces included."""
        if not self.pack or len(ids) == self.seq_len:
            self._write([(ids, marks)])
            return
        fitting = [row for row in self.open_rows if _length(row) + len(ids) <= self.seq_len]
        if fitting:
            row = max(fitting, key=_length)
            row.append((ids, marks))
        else:
            row = [(ids, marks)]
            self.open_rows.append(row)
        if len(self.open_rows) > _OPEN_ROWS:
            row = max(self.open_rows, key=_length)
            self.open_rows = [other for other in self.open_rows if other is not row]
            self._write(row)

    def _write(self, row: list[tuple[Any, Any]]) -> None:
        self._put("rows", np.array([self.pieces, self.parts], dtype=np.int64).tobytes())
        for ids, marks in row:
            self._put("ids", ids.astype(self.dtype).tobytes())
            self._put("marks", marks.astype(np.uint8).tobytes())
            self._put("parts", np.uint32(len(ids)).tobytes())
            self.pieces += len(ids)
        self.parts += len(row)
        self.rows += 1

    def _put(self, name: str, content: bytes) -> None:
        self.files[name].write(content)
        self.hashes[name].update(content)

    def close(self) -> PackedFacts:
        for row in self.open_rows:
            self._write(row)
        self._put("rows", np.array([self.pieces, self.parts], dtype=np.int64).tobytes())
        self.stack.close()
        return PackedFacts(self.documents, self.rows, self.parts, self.pieces)


def _length(row: list[tuple[Any, Any]]) -> int:
    return sum(len(ids) for ids, _ in row)


class PackedRows(Sequence["Features"]):
    """The rows of a packed text, read from disk when asked for."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        dtype = read_object(folder.parent / "facts.json").text("dtype")
        try:
            self.ids, self.marks, self.parts = (
                _mapped(folder / f"{name}.bin", kind)
                for name, kind in (("ids", np.dtype(dtype)), ("marks", np.uint8), ("parts", np.uint32))
            )
            self.rows = _mapped(folder / "rows.bin", np.int64).reshape(-1, 2)
            is_whole = tuple(self.rows[-1]) == (len(self.ids), len(self.parts)) and len(self.marks) == len(self.ids)
        except (OSError, TypeError, ValueError, IndexError):  # missing, or cut off in the middle of a number
            is_whole = False
        if not is_whole:
            raise DanseoError(f"{folder.parent} is damaged; remove it and run the command again")
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
        """Pieces per row."""
        return np.diff(self.rows[: self.total + 1, 0])


def _mapped(path: Path, dtype: Any) -> Any:
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)


def parts_of(ids: Any, marks: Any, room: int) -> Iterator[tuple[Any, Any]]:
    """A document's pieces in parts of at most that many; a cut falls before a unit, where one is near."""
    start = 0
    while start < len(ids):
        end = min(start + room, len(ids))
        if end < len(ids):
            near = np.flatnonzero(marks[start + room // 2 : end + 1] == BEGINS)
            end = start + room // 2 + int(near[-1]) if len(near) else end
        yield ids[start:end], marks[start:end]
        start = end


def with_specials(ids: Any, marks: Any, around: tuple[list[int], list[int]]) -> tuple[Any, Any]:
    """A part as the model wants it: [CLS] pieces [SEP]."""
    before, after = around
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
    """Write (split, document number, ids, marks) to a folder, whole or not at all; left_out is told in the end."""
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
        told = {"dtype": np.dtype(dtype).name, **facts, "left_out": left_out()}
        told["sha256"] = {
            f"{split}/{name}": digest.hexdigest()
            for split, writer in writers.items()
            for name, digest in writer.hashes.items()
        }
        (fresh / "facts.json").write_text(json.dumps(told), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    except OSError as error:
        kind = WorkFailed if error.errno == errno.ENOSPC else DanseoError
        raise kind(f"{folder} cannot be written: {error.strerror}; {remedy(error)}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_facts(folder: Path, what: str = "document", share: str = "text.held_out") -> dict[str, PackedFacts]:
    """What is in each split; an empty one is told in words of what the rows are, and of the setting that splits."""
    document = read_object(folder / "facts.json")
    names = [field.name for field in fields(PackedFacts)]
    facts = {split: PackedFacts(*map(document.child(split).integer, names)) for split in SPLITS}
    if not facts["train"].rows:
        raise DanseoError(f"no {what} is left to train on; give more text or lower {share}")
    if not facts["held_out"].rows:
        raise DanseoError(f"no {what} falls into the held-out share; give more text or raise {share}")
    return facts


def check_packed(folder: Path) -> None:
    """Refuse rows that are not what was written, where their hashes were noted: nothing else shows a flipped bit."""
    known = read_object(folder / "facts.json").values.get("sha256") or {}
    for name in known if isinstance(known, dict) else ():
        try:
            with (folder / f"{name}.bin").open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            found = ""
        if found != known[name]:
            raise DanseoError(f"{folder / name}.bin is damaged; remove {folder} and run the command again")


def read_left_out(folder: Path) -> dict[str, Any]:
    """The documents that were left out for the probes, as a guard counted them."""
    return dict(read_object(folder / "facts.json").values.get("left_out") or {})
