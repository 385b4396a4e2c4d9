"""Batches of similar length: shuffled, reproducible, and never larger than the device takes."""

import random
from collections.abc import Sequence

_POOL = 16  # batches that are sorted together: large enough for little padding, small enough to stay random


def epoch_batches(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """The batches of an epoch: random pools sorted by length and cut, in random order."""
    rng = random.Random(f"{seed} {epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = sorted(order[start : start + _POOL * batch_size], key=lengths.__getitem__)
        batches += [pool[k : k + batch_size] for k in range(0, len(pool), batch_size)]
    rng.shuffle(batches)
    return batches


def packed(indices: Sequence[int], lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The indices from long to short in parts whose padded size stays below the number of tokens."""
    parts: list[list[int]] = []
    width = 0
    for index in sorted(indices, key=lambda k: (-lengths[k], k)):
        if not parts or width * (len(parts[-1]) + 1) > tokens:
            parts.append([])
            width = lengths[index]
        parts[-1].append(index)
    return parts
