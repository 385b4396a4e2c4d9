"""Batches sample_weighted by weight: how often each example comes, and that it changes what is learned."""

import random
from collections import Counter

import pytest

from danseo.training.features import make_epoch_batches, sample_weighted


def test_examples_come_as_often_as_they_weigh():
    weights = [1.0] * 90 + [4.0] * 9 + [0.0]
    counts: Counter[int] = Counter()
    for epoch in range(200):
        batches = make_epoch_batches(100, 8, 1, epoch, weights)
        seen = Counter(index for batch in batches for index in batch)
        assert seen.total() == 100
        assert max(seen.values()) <= 4
        counts.update(seen)
    heavy, light = (sum(counts[k] for k in part) / len(part) for part in (range(90, 99), range(90)))
    assert heavy / light == pytest.approx(4, rel=0.05)
    assert counts[99] == 0


def test_even_weights_leave_nobody_out():
    assert sorted(sample_weighted(range(50), [2.0] * 50, random.Random(1))) == list(range(50))
    plain = make_epoch_batches(60, 4, 1, 0)
    assert make_epoch_batches(60, 4, 1, 0, None) == plain
    assert make_epoch_batches(60, 4, 1, 0, [1.0] * 60) == make_epoch_batches(60, 4, 1, 0, [1.0] * 60)
