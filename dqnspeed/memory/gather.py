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


def sum_rewards(
    arrays: Arrays, columns: Mapping[str, Array], lane: Array, row: Array, rows: int, gammas: Array
) -> tuple[Array, Array, Array]:
    """Returns of up to n steps, which stop at an episode's end.

    Args:
        gammas: ``(n + 1,) float32``, the discount to the power of 0 to n.

    Returns:
        Discounted sums of rewards, discounts of what follows, 0 where the episode terminated, both ``(B,) float32``;
        and the rows of what follows.
    """

    def column(name: str, at: Array) -> Array:
        return arrays.take(columns[name], at)

    n_step, at = len(gammas) - 1, place(lane, row, rows)
    rewards, terminated, following = column("rewards", at), column("terminated", at), row + 1
    if n_step > 1:
        running = ~(terminated | column("truncated", at))
    for k in range(1, n_step):
        at = place(lane, row + k, rows)
        rewards = rewards + running * gammas[k] * column("rewards", at)
        ended = column("terminated", at)
        terminated = terminated | (running & ended)
        following = following + running
        running = running & ~(ended | column("truncated", at))
    return rewards, arrays.take(gammas, following - row) * ~terminated, following
