"""Sum tree against sums and searches of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.buffers.sum_tree import SumTree
from dqnspeed.execution.arrays import Arrays

every_array = pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])


@every_array
@settings(max_examples=50, deadline=None)
@given(st.sampled_from([1, 5, 64, 65, 1000, 5000, 140_000, 300_000]), st.integers(0, 2**32 - 1), st.data())
def test_any_order_gives_the_same_sums(device: torch.device | None, size: int, seed: int, data: st.DataObject) -> None:
    rng, arrays = np.random.default_rng(seed), Arrays(device)
    tree, numbers = SumTree(size, arrays), np.zeros(size)
    for count in data.draw(st.lists(st.integers(0, size), max_size=6)):
        index = rng.permutation(size)[:count]
        values = rng.exponential(size=count) * (rng.random(count) < 0.8)
        tree.update(arrays.own(index), arrays.own(values))
        numbers[index] = values
    np.testing.assert_array_equal(tree.values, numbers)
    assert float(tree.total) == pytest.approx(numbers.sum())
    at_once = SumTree(size, arrays)
    at_once.update(arrays.arange(size), arrays.own(numbers.copy()))
    assert tree.total == at_once.total


@every_array
@pytest.mark.parametrize("size", [1, 7, 64, 65, 4097, 140_000, 300_000])
def test_a_search_finds_the_first_sum_beyond_the_value(size: int, device: torch.device | None) -> None:
    rng, arrays = np.random.default_rng(size), Arrays(device)
    numbers = rng.integers(0, 4, size).astype(float)  # whole numbers: sums are exact, and so are hits on a border
    numbers[size // 2] = 1.0
    tree = SumTree(size, arrays)
    tree.update(arrays.arange(size), arrays.own(numbers.copy()))
    values = rng.integers(0, int(numbers.sum()), 1000).astype(float)
    expected = np.searchsorted(numbers.cumsum(), values, side="right")
    np.testing.assert_array_equal(tree.find(arrays.own(values)), expected)
