"""Which pieces of a sequence are to be guessed: drawn anew at every step, from the step's own generator."""

from dataclasses import dataclass
from typing import Any

import numpy as np

CONTINUES, BEGINS, SPECIAL, TARGET, KEPT = range(5)
"""Marks of a piece: inside a unit, first of a unit, none of the text; of a mention to recover, or of another one."""
_MASKED, _RANDOM = 0.8, 0.1  # of the chosen pieces; the rest stays as it is and is guessed all the same


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs of a tokenizer."""

    mask: int
    ordinary: Any
    """The ids that are no special pieces: what a random piece is drawn from."""

    @classmethod
    def of(cls, tokenizer: Any) -> "Vocabulary":
        return cls(tokenizer.mask_token_id, np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids))


@dataclass(frozen=True)
class Masked:
    """A sequence with gaps: its ids, the positions to guess, what was there, and how much each counts."""

    ids: Any
    positions: Any
    labels: Any
    weights: Any


@dataclass(frozen=True)
class Drawn(Masked):
    """A sequence with gaps that are to be filled anew: a number from 0 to 1 for each says with what."""

    draws: Any


def mask_share(minimum: float, maximum: float | None, mean_length: float, seq_len: int) -> float:
    """The share of pieces to mask; a range grows with the mean length of the batch, padding not counted."""
    if maximum is None:
        return minimum
    return minimum + (maximum - minimum) * min(1.0, mean_length / seq_len)


def step_generator(seed: int, step: int, record: int) -> np.random.Generator:
    """The generator of one sequence at one step, however the batch is divided and on whichever process."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), (step << 32) ^ record]))


def chosen(marks: Any, share: float, rng: np.random.Generator, *, whole: bool) -> Any:
    """The positions to guess, in order: exactly that share of the text's pieces, or of pieces in whole units."""
    usable = np.flatnonzero(marks != SPECIAL)
    wanted = max(1, round(share * len(usable))) if len(usable) else 0
    if not whole:
        return np.sort(rng.permutation(usable)[:wanted])
    units = np.cumsum(marks != CONTINUES)[usable]  # special pieces end a unit, also one that a cut has left without end
    _, firsts, sizes = np.unique(units, return_index=True, return_counts=True)
    order = rng.permutation(len(firsts))
    taken = order[: int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1] if wanted else order[:0]
    positions = [usable[firsts[k] : firsts[k] + sizes[k]] for k in taken]
    return np.sort(np.concatenate(positions)) if positions else usable[:0]


def replaced(ids: Any, positions: Any, vocabulary: Vocabulary, rng: np.random.Generator) -> Any:
    """The ids with 80 % of the positions masked, 10 % another piece, 10 % as they were."""
    changed = ids.copy()
    dice = rng.random(len(positions))
    others = rng.choice(vocabulary.ordinary, len(positions))
    kept = np.where(dice < _MASKED + _RANDOM, others, ids[positions])
    changed[positions] = np.where(dice < _MASKED, vocabulary.mask, kept)
    return changed


def mask_text(
    ids: Any, marks: Any, share: float, vocabulary: Vocabulary, rng: np.random.Generator, *, whole: bool = False
) -> Masked:
    """Ordinary masking of a sequence."""
    positions = chosen(marks, share, rng, whole=whole)
    ones = np.ones(len(positions), dtype=np.float32)
    return Masked(replaced(ids, positions, vocabulary, rng), positions, ids[positions], ones)
