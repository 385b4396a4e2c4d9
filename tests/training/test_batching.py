import random

import pytest

from danseo.training.batching import epoch_batches, packed

RNG = random.Random(1)
SKEWED = [min(256, 8 + int(RNG.lognormvariate(3, 0.8))) for _ in range(5003)]


def padding_share(batches, lengths):
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    return 1 - sum(lengths) / padded


@pytest.mark.parametrize(("count", "size"), [(5003, 32), (7, 8), (64, 1), (1, 4)])
def test_every_example_comes_exactly_once_per_epoch(count, size):
    batches = epoch_batches(SKEWED[:count], size, seed=42, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert max(map(len, batches)) <= size
    assert len(batches) == -(-count // size)


def test_seed_and_epoch_alone_decide_the_order():
    first = epoch_batches(SKEWED, 32, seed=42, epoch=0)
    assert epoch_batches(SKEWED, 32, seed=42, epoch=0) == first
    assert epoch_batches(SKEWED, 32, seed=42, epoch=1) != first
    assert epoch_batches(SKEWED, 32, seed=43, epoch=0) != first


def test_different_epochs_mix_different_examples():
    first, second = (
        {frozenset(batch) for batch in epoch_batches(SKEWED, 32, seed=42, epoch=epoch)} for epoch in (0, 1)
    )
    assert not first & second


def test_skewed_lengths_leave_little_padding():
    arrival = [list(range(start, min(start + 32, len(SKEWED)))) for start in range(0, len(SKEWED), 32)]
    share = padding_share(epoch_batches(SKEWED, 32, seed=42, epoch=0), SKEWED)
    assert share < 0.25
    assert share < padding_share(arrival, SKEWED) / 3


def test_lengths_do_not_come_in_order():
    """Long batches all at the end would make the loss of an epoch a staircase."""
    widths = [max(SKEWED[index] for index in batch) for batch in epoch_batches(SKEWED, 32, seed=42, epoch=0)]
    assert widths != sorted(widths)


@pytest.mark.parametrize("tokens", [64, 512, 8192])
def test_packed_parts_keep_to_the_budget_and_lose_nothing(tokens):
    chosen = RNG.sample(range(len(SKEWED)), 300)
    parts = packed(chosen, SKEWED, tokens)
    assert sorted(index for part in parts for index in part) == sorted(chosen)
    for part in parts:
        assert len(part) == 1 or len(part) * max(SKEWED[index] for index in part) <= tokens


def test_an_input_beyond_the_budget_goes_alone():
    assert packed([0, 1, 2], [500, 3, 3], 100) == [[0], [1, 2]]


def test_packing_nothing():
    assert packed([], SKEWED, 100) == []


def test_packed_parts_hold_little_padding_where_that_is_asked():
    assert packed(range(5), [9, 9, 8, 3, 2], 1000) == [[0, 1, 2, 3, 4]]
    assert packed(range(5), [9, 9, 8, 3, 2], 1000, 3) == [[0, 1, 2], [3, 4]]
    assert packed([], [], 1000, 3) == []
