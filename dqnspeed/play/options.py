"""The options of ``python -m dqnspeed.play``."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.config.options import option
from dqnspeed.tracking.run_folder import CHECKPOINTS, VIDEOS

NEWEST = "newest"
DEFAULT = "best"


@dataclass(frozen=True)
class PlayConfig:
    run: str = option(
        f"the folder of a run, or a checkpoint; {NEWEST}: the newest run in outputs/ and multirun/", default=NEWEST
    )
    checkpoint: str = option(f"best, final, or the name of another file in {CHECKPOINTS}/", default=DEFAULT)
    trust: bool = option(
        "import an environment that the run's files name, also if they were not made here", default=False
    )
    episodes: int = option("games to play", ge=1, default=5)
    epsilon: float = option("chance of a random action, 0: greedy", ge=0, le=1, default=0.0)
    deterministic: bool | None = option(
        "take the policy's most likely action, false: draw from the policy, null: eval.deterministic", default=None
    )
    noop_max: int | None = option(
        "most no-ops at an ALE game's start, 0: the run's own starts, null: eval.noop_max", ge=0, default=None
    )
    seed: int = option("seed of the games and of random actions", ge=0, lt=2**31, default=0)
    window: bool | None = option("show the games, null: where there is a display", default=None)
    record: bool = option(f"write an mp4 file a game into the run's {VIDEOS}/", default=False)
    overlay: bool = option("draw the stack, the action values and the chosen action beside the game", default=False)
    fps: float | None = option(
        "agent steps shown in a second, null: 60 frames (Atari), the game's own render_fps, or 30", gt=0, default=None
    )
    device: str = option("where the network runs", choices=("auto", "cpu", "cuda", "mps"), default="auto")
