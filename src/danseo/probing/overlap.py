"""What of a probe set stands in other text, read as a stream: the same text, or a run of 13 words of it.

A run is a number of 64 bits that comes from prefix sums over the letters (Rabin and Karp), so a text costs a few passes
over its letters. Only the numbers of the items' runs are held: memory does not depend on what is read.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danseo.probing.items import ProbeItem
from danseo.text.documents import Document, folded, text_hash

LENGTH = 13
Numbers = NDArray[np.uint64]
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
_INVERSE = pow(_BASE, -1, 2**64)
_BLANK = 32
_SIEVE = 22  # bits of a number that are looked up first: most runs of a text are met nowhere


class _Powers:
    """The powers of the base and of its inverse, as many as the longest text needed."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(0, dtype=np.uint64)

    def upto(self, count: int) -> tuple[Numbers, Numbers]:
        if count > len(self.up):
            self.up, self.down = (
                np.multiply.accumulate(np.full(count, factor, dtype=np.uint64)) for factor in (_BASE, _INVERSE)
            )
        return self.up[:count], self.down[:count]


class Runs:
    """The runs of words of one text."""

    powers = _Powers()

    def __init__(self, text: str) -> None:
        letters = np.frombuffer(folded(text).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        blanks = np.flatnonzero(letters == _BLANK)
        self.starts, self.ends = np.append([0], blanks + 1), np.append(blanks, len(letters))
        self.words = len(self.starts) if len(letters) else 0
        up, self.down = self.powers.upto(len(letters) + 1)
        self.sums = np.zeros(len(letters) + 1, dtype=np.uint64)
        np.cumsum(letters * up[:-1], out=self.sums[1:])

    def numbers(self, length: int = LENGTH) -> Numbers:
        """One number per run of so many words; equal runs have equal numbers."""
        count = self.words - length + 1
        if count <= 0:
            return np.zeros(0, dtype=np.uint64)
        starts, ends = self.starts[:count], self.ends[length - 1 :]
        made: Numbers = (self.sums[ends] - self.sums[starts]) * self.down[starts]
        return made


class _Index:
    """Runs of one length, and the texts that they are of."""

    def __init__(self, found: Sequence[tuple[int, Numbers]]) -> None:
        numbers = np.concatenate([numbers for _, numbers in found])
        owners = np.repeat([owner for owner, _ in found], [len(numbers) for _, numbers in found])
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.owners = numbers[order], owners[order]
        self.sieve = np.zeros(2**_SIEVE, dtype=bool)
        self.sieve[self._short(self.numbers)] = True

    def owners_of(self, numbers: Numbers) -> set[int]:
        likely = numbers[self.sieve[self._short(numbers)]]
        first, last = (np.searchsorted(self.numbers, likely, side) for side in ("left", "right"))
        return {int(owner) for k in np.flatnonzero(last > first) for owner in self.owners[first[k] : last[k]]}

    @staticmethod
    def _short(numbers: Numbers) -> Numbers:
        short: Numbers = numbers >> np.uint64(64 - _SIEVE)
        return short


class Overlap:
    """The items that share a run of words with what was read; one of fewer than 13 words counts with all of them."""

    def __init__(self, items: Sequence[ProbeItem]) -> None:
        self.texts = list(dict.fromkeys(item.text for item in items))
        positions = {text: position for position, text in enumerate(self.texts)}
        self.text_of = [positions[item.text] for item in items]
        runs = [Runs(text) for text in self.texts]
        self.lengths = [min(LENGTH, each.words) for each in runs]
        self.indices = {
            length: _Index([(k, runs[k].numbers(length)) for k, own in enumerate(self.lengths) if own == length])
            for length in sorted(set(self.lengths))
        }
        self.met_texts: set[int] = set()

    def read(self, texts: Iterable[str]) -> "Overlap":
        """Look for the items' runs in texts."""
        for text in texts:
            self.meets(text)
        return self

    def meets(self, text: str) -> bool:
        """Whether a text shares a run with an item; which items is remembered."""
        if not self.indices:
            return False
        runs = Runs(text)
        met = set().union(*(index.owners_of(runs.numbers(length)) for length, index in self.indices.items()))
        self.met_texts |= met
        return bool(met)

    @property
    def met(self) -> NDArray[np.bool_]:
        """Item by item, whether it was met."""
        return np.array([position in self.met_texts for position in self.text_of], dtype=bool)

    def as_dict(self) -> dict[str, float | int]:
        total, met = len(self.text_of), int(self.met.sum())
        short = sum(self.lengths[position] < LENGTH for position in self.text_of)
        return {"n": LENGTH, "items": total, "overlapping": met, "rate": met / total if total else 0.0} | {
            "too_short": short
        }


def text_hashes(items: Iterable[ProbeItem]) -> list[str]:
    """The hashes of the items' texts, in order: what a training has to leave out."""
    return sorted({text_hash(text) for text in {item.text for item in items}})


def guard_identity(items: Iterable[ProbeItem]) -> str:
    """Sixteen hex digits of what a guard leaves out; empty where that is nothing."""
    told = " ".join(text_hashes(items))
    return hashlib.sha256(f"{LENGTH} {told}".encode()).hexdigest()[:16] if told else ""


class Guard:
    """Lets documents pass that neither are the text of an item nor share a run of words with one."""

    def __init__(self, items: Sequence[ProbeItem]) -> None:
        self.overlap, self.hashes = Overlap(items), frozenset(text_hashes(items))
        self.counts: Counter[str] = Counter()

    def passed(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that may be trained on."""
        for document in documents:
            self.counts["documents"] += 1
            if reason := self._reason(document):
                self.counts[reason] += 1
            else:
                yield document

    def _reason(self, document: Document) -> str | None:
        shares = self.overlap.meets(document.text)
        if self.hashes and document.sha256 in self.hashes:
            return "same_text"
        return "shared_run" if shares else None

    def as_dict(self) -> dict[str, Any]:
        """How many documents were read and left out, and how many items stood in them."""
        found, same, shared = self.overlap.as_dict(), self.counts["same_text"], self.counts["shared_run"]
        return {
            "documents_read": self.counts["documents"],
            "documents": same + shared,
            "same_text": same,
            "shared_run": shared,
            "words": found["n"],
            "items": found["items"],
            "items_met": found["overlapping"],
            "overlap_rate": found["rate"],
        }


def left_out_line(left_out: dict[str, Any]) -> str:
    """What a guard left out, in words."""
    same, shared, met = (left_out[name] for name in ("same_text", "shared_run", "items_met"))
    return (
        f"left out for the probes: {left_out['documents']:,} of {left_out['documents_read']:,} documents "
        f"({same:,} the same text, {shared:,} share {left_out['words']} words in a row); "
        f"{met:,} of {left_out['items']:,} items ({100 * left_out['overlap_rate']:.1f} %) stand in the text"
    )
