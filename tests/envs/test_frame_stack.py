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
