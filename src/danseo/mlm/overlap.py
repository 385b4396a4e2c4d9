"""Overlap of probe items with other text, read as a stream: the same text, or a shared 13-gram of words.

An n-gram is a 64-bit hash from prefix sums over the characters (Rabin and Karp), so a text takes a few passes. Only the
hashes of the items are kept: memory does not depend on the text that is read.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danseo.mlm.probing.items import ProbeItem
from danseo.text.documents import Document, hash_text, normalize_spaces

NGRAM_WORDS = 13
Hashes = NDArray[np.uint64]
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
_INVERSE = pow(_BASE, -1, 2**64)
_BLANK = 32
_SIEVE = 22  # bits of a hash that are looked up first: most n-grams of a text are in no item


class _Powers:
    """Powers of the base and of its inverse, as many as the longest text needed."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(0, dtype=np.uint64)

    def take(self, count: int) -> tuple[Hashes, Hashes]:
        if count > len(self.up):
            self.up, self.down = (
                np.multiply.accumulate(np.full(count, factor, dtype=np.uint64)) for factor in (_BASE, _INVERSE)
            )
        return self.up[:count], self.down[:count]


class NgramHashes:
    """Hashes of the word n-grams of one text."""

    powers = _Powers()

    def __init__(self, text: str) -> None:
        letters = np.frombuffer(normalize_spaces(text).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        blanks = np.flatnonzero(letters == _BLANK)
        self.starts, self.ends = np.append([0], blanks + 1), np.append(blanks, len(letters))
        self.words = len(self.starts) if len(letters) else 0
        up, self.down = self.powers.take(len(letters) + 1)
        self.sums = np.zeros(len(letters) + 1, dtype=np.uint64)
        np.cumsum(letters * up[:-1], out=self.sums[1:])

    def compute(self, length: int = NGRAM_WORDS) -> Hashes:
        """Return one hash per n-gram of so many words; equal n-grams have equal hashes."""
        count = self.words - length + 1
        if count <= 0:
            return np.zeros(0, dtype=np.uint64)
        starts, ends = self.starts[:count], self.ends[length - 1 :]
        hashes: Hashes = (self.sums[ends] - self.sums[starts]) * self.down[starts]
        return hashes


class _NgramIndex:
    """N-gram hashes of one length, and the texts they come from."""

    def __init__(self, hashes_by_text: Sequence[tuple[int, Hashes]]) -> None:
        numbers = np.concatenate([numbers for _, numbers in hashes_by_text])
        owners = np.repeat([owner for owner, _ in hashes_by_text], [len(numbers) for _, numbers in hashes_by_text])
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.owners = numbers[order], owners[order]
        self.sieve = np.zeros(2**_SIEVE, dtype=bool)
        self.sieve[self._take_prefix(self.numbers)] = True

    def find_owners(self, numbers: Hashes) -> set[int]:
        likely = numbers[self.sieve[self._take_prefix(numbers)]]
        first, last = (np.searchsorted(self.numbers, likely, side) for side in ("left", "right"))
        return {int(owner) for k in np.flatnonzero(last > first) for owner in self.owners[first[k] : last[k]]}

    @staticmethod
    def _take_prefix(numbers: Hashes) -> Hashes:
        short: Hashes = numbers >> np.uint64(64 - _SIEVE)
        return short


class OverlapCounter:
    """Finds the items that share a 13-gram with the texts it reads; a shorter item must be contained entirely."""

    def __init__(self, items: Sequence[ProbeItem]) -> None:
        self.texts = list(dict.fromkeys(item.text for item in items))
        positions = {text: position for position, text in enumerate(self.texts)}
        self.text_of = [positions[item.text] for item in items]
        ngrams = [NgramHashes(text) for text in self.texts]
        self.lengths = [min(NGRAM_WORDS, each.words) for each in ngrams]
        self.indices = {
            length: _NgramIndex([(k, ngrams[k].compute(length)) for k, own in enumerate(self.lengths) if own == length])
            for length in sorted(set(self.lengths))
        }
        self.met_texts: set[int] = set()

    def match(self, text: str) -> bool:
        """Return whether a text shares an n-gram with an item, and record the items."""
        if not self.indices:
            return False
        ngrams = NgramHashes(text)
        met = set().union(*(index.find_owners(ngrams.compute(length)) for length, index in self.indices.items()))
        self.met_texts |= met
        return bool(met)

    @property
    def met(self) -> NDArray[np.bool_]:
        """For each item, whether a text shared an n-gram with it."""
        return np.array([position in self.met_texts for position in self.text_of], dtype=bool)

    def as_dict(self) -> dict[str, float | int]:
        total, met = len(self.text_of), int(self.met.sum())
        short = sum(self.lengths[position] < NGRAM_WORDS for position in self.text_of)
        rate = met / total if total else 0.0
        return {"n": NGRAM_WORDS, "items": total, "overlapping": met, "rate": rate, "too_short": short}


def hash_texts(items: Iterable[ProbeItem]) -> list[str]:
    """Return the sorted hashes of the items' texts, which a training must exclude."""
    return sorted({hash_text(text) for text in {item.text for item in items}})


def hash_excluded_texts(items: Iterable[ProbeItem]) -> str:
    """Return 16 hex digits of the excluded texts; empty if there are none."""
    hashes = " ".join(hash_texts(items))
    return hashlib.sha256(f"{NGRAM_WORDS} {hashes}".encode()).hexdigest()[:16] if hashes else ""


class OverlapFilter:
    """Excludes documents that are the text of an item or share a 13-gram with one."""

    def __init__(self, items: Sequence[ProbeItem]) -> None:
        self.overlap, self.hashes = OverlapCounter(items), frozenset(hash_texts(items))
        self.counts: Counter[str] = Counter()

    def filter_documents(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents that may be trained on."""
        for document in documents:
            self.counts["documents"] += 1
            if reason := self._find_reason(document):
                self.counts[reason] += 1
            else:
                yield document

    def _find_reason(self, document: Document) -> str | None:
        shares = self.overlap.match(document.text)
        if self.hashes and document.sha256 in self.hashes:
            return "same_text"
        return "shared_run" if shares else None

    def as_dict(self) -> dict[str, Any]:
        """Return counts of documents read and excluded, and of items found in them."""
        overlap, same, shared = self.overlap.as_dict(), self.counts["same_text"], self.counts["shared_run"]
        return {
            "documents_read": self.counts["documents"],
            "documents": same + shared,
            "same_text": same,
            "shared_run": shared,
            "words": overlap["n"],
            "items": overlap["items"],
            "items_met": overlap["overlapping"],
            "overlap_rate": overlap["rate"],
        }


def format_left_out(left_out: dict[str, Any]) -> str:
    """Return a sentence about the excluded documents."""
    same, shared, met = (left_out[name] for name in ("same_text", "shared_run", "items_met"))
    return (
        f"excluded because of the probes: {left_out['documents']:,} of {left_out['documents_read']:,} documents "
        f"({same:,} the same text, {shared:,} share {left_out['words']} words in a row); "
        f"{met:,} of {left_out['items']:,} items ({100 * left_out['overlap_rate']:.1f} %) occur in the text"
    )
