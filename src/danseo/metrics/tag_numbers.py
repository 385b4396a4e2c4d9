"""Tags as numbers: the larger part of the time that a score takes, so it is done on bytes and not tag by tag."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from danseo.metrics.statistic import Array

_WIDTH = 8  # bytes in a whole number, enough for B-PERSON


@lru_cache
def tag_index(types: tuple[str, ...]) -> dict[str, int]:
    """O is 0, B- of the k-th type 2k+1 and I- 2k+2, so arithmetic tells type and position apart."""
    if len(types) > 127:
        raise ValueError(f"{len(types)} entity types; 127 are possible")
    return {
        "O": 0,
        **{f"{prefix}-{name}": 2 * k + 1 + (prefix == "I") for k, name in enumerate(types) for prefix in "BI"},
    }


def tag_numbers(rows: Sequence[Sequence[str]], types: tuple[str, ...]) -> Array:
    """The tags of all sentences, one after the other, as bytes; an unknown tag is a KeyError."""
    numbers = _from_text(rows, types)
    if numbers is None:
        numbers = np.fromiter(map(tag_index(types).__getitem__, chain.from_iterable(rows)), dtype=np.uint8)
    return numbers


def _from_text(rows: Sequence[Sequence[str]], types: tuple[str, ...]) -> Array | None:
    """The same from the joined tags, OOB-PSI-PSO, where a hyphen tells a tag; None if that is not plain to read."""
    width = len(types[0]) + 2 if types else _WIDTH
    if width > _WIDTH or any(len(name) + 2 != width or "-" in name or not name.isascii() for name in types):
        return None
    text = "".join(map("".join, rows)).encode(errors="replace") + bytes(_WIDTH)
    data = np.frombuffer(text, dtype=np.uint8)
    starts = np.flatnonzero(data == ord("-")) - 1
    keys, known, os = _keys(types)
    eights = np.ndarray(len(text) - _WIDTH + 1, dtype="<u8", buffer=text, strides=(1,))  # the bytes from each place on
    words = eights[starts] & np.uint64((1 << 8 * width) - 1)
    found = np.searchsorted(keys, words)
    numbers = np.zeros(sum(map(len, rows)), dtype=np.uint8)
    rest = len(text) - _WIDTH - width * len(starts)  # all of which should be O
    is_rest_o = rest == len(numbers) - len(starts) == np.count_nonzero(data == ord("O")) - os[found].sum()
    if not is_rest_o or not np.array_equal(keys[found], words):
        return None
    numbers[starts - (width - 1) * np.arange(len(starts))] = known[found]
    return numbers


@lru_cache
def _keys(types: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Of each tag: its bytes as a whole number, rising, with a stop at the end; its number; how many O it contains."""
    tags = [(int.from_bytes(tag.encode(), "little"), n, tag.count("O")) for tag, n in tag_index(types).items() if n]
    keys, numbers, os = zip(*sorted(tags), (2**64 - 1, 0, 0), strict=True)
    return np.array(keys, dtype=np.uint64), np.array(numbers, dtype=np.uint8), np.array(os)
