"""What is read from rings: stacks of frames and transitions of several steps, on the host or on a device.

Columns are flat: the row ``r`` of lane ``l`` stands at ``l * rows + r % rows``. Lanes and rows are ``(B,) int64``.
"""

from __future__ import annotations

from collections.abc import Mapping

from dqnspeed.execution.arrays import Array, Arrays


def place(lane: Array, row: Array, rows: int) -> Array:
    """Where the row ``row`` of ``lane`` stands."""
    return lane * rows + row % rows


def stack_places(arrays: Arrays, age: Array, lane: Array, row: Array, stack: int, rows: int) -> Array:
    """Where the frames of the stacks that end with ``row`` stand, oldest first, ``(B, stack) int64``.

    Args:
        age: ``(lanes * rows,) uint8``, how many frames of its episode came before; the first frame is repeated.
    """
    known = arrays.take(age, place(lane, row, rows))[:, None]
    back = arrays.xp.minimum(arrays.arange(stack - 1, -1, -1), known)
    return place(lane[:, None], row[:, None] - back, rows)


def take_stacks(arrays: Arrays, frames: Array, places: Array) -> Array:
    """Frames ``(lanes * rows, C, ...)`` at places ``(B, stack)`` as stacks ``(B, stack * C, ...)``."""
    count, stack = places.shape
    return arrays.take(frames, places.reshape(-1)).reshape(count, stack * frames.shape[1], *frames.shape[2:])


def windows(arrays: Arrays, lane: Array, row: Array, count: int, rows: int) -> Array:
    """Where the rows ``row .. row + count - 1`` stand, ``(B, count) int64``."""
    return place(lane[:, None], row[:, None] + arrays.arange(count), rows)


def sum_rewards(
    arrays: Arrays, columns: Mapping[str, Array], places: Array, gammas: Array
) -> tuple[Array, Array, Array | int]:
    """Returns of up to n steps, which stop at an episode's end.

    Args:
        places: ``(B, n)``, of :func:`windows`: those of n steps.
        gammas: ``(n + 1,) float32``, the discount to the power of 0 to n.

    Returns:
        Discounted sums of rewards, discounts of what follows, 0 where the episode terminated, both ``(B,) float32``;
        and the steps to it, ``(B,) int64`` or one number for all.
    """
    flat = places.reshape(-1)

    def column(name: str) -> Array:
        return arrays.take(columns[name], flat).reshape(places.shape)

    rewards, terminated = column("rewards"), column("terminated")
    if places.shape[1] == 1:
        return rewards[:, 0], gammas[1] * ~terminated[:, 0], 1
    ended = terminated | column("truncated")
    running = ended.cumsum(1) <= ended  # no earlier step was the last
    rewards = running * gammas[:-1] * rewards
    total = rewards[:, 0]
    for k in range(1, places.shape[1]):  # in this order everywhere: a device's own sums have another
        total = total + rewards[:, k]
    steps = running.sum(1)
    return total, arrays.take(gammas, steps) * ~(terminated & running).any(1), steps
