from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dqnspeed.envs import FrameStack


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["arrays", "tensors"])
def test_a_new_episode_begins_with_its_first_frame_repeated(kind: Any) -> None:
    stack = FrameStack(2, 3, (1, 2), np.dtype(np.uint8))

    def push(values: list[int], first: list[bool]) -> list[list[int]]:
        stack.push(kind(np.array(values, np.uint8)[:, None, None].repeat(2, 2)), np.array(first))
        return stack.observations[:, :, 0].tolist()

    assert push([1, 5], [True, True]) == [[1, 1, 1], [5, 5, 5]]
    assert push([2, 6], [False, False]) == [[1, 1, 2], [5, 5, 6]]
    assert push([3, 7], [False, True]) == [[1, 2, 3], [7, 7, 7]]
    assert stack.observations.shape == (2, 3, 2)
    assert type(stack.observations) is type(kind(np.empty(0)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_stacks_go_where_frames_are_and_keep_what_was_seen(device: str) -> None:
    """As when a game is resumed, whose stacks are saved as NumPy's."""
    rng, usual, other = np.random.default_rng(0), *(FrameStack(3, 4, (1, 2), np.dtype(np.uint8)) for _ in range(2))
    for step in range(40):
        frames, first = rng.integers(256, size=(3, 1, 2)).astype(np.uint8), rng.random(3) < (step == 0 or 0.2)
        usual.push(frames, first)
        other.push(frames if step % 8 in (0, 1) else torch.from_numpy(frames).to(device), first)
        if step % 8 == 4:
            other.load_state_dict(other.state_dict())
        np.testing.assert_array_equal(torch.as_tensor(other.observations).cpu(), usual.observations)


@pytest.mark.cuda
def test_no_push_waits_for_the_device() -> None:
    stack, frames = FrameStack(2, 4, (1, 2), np.dtype(np.uint8)), torch.zeros(2, 1, 2, dtype=torch.uint8, device="cuda")
    stack.push(frames, np.ones(2, bool))
    try:
        torch.cuda.set_sync_debug_mode("error")
        for first in ([False, False], [True, False]):
            stack.push(frames, np.array(first))
    finally:
        torch.cuda.set_sync_debug_mode("default")
