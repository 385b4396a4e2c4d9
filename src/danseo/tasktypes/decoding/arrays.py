"""Arrays in npz files: predictions/dev.npz holds the scores that ensembles combine, so that they load no model."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from danseo.errors import PredictionError
from danseo.files import MAX_BYTES, read_bytes

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


def pack_npz(arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of an npz file that holds the arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(path: Path) -> Arrays | None:
    """Return the arrays of an npz file, or None if there is no file; nothing is unpickled."""
    if not path.is_file():
        return None
    content = read_bytes(path)
    try:
        arrays = unpack_npz(content)
    except ValueError as error:
        raise PredictionError(f"{path}: {error}; run `danseo train --force` again") from None
    if odd := [name for name, array in arrays.items() if array.dtype.kind == "f" and not (array < np.inf).all()]:
        raise PredictionError(f"{path}: {odd[0]} holds NaN or infinite numbers; run `danseo train --force` again")
    return arrays


def unpack_npz(content: bytes) -> Arrays:
    """Return the arrays in the bytes of an npz file; raise ValueError if they are corrupted or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES / 2**30:.3g} GiB of numbers")
        with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except Exception as error:  # a corrupted zip or header makes the libraries raise almost anything
        is_too_large = isinstance(error, ValueError) and "GiB" in str(error)
        raise ValueError(str(error) if is_too_large else "not a readable npz file") from None  # numpy advises pickle
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("not a readable npz file")
    return arrays
