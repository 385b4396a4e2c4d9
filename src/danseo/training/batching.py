"""Batches of similar length: shuffled, reproducible, and never larger than the device takes."""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

_POOL = 16  # batches that are sorted together: large enough for little padding, small enough to stay random


def epoch_batches(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int, weights: Sequence[float] | None = None
) -> list[list[int]]:
    """The batches of an epoch: random pools sorted by length and cut, in random order; all once, or drawn by weight."""
    rng = random.Random(f"{seed} {epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    order = drawn(order, weights, rng) if weights else order
    batches: list[list[int]] = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = sorted(order[start : start + _POOL * batch_size], key=lengths.__getitem__)
        batches += [pool[k : k + batch_size] for k in range(0, len(pool), batch_size)]
    rng.shuffle(batches)
    return batches


def packed(indices: Sequence[int], lengths: Sequence[int], tokens: int, padding: float = math.inf) -> list[list[int]]:
    """The indices from long to short in parts whose padded size and padding stay below these numbers of tokens."""
    parts: list[list[int]] = []
    width = spare = 0
    for index in sorted(indices, key=lambda k: (-lengths[k], k)):
        spare += width - lengths[index]
        if not parts or width * (len(parts[-1]) + 1) > tokens or spare > padding:
            parts.append([])
            width, spare = lengths[index], 0
        parts[-1].append(index)
    return parts


def drawn(order: Sequence[int], weights: Sequence[float], rng: random.Random) -> list[int]:
    """As many as there are, each as often as its weight asks for, within one; who gets the odd one changes each time.

    Marks at even distances over the summed weights: independent draws would leave a third of all examples out.
    """
    reached = list(accumulate(weights[index] for index in order))
    distance = reached[-1] / len(order)
    start = rng.random() * distance
    last = len(order) - 1
    found = [order[min(last, bisect_right(reached, start + k * distance))] for k in range(len(order))]
    rng.shuffle(found)  # else neighbours are copies of each other
    return found
