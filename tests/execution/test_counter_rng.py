"""Random numbers from a counter against the published generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.execution.arrays import Arrays
from dqnspeed.execution.compiling import compiled
from dqnspeed.execution.counter_rng import GOLDEN, CounterGenerator


def splitmix(state: int, count: int) -> list[int]:
    """The published algorithm, in whole numbers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


DEVICES = [None, "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_equal_splitmix_on_every_device(device: str | None) -> None:
    random = CounterGenerator(7, Arrays(device and torch.device(device)))
    place = random.state_dict()["place"] % 2**64
    drawn = [*random.uniform(5).tolist(), *random.uniform(1000).tolist()]
    assert drawn == [(n >> 11) * 2.0**-53 for n in splitmix(place, 1005)]
    assert random.below(2**31, 3).tolist() == [n >> 33 for n in splitmix(place, 1008)[-3:]]
    # The first numbers of the published generator from the state 1234567.
    assert splitmix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31))
def test_whole_numbers_are_below_their_bound_and_continue_from_a_state(seed: int, bound: int) -> None:
    random, again = CounterGenerator(seed, Arrays(torch.device("cpu"))), CounterGenerator(0, Arrays(None))
    place = random.state_dict()["place"] % 2**64
    first = random.below(torch.tensor(bound), 50)
    assert first.tolist() == [(n * bound) >> 64 for n in splitmix(place, 50)]
    again.load_state_dict(random.state_dict())
    np.testing.assert_array_equal(random.uniform(9), again.uniform(9))


@pytest.mark.integration
def test_a_compiled_draw_multiplies_no_index_by_a_number_of_64_bits() -> None:
    """A GPU's compiler counts indices in 32."""
    from torch._inductor.utils import run_and_get_code

    plain, joined = (CounterGenerator(1, Arrays(torch.device("cpu"))) for _ in range(2))
    drawn, sources = run_and_get_code(compiled(joined.below), 7, 100)
    assert torch.equal(drawn, plain.below(7, 100))
    assert sources and str(2**64 - GOLDEN) not in "".join(sources)
