"""Make batches: random and reproducible for training, within the token limit of the device for computing."""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def make_epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, weights: Sequence[float] | None = None
) -> list[list[int]]:
    """Return the random batches of an epoch; every example once, or sampled by weight."""
    rng = random.Random(f"{seed} {epoch}")
    order = rng.sample(range(count), count)
    order = sample_weighted(order, weights, rng) if weights else order
    return [order[start : start + batch_size] for start in range(0, count, batch_size)]


def make_token_batches(
    indices: Sequence[int], lengths: Sequence[int], tokens: int, padding: float = math.inf, *, packed: bool = False
) -> list[list[int]]:
    """Split indices, from long to short, into batches of at most this many tokens and tokens of padding.

    Packed batches have no padding; others count it.
    """
    parts: list[list[int]] = []
    width = size = spare = 0
    for index in sorted(indices, key=lambda k: (-lengths[k], k)):
        added = lengths[index] if packed else width
        spare += width - lengths[index]
        if not parts or size + added > tokens or spare > padding:
            parts.append([])
            width, size, spare = lengths[index], 0, 0
            added = width
        size += added
        parts[-1].append(index)
    return parts


def sample_weighted(order: Sequence[int], weights: Sequence[float], rng: random.Random) -> list[int]:
    """Sample as many indices as there are, each as often as its weight says, rounded up or down at random.

    Systematic sampling over the summed weights: independent draws would leave out a third of all examples.
    """
    reached = list(accumulate(weights[index] for index in order))
    distance = reached[-1] / len(order)
    start = rng.random() * distance
    last = len(order) - 1
    sampled = [order[min(last, bisect_right(reached, start + k * distance))] for k in range(len(order))]
    rng.shuffle(sampled)  # otherwise copies are neighbours
    return sampled
