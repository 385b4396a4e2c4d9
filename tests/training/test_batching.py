import random
from collections import Counter

import pytest

from danseo.training.features import make_epoch_batches, make_token_batches, sample_weighted

RNG = random.Random(1)
SKEWED = [min(256, 8 + int(RNG.lognormvariate(3, 0.8))) for _ in range(5003)]


@pytest.mark.parametrize(("count", "size"), [(5003, 32), (7, 8), (64, 1), (1, 4)])
def test_every_example_comes_exactly_once_per_epoch(count, size):
    batches = make_epoch_batches(count, size, seed=42, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert max(map(len, batches)) <= size
    assert len(batches) == -(-count // size)


def test_seed_and_epoch_alone_decide_the_order():
    first = make_epoch_batches(len(SKEWED), 32, seed=42, epoch=0)
    assert make_epoch_batches(len(SKEWED), 32, seed=42, epoch=0) == first
    assert make_epoch_batches(len(SKEWED), 32, seed=42, epoch=1) != first
    assert make_epoch_batches(len(SKEWED), 32, seed=43, epoch=0) != first


@pytest.mark.parametrize("tokens", [64, 512, 8192])
def test_padded_parts_keep_to_the_budget_and_lose_nothing(tokens):
    chosen = RNG.sample(range(len(SKEWED)), 300)
    parts = make_token_batches(chosen, SKEWED, tokens)
    assert sorted(index for part in parts for index in part) == sorted(chosen)
    for part in parts:
        assert len(part) == 1 or len(part) * max(SKEWED[index] for index in part) <= tokens


@pytest.mark.parametrize("tokens", [64, 8192])
def test_packed_batches_count_tokens_without_padding(tokens):
    parts = make_token_batches(range(300), SKEWED, tokens, packed=True)
    assert sorted(index for part in parts for index in part) == list(range(300))
    sizes = [sum(SKEWED[index] for index in part) for part in parts]
    assert all(size <= tokens or len(part) == 1 for size, part in zip(sizes, parts, strict=True))
    assert len(parts) <= len(make_token_batches(range(300), SKEWED, tokens))


def test_padding_can_be_limited():
    assert make_token_batches(range(5), [9, 9, 8, 3, 2], 1000) == [[0, 1, 2, 3, 4]]
    assert make_token_batches(range(5), [9, 9, 8, 3, 2], 1000, 3) == [[0, 1, 2], [3, 4]]
    assert make_token_batches([], [], 1000, 3) == []


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
