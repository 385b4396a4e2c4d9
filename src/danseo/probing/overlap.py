"""How much of a probe set stands in training text: shared runs of 13 words.

Only the runs of the items are held, so memory does not depend on the training text, which is read as a stream.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from danseo.probing.items import ProbeItem

LENGTH = 13
Hashes = NDArray[np.uint64]
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that every word of a run counts whatever its place


def run_hashes(text: str, length: int = LENGTH) -> Hashes:
    """One number per run of so many words; equal runs have equal numbers within one process."""
    words = np.array([hash(word) & 0xFFFFFFFFFFFFFFFF for word in text.split()], dtype=np.uint64)
    count = len(words) - length + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(length):
        mixed = mixed * np.uint64(_FACTOR) + words[place : place + count]
        mixed ^= mixed >> np.uint64(29)
    return mixed


class Overlap:
    """The items that share a run of words with what was read."""

    def __init__(self, items: Sequence[ProbeItem], length: int = LENGTH) -> None:
        self.items, self.length = items, length
        runs = [run_hashes(item.text, length) for item in items]
        self.short = sum(not len(hashes) for hashes in runs)
        self.hashes = np.concatenate(runs) if runs else np.empty(0, dtype=np.uint64)
        self.owners = np.repeat(np.arange(len(items)), [len(hashes) for hashes in runs])
        order = np.argsort(self.hashes, kind="stable")
        self.hashes, self.owners = self.hashes[order], self.owners[order]
        self.met = np.zeros(len(items), dtype=bool)

    def read(self, texts: Iterable[str]) -> "Overlap":
        """Look for the items' runs in training text."""
        for text in texts:
            runs = np.unique(run_hashes(text, self.length))
            first = np.searchsorted(self.hashes, runs, "left")
            last = np.searchsorted(self.hashes, runs, "right")
            for place in np.flatnonzero(last > first):
                self.met[self.owners[first[place] : last[place]]] = True
        return self

    def as_dict(self) -> dict[str, float | int]:
        total = len(self.items)
        met = int(self.met.sum())
        return {"n": self.length, "items": total, "overlapping": met, "rate": met / total if total else 0.0} | {
            "too_short": self.short
        }
