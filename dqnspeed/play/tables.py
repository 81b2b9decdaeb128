"""Picture of a table of action values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from dqnspeed.system import atomic

# Directions of the actions, in their order, in Gymnasium's environments whose states are the cells of a grid.
ARROWS = {"FrozenLakeEnv": "←↓→↑", "CliffWalkingEnv": "↑→↓←"}


def draw_table(values: np.ndarray, env: gymnasium.Env, names: list[str], path: Path, title: str) -> None:
    """Draw the table ``values`` ``(num_states, num_actions)`` into ``path``, a PNG file.

    In a grid each cell shows the value and the arrow of its best action, unless all actions are equal. Other tables
    become a map of states against actions, with their ``names``.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    from matplotlib.figure import Figure

    game: Any = env.unwrapped
    arrows = ARROWS.get(type(game).__name__)
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    if arrows is None:
        image = axes.imshow(values, aspect="auto", interpolation="nearest")
        axes.set(xlabel="action", ylabel="state", xticks=range(len(names)), xticklabels=names)
    else:
        shape = game.desc.shape if hasattr(game, "desc") else game.shape
        best = values.max(axis=1)
        image = axes.imshow(best.reshape(shape))
        for state, (row, column) in enumerate(np.ndindex(*shape)):
            arrow = arrows[values[state].argmax()] if np.ptp(values[state]) else ""
            colour = "black" if best[state] > (best.max() + best.min()) / 2 else "white"
            axes.text(column, row, f"{arrow}\n{best[state]:.2f}", ha="center", va="center", color=colour)
        axes.set(xticks=[], yticks=[])
    figure.colorbar(image, label="action value")
    axes.set_title(title)
    with atomic.replace(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
