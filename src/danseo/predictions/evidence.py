"""What runs keep beside their answers, so that ensembles need no model: the arrays of predictions/dev.npz."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from danseo.errors import PredictionError
from danseo.files import MOST, read_bytes

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Spans = list[tuple[str, float]]
"""The best answers to a question with their scores, and at the end "" with the score to beat."""


def packed_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_arrays(path: Path) -> Arrays | None:
    """The arrays of an npz file, never unpickled; None where there is none."""
    if not path.is_file():
        return None
    content = read_bytes(path)
    try:
        arrays = unpacked_arrays(content)
    except ValueError as error:
        raise PredictionError(f"{path}: {error}; run `danseo train --force` again") from None
    if odd := [name for name, array in arrays.items() if array.dtype.kind == "f" and not (array < np.inf).all()]:
        raise PredictionError(f"{path}: {odd[0]} holds NaN or infinite numbers; run `danseo train --force` again")
    return arrays


def unpacked_arrays(content: bytes) -> Arrays:
    """The arrays of an npz file's bytes, unless they would fill the memory; a ValueError says what is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST:
                raise ValueError(f"more than {MOST / 2**30:.3g} GiB of numbers")
        with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except Exception as error:  # a damaged zip or header makes the libraries raise almost anything
        said = str(error) if isinstance(error, ValueError) and "GiB" in str(error) else "not a readable npz file"
        raise ValueError(said) from None  # numpy's own words would advise to unpickle it
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("not a readable npz file")
    return arrays


def tag_arrays(rows: Sequence[Array], labels: Sequence[str]) -> Arrays:
    """Per sentence a table of characters x labels, laid end to end."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    table = np.concatenate(rows) if len(rows) else np.zeros((0, len(labels)), dtype=np.float16)
    return {"probabilities": table, "lengths": lengths, "labels": np.array(labels)}


def tag_rows(arrays: Arrays, labels: Sequence[str]) -> list[Array]:
    """The tables again, their columns in the order of the labels."""
    order = [arrays["labels"].tolist().index(label) for label in labels]
    return np.split(arrays["probabilities"][:, order], np.cumsum(arrays["lengths"])[:-1])


def tree_arrays(trees: Sequence[tuple[Array, Array]], labels: Sequence[str]) -> Arrays:
    """Per sentence the log probabilities of heads, and the best relation for each of them, laid end to end."""
    flat = [np.concatenate([tree[part].ravel() for tree in trees]) for part in (0, 1)]
    words = np.array([len(arcs) for arcs, _ in trees], dtype=np.int64)
    return {"arcs": flat[0], "relations": flat[1].astype(np.int8), "words": words, "labels": np.array(labels)}


def tree_rows(arrays: Arrays, labels: Sequence[str]) -> list[tuple[Array, Array]]:
    """The sentences again; relations as positions among the labels."""
    known = arrays["labels"].tolist()
    positions = np.array([labels.index(label) for label in known])
    words = arrays["words"]
    ends = np.cumsum(words * (words + 1))[:-1]
    columns = zip(
        words.tolist(), np.split(arrays["arcs"], ends), np.split(positions[arrays["relations"]], ends), strict=True
    )
    return [(arcs.reshape(n, n + 1), relations.reshape(n, n + 1)) for n, arcs, relations in columns]


def span_arrays(spans: Sequence[Spans]) -> Arrays:
    """Per question its candidates; the texts as one stretch of UTF-8 with their sizes in characters."""
    pairs = [pair for listed in spans for pair in listed]
    joined = "".join(text for text, _ in pairs).encode()
    return {
        "texts": np.frombuffer(joined, dtype=np.uint8),
        "sizes": np.array([len(text) for text, _ in pairs], dtype=np.int32),
        "scores": np.array([score for _, score in pairs], dtype=np.float64),
        "counts": np.array([len(listed) for listed in spans], dtype=np.int32),
    }


def span_rows(arrays: Arrays) -> list[Spans]:
    """The candidates again."""
    whole, ends = arrays["texts"].tobytes().decode(), np.cumsum(arrays["sizes"]).tolist()
    columns = zip(ends, arrays["sizes"].tolist(), arrays["scores"].tolist(), strict=True)
    pairs = [(whole[end - size : end], score) for end, size, score in columns]
    last = np.cumsum(arrays["counts"]).tolist()
    return [pairs[end - count : end] for end, count in zip(last, arrays["counts"].tolist(), strict=True)]
