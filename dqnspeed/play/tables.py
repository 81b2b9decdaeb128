"""A table of action values as a picture, and the path of its policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from dqnspeed.envs import Step
from dqnspeed.system import atomic

# Directions of the actions, in their order, where states are the cells of a grid (Gymnasium's toy text).
ARROWS = {"FrozenLakeEnv": "←↓→↑", "CliffWalkingEnv": "↑→↓←"}


@dataclass(frozen=True)
class World:
    """The meaning of numbered states and actions."""

    actions: Sequence[str]
    shape: tuple[int, int] | None  # of the grid whose cells are the states, row by row
    cells: Sequence[str]  # a letter for each state, or none


def world_of(env: gymnasium.Env, numbers: list[str]) -> World:
    """The states and actions of ``env``: grids for FrozenLake and CliffWalking, for others ``numbers`` as actions."""
    game: Any = env.unwrapped
    arrows = ARROWS.get(type(game).__name__)
    if arrows is None:
        return World(numbers, None, [])
    letters = getattr(game, "desc", None)
    if letters is None:
        rows, columns = game.shape
        last = ["S", *["C"] * (columns - 2), "G"]
        return World(arrows, (rows, columns), [*[""] * (rows - 1) * columns, *last])
    return World(arrows, letters.shape, [letter.decode() for letter in letters.ravel()])


class Walk:
    """The path of a tabular agent through the states."""

    def __init__(self, world: World):
        self._world = world
        self._steps, self._last = list[str](), ""

    def add(self, state: int, action: int, step: Step) -> None:
        """Add a step from ``state``, unless it only started a game."""
        if not step.first[0]:
            self._steps.append(f"{state} {self._world.actions[action]}")
            self._last = str(int(step.frames[0].argmax()))

    def end(self) -> str:
        """The path of the game that ended, states and actions in turn, as in ``0 → 1 ↓ 5``."""
        path = " ".join([*self._steps, self._last])
        self._steps, self._last = [], ""
        return path


def draw(values: np.ndarray, world: World, path: Path, title: str) -> None:
    """Write the table ``(num_states, num_actions)`` as a picture.

    A grid shows the value of each state and the arrow of its best action (none if all are equal); other tables are a
    map of states against actions.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    best = values.max(axis=1)
    if world.shape is None:
        figure, axes = plt.subplots(figsize=(5, 8), layout="constrained")
        image = axes.imshow(values, aspect="auto", interpolation="nearest")
        axes.set(xlabel="action", ylabel="state", xticks=range(len(world.actions)), xticklabels=world.actions)
        figure.colorbar(image, label="action value")
    else:
        rows, columns = world.shape
        figure, axes = plt.subplots(figsize=(1.3 * columns + 1.5, 1.3 * rows + 0.8), layout="constrained")
        image = axes.imshow(best.reshape(rows, columns))
        figure.colorbar(image, label="value of the best action")
        middle = (best.max() + best.min()) / 2
        for state, (row, column) in enumerate(np.ndindex(rows, columns)):
            flat = np.ptp(values[state]) == 0
            arrow = "" if flat else world.actions[int(values[state].argmax())]
            color = "black" if best[state] > middle else "white"
            axes.text(column, row - 0.28, world.cells[state], ha="center", va="center", color=color, fontsize=9)
            axes.text(column, row + 0.02, arrow, ha="center", va="center", color=color, fontsize=22)
            axes.text(column, row + 0.34, f"{best[state]:.2f}", ha="center", va="center", color=color, fontsize=9)
        axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)
    with atomic.replace(path) as partial:
        figure.savefig(partial, dpi=120, format=path.suffix[1:])
    plt.close(figure)
