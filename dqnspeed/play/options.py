"""Options of ``python -m dqnspeed.play``."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.agents.agent import BEST_CHECKPOINT, DEVICES
from dqnspeed.config.options import option
from dqnspeed.tracking.run_folder import CHECKPOINTS, VIDEOS

NEWEST_RUN = "newest"


@dataclass(frozen=True)
class PlayConfig:
    run: str = option(
        f"folder of a run or of a published agent, a checkpoint, zoo:GAME or hub:USER/NAME; {NEWEST_RUN}: the newest "
        f"run in outputs/ and multirun/",
        default=NEWEST_RUN,
    )
    zoo: str | None = option("list: print the agents of the zoo, and play nothing", choices=("list",), default=None)
    checkpoint: str = option(f"best, final, or the name of another file in {CHECKPOINTS}/", default=BEST_CHECKPOINT)
    trust: bool = option("import an environment named by files of the run that were not written here", default=False)
    episodes: int = option("games to play", ge=1, default=5)
    num_envs: int = option("games played at once; several are not shown", ge=1, le=4096, default=1)
    epsilon: float = option("probability of a random action", ge=0, le=1, default=0.0)
    deterministic: bool | None = option(
        "take the policy's most likely action; false: draw from the policy, null: eval.deterministic", default=None
    )
    noop_max: int | None = option(
        "most no-ops at the start of an ALE game; 0: as in training, null: eval.noop_max", ge=0, default=None
    )
    seed: int = option("seed of the games and of random actions", ge=0, lt=2**31, default=0)
    screen: str | None = option(
        "where games are shown: a window, or a page in the browser (web); null: a window if there is a display",
        choices=("window", "web", "none"), default=None,
    )  # fmt: skip
    record: bool = option(f"write an mp4 file of each game into the run's {VIDEOS}/", default=False)
    overlay: bool = option("draw the stack, the action values and the chosen action beside the game", default=False)
    saliency: bool = option("redden what the outputs depend on, in the overlay", default=False)
    fps: float | None = option(
        "agent steps shown a second; null: 60 frames a second (Atari), the game's render_fps, or 30", gt=0, default=None
    )
    device: str = option("device of the network", choices=DEVICES, default="auto")
