"""A table of action values as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from dqnspeed.system import atomic

# Directions of the actions, in their order, in Gymnasium's environments whose states are the cells of a grid.
ARROWS = {"FrozenLakeEnv": "←↓→↑", "CliffWalkingEnv": "↑→↓←"}


@dataclass(frozen=True)
class TableLayout:
    """The meaning of numbered states and actions.

    Attributes:
        actions: a name for each action.
        shape: rows and columns of the grid whose cells are the states, or ``None``.
        cells: a letter for each cell.
    """

    actions: Sequence[str]
    shape: tuple[int, int] | None = None
    cells: Sequence[str] = ()


def layout_of(env: gymnasium.Env, names: list[str]) -> TableLayout:
    """The layout of ``env``: a grid for FrozenLake and CliffWalking, else only the ``names`` of the actions."""
    game: Any = env.unwrapped
    arrows = ARROWS.get(type(game).__name__)
    if arrows is None:
        return TableLayout(names)
    letters = getattr(game, "desc", None)
    if letters is not None:
        return TableLayout(arrows, letters.shape, [letter.decode() for letter in letters.ravel()])
    rows, columns = game.shape
    last_row = ["S", *["C"] * (columns - 2), "G"]
    return TableLayout(arrows, (rows, columns), [*[""] * (rows - 1) * columns, *last_row])


def draw_table(values: np.ndarray, layout: TableLayout, path: Path, title: str) -> None:
    """Draw the table ``values`` ``(num_states, num_actions)`` into ``path``.

    A grid shows the value of each state, and the arrow of its best action unless all actions are equal. Other tables
    become a map of states against actions.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    if layout.shape is None:
        figure, axes = plt.subplots(figsize=(5, 8), layout="constrained")
        image, label = axes.imshow(values, aspect="auto", interpolation="nearest"), "action value"
        axes.set(xlabel="action", ylabel="state", xticks=range(len(layout.actions)), xticklabels=layout.actions)
    else:
        rows, columns = layout.shape
        figure, axes = plt.subplots(figsize=(1.3 * columns + 1.5, 1.3 * rows + 0.8), layout="constrained")
        best = values.max(axis=1)
        image, label = axes.imshow(best.reshape(rows, columns)), "value of the best action"
        for state, (row, column) in enumerate(np.ndindex(rows, columns)):
            all_equal = np.ptp(values[state]) == 0
            arrow = "" if all_equal else layout.actions[int(values[state].argmax())]
            colour = "black" if best[state] > (best.max() + best.min()) / 2 else "white"
            lines = (-0.28, layout.cells[state], 9), (0.02, arrow, 22), (0.34, f"{best[state]:.2f}", 9)
            for below, text, size in lines:
                axes.text(column, row + below, text, ha="center", va="center", color=colour, fontsize=size)
        axes.set(xticks=[], yticks=[])
    figure.colorbar(image, label=label)
    axes.set_title(title, fontsize=10)
    with atomic.replace(path) as partial:
        figure.savefig(partial, dpi=120, format=path.suffix[1:])
    plt.close(figure)
