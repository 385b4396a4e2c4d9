"""Mask tokens of a sequence: chosen again at every step, with a random generator per step and sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.config.mlm import CorefConfig, MaskSettings

CONTINUES, BEGINS, SPECIAL, TARGET, KEPT = range(5)
"""Marks of a token: inside a unit, first of a unit, special, in the mention to recover, in another mention."""
_MASKED, _RANDOM = 0.8, 0.1  # shares of the chosen tokens; the rest is unchanged, and predicted too

EVALUATED_SHARE = 0.15  # independent of the training, so that held-out losses can be compared
_EVALUATION_SEED = 0xDA25E0


@dataclass(frozen=True)
class Vocabulary:
    """The mask token and the ordinary tokens of a tokenizer."""

    mask: int
    ordinary: Any
    """Ids of tokens that are not special; random tokens are taken from them."""

    @classmethod
    def of(cls, tokenizer: Any) -> "Vocabulary":
        return cls(tokenizer.mask_token_id, np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids))


@dataclass(frozen=True)
class Masked:
    """A masked sequence: its ids, the masked positions, their labels and their weights in the loss."""

    ids: Any
    positions: Any
    labels: Any
    weights: Any


@dataclass(frozen=True)
class MaskedWithDraws(Masked):
    """A masked sequence with a random number from 0 to 1 per position, by which a generator samples a token."""

    draws: Any


def compute_mask_share(minimum: float, maximum: float | None, mean_length: float, seq_len: int) -> float:
    """Return the share of tokens to mask; in a range it grows with the mean length of the batch without padding."""
    if maximum is None:
        return minimum
    return minimum + (maximum - minimum) * min(1.0, mean_length / seq_len)


def make_step_generator(seed: int, step: int, record: int) -> np.random.Generator:
    """Return the random generator of one sequence at one step; it does not depend on parts or processes."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), (step << 32) ^ record]))


def choose_positions(marks: Any, share: float, rng: np.random.Generator, *, whole: bool) -> Any:
    """Return the positions to mask, in order: this share of the text's tokens, or of tokens in whole units."""
    usable = np.flatnonzero(marks != SPECIAL)
    wanted = max(1, round(share * len(usable))) if len(usable) else 0
    if not whole:
        return np.sort(rng.permutation(usable)[:wanted])
    units = np.cumsum(marks != CONTINUES)[usable]  # special tokens end a unit, also one that a split left open
    _, firsts, sizes = np.unique(units, return_index=True, return_counts=True)
    order = rng.permutation(len(firsts))
    taken = order[: int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1] if wanted else order[:0]
    positions = [usable[firsts[k] : firsts[k] + sizes[k]] for k in taken]
    return np.sort(np.concatenate(positions)) if positions else usable[:0]


def replace_tokens(ids: Any, positions: Any, vocabulary: Vocabulary, rng: np.random.Generator) -> Any:
    """Return the ids with 80 % of the positions masked, 10 % random tokens and 10 % unchanged."""
    changed = ids.copy()
    dice = rng.random(len(positions))
    others = rng.choice(vocabulary.ordinary, len(positions))
    kept = np.where(dice < _MASKED + _RANDOM, others, ids[positions])
    changed[positions] = np.where(dice < _MASKED, vocabulary.mask, kept)
    return changed


def mask_text(
    ids: Any, marks: Any, share: float, vocabulary: Vocabulary, rng: np.random.Generator, *, whole: bool = False
) -> Masked:
    """Return a sequence with ordinary masks."""
    positions = choose_positions(marks, share, rng, whole=whole)
    ones = np.ones(len(positions), dtype=np.float32)
    return Masked(replace_tokens(ids, positions, vocabulary, rng), positions, ids[positions], ones)


class TextMasker:
    """Masks text; in a range the share depends on the lengths of the batch."""

    def __init__(self, vocabulary: Vocabulary, config: MaskSettings, seq_len: int, seed: int) -> None:
        self.vocabulary, self.config, self.seq_len, self.seed = vocabulary, config, seq_len, seed
        self.share = config.mlm_probability

    def read_batch(self, batch: Sequence[Any]) -> None:
        """Set the share of a step from the lengths without padding."""
        parts = sum(max(1, len(record.fields["parts"])) for record in batch)
        mean = sum(map(len, batch)) / max(1, parts)
        self.share = compute_mask_share(self.config.mlm_probability, self.config.max_probability, mean, self.seq_len)

    def __call__(self, record: Any, step: int | None) -> Masked:
        share, whole, rng = self._choose_options(record, step)
        return mask_text(record.ids, record.fields["marks"], share, self.vocabulary, rng, whole=whole)

    def _choose_options(self, record: Any, step: int | None) -> tuple[float, bool, np.random.Generator]:
        """Return the share, whether whole units are masked, and the generator; all are fixed in evaluations."""
        if step is None:
            return EVALUATED_SHARE, False, make_step_generator(_EVALUATION_SEED, 0, record.example)
        return self.share, self.config.whole_word != "none", make_step_generator(self.seed, step, record.example)


class ReplacingMasker(TextMasker):
    """Masks for replaced-token detection: every chosen token is masked, with a random number to sample another."""

    def __call__(self, record: Any, step: int | None) -> MaskedWithDraws:
        share, whole, rng = self._choose_options(record, step)
        positions = choose_positions(record.fields["marks"], share, rng, whole=whole)
        ids = record.ids.copy()
        ids[positions] = self.vocabulary.mask
        weights = np.full(len(positions), 1 / share, dtype=np.float32)
        return MaskedWithDraws(ids, positions, record.ids[positions], weights, rng.random(len(positions)))

    def is_text(self, record: Any) -> Any:
        """Return which tokens are text: only these are scored."""
        return record.fields["marks"] != SPECIAL


class MentionMasker:
    """Masks all tokens of a mention, keeps the other mentions, and adds ordinary masks if the objective has them."""

    def __init__(self, vocabulary: Vocabulary, config: CorefConfig) -> None:
        self.vocabulary, self.config = vocabulary, config

    def __call__(self, record: Any, step: int | None) -> Masked:
        marks, objective = record.fields["marks"], "target" if step is None else self.config.objective
        target = np.flatnonzero(marks == TARGET)
        ids = record.ids.copy()
        ids[target] = self.vocabulary.mask  # never unchanged, never a random token
        if objective == "target":
            return Masked(ids, target, record.ids[target], np.ones(len(target), dtype=np.float32))
        rng = make_step_generator(self.config.seed, step or 0, record.example)
        protected = (TARGET, KEPT, SPECIAL) if objective == "both" else (TARGET, SPECIAL)
        usable = np.where(np.isin(marks, protected), SPECIAL, BEGINS)
        others = choose_positions(usable, self.config.mlm_probability, rng, whole=False)
        ids = replace_tokens(ids, others, self.vocabulary, rng)
        if objective == "mlm":
            return Masked(ids, others, record.ids[others], np.ones(len(others), dtype=np.float32))
        positions = np.concatenate([target, others])
        weights = np.repeat([1.0, self.config.mlm_weight], [len(target), len(others)]).astype(np.float32)
        return Masked(ids, positions, record.ids[positions], weights)
