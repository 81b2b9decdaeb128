"""``python -m dqnspeed.play run=FOLDER``: plays a trained agent."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dqnspeed import envs
from dqnspeed.algorithms.gradient import as_tensors
from dqnspeed.cli import compose
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.app import fail, run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import ACTOR_CRITIC, RunConfig
from dqnspeed.envs import ActorError, EnvSpec, Episode, Step, VectorEnv
from dqnspeed.execution.precision import check_execution, precision
from dqnspeed.networks.heads import make_network
from dqnspeed.networks.table import Table
from dqnspeed.play.overlay import Overlay
from dqnspeed.play.tables import Walk, World, draw, world_of
from dqnspeed.runs import checkpoint
from dqnspeed.runs.evaluation import LONGEST, Game, copies, distinct, play_games, with_starts
from dqnspeed.system import atomic, machine, seeding
from dqnspeed.tracking.run_folder import CHECKPOINTS, PLAYED, TABLE, VIDEOS, DamagedError
from dqnspeed.tracking.video import check_encoder, frame_rate, video_name, write_mp4

SAME_AGENT = ("env.", "algo.name", "model.", "wrappers.")  # what a network can be played with


@dataclass(frozen=True)
class PlayConfig:
    run: str = option("the folder of a run")
    checkpoint: str = option(f"best, final, the name of another file in {CHECKPOINTS}/, or a path", default="best")
    episodes: int = option("games to play", ge=1, default=5)
    epsilon: float = option("chance of a random action, 0: greedy", ge=0, le=1, default=0.0)
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


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.play run=FOLDER [KEY=VALUE...]",
    "Watch a trained agent, record its games, and see what it scores.",
    PlayConfig,
)


class Player:
    """A trained network with an environment of its own to play in."""

    def __init__(self, play: PlayConfig):
        self.folder = Path(play.run)
        composed = resuming.load_run(self.folder)
        trained = compose.from_hydra(composed)
        # Equivalent, and able to draw the game; what ran on a GPU need not play on one.
        wrappers = dataclasses.replace(trained.wrappers, backend="gymnasium", clip_reward=False)
        noop_max = trained.eval.noop_max if play.noop_max is None else play.noop_max
        self.run: RunConfig = with_starts(
            dataclasses.replace(trained, wrappers=wrappers, num_envs=1, device=play.device), noop_max
        )
        check_execution(dataclasses.replace(self.run, execution=dataclasses.replace(self.run.execution, compile=False)))
        self.spec: EnvSpec = envs.describe(self.run)
        self.device = machine.pick_device(play.device)
        self.path, state = _load(self.folder / CHECKPOINTS, play.checkpoint)
        self._check_belongs(state, resuming.plain_of(composed), play.checkpoint)
        self.network = make_network(self.run, self.spec)
        try:
            self.agent_steps: int = state["progress"]["agent_steps"]
            self.network.load_state_dict(as_tensors(state["learner"]["network"]))
        except (RuntimeError, KeyError, TypeError) as error:
            raise ConfigError(f"checkpoint={play.checkpoint}: is of another network than this run's.") from error
        self.network.to(self.device).eval()
        self._epsilon, self._rng = play.epsilon, np.random.default_rng(play.seed)
        self.q = np.zeros(self.spec.num_actions, np.float32)  # of the observation acted on last

    def _check_belongs(self, state: checkpoint.State, plain: Mapping[str, Any], name: str) -> None:
        """Raise :class:`ConfigError` where a checkpoint in the run's folder is of another run; one that is named by its
        path may be, where it plays the same game with the same network."""
        differing = resuming.foreign(state.get("config") or {}, plain)  # a version before this one did not tell
        if not self.path.is_relative_to(self.folder):
            differing = [pair for pair in differing if pair.startswith(SAME_AGENT)]
        if differing:
            raise ConfigError(f"checkpoint={name}: is of another run than this folder's ({', '.join(differing)}).")

    def act(self, observations: np.ndarray) -> np.ndarray:
        """The action ``(1,)`` for one observation ``(1, stack * C, ...)``."""
        with torch.inference_mode(), precision(self.run.execution, self.device):
            self.q = self.network(torch.from_numpy(observations).to(self.device))[0].cpu().numpy()
        if self._rng.random() < self._epsilon:
            return self._rng.integers(self.spec.num_actions, size=1)
        return np.array([self.q.argmax()])


def _load(folder: Path, name: str) -> tuple[Path, checkpoint.State]:
    """The checkpoint that is asked for; where ``best`` was not kept, the newest."""
    path = folder / f"{name.removesuffix(checkpoint.SUFFIX)}{checkpoint.SUFFIX}"
    if not path.exists() and Path(name).is_file():
        path = Path(name)
    if name == "best" and not path.exists():
        path = next(iter(checkpoint.candidates(folder)), path)
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in folder.glob(f"*{checkpoint.SUFFIX}"))) or "none"
        raise ConfigError(f"checkpoint={name}: is not in {folder}; there: {there}.")
    try:
        return path, checkpoint.load(path)
    except DamagedError as error:
        raise ConfigError(f"checkpoint={name}: {error}") from error


def play(options: PlayConfig) -> dict[str, Any]:
    """Play, show, record; returns what ``play.json`` gets."""
    window = _wants_window(options)
    if options.record:
        check_encoder("record=true")
    player = Player(options)
    earlier(player.folder)  # what is damaged shows before anything is played
    seeding.seed_everything(options.seed)
    drawn = window or options.record
    env = envs.make_vector_env(player.run, render_mode="rgb_array" if drawn else None)
    with ExitStack() as resources:
        resources.callback(env.close)
        world = _world(player) if isinstance(player.network, Table) else None
        names = env.action_names() or list(world.actions if world else map(str, range(player.spec.num_actions)))
        fps = options.fps or frame_rate(player.run, player.spec)
        screen = resources.enter_context(Screen(fps)) if window else None
        counts, film = Counter[str](), Film(env, player, names, options) if drawn else None
        walk = None if world is None else Walk(world)

        def watch(observations: np.ndarray, actions: np.ndarray, step: Step) -> None:
            counts[names[actions[0]]] += int(not step.first[0])
            if walk is not None:
                walk.see(int(observations[0].argmax()), int(actions[0]), step)
            image = film.see(observations[0], int(actions[0]), step) if film is not None else None
            if image is not None and screen is not None:
                screen.show(image)

        def act(observations: np.ndarray) -> np.ndarray:
            if film is not None:
                film.look()
            return player.act(observations)

        games, played, steps = [], list[Game](), itertools.count(1)
        enough = lambda: next(steps) > LONGEST  # noqa: E731  a greedy policy may go in circles for ever
        results = play_games(env, player.spec, act, [options.seed], options.episodes, watch, enough)
        for number, episode in enumerate(results, start=1):
            games.append(_told(number, episode))
            played.append(episode)
            images = film.cut() if film is not None else []
            if options.record:
                video = f"{VIDEOS}/play_{player.path.stem}_seed{options.seed}_{video_name(number, episode)}"
                write_mp4(player.folder / video, images, fps)
                games[-1]["video"] = video
            print(f"game {number}: return {episode.episode_return:g}, {episode.length:,} agent steps"
                  + (f", {player.folder / games[-1]['video']}" if options.record else ""), flush=True)  # fmt: skip
            if walk is not None:
                games[-1]["path"] = walk.end()
                print(f"  {games[-1]['path']}", flush=True)
        if world is not None:
            _draw_table(player, world)
    returns = [game["return"] for game in games]
    if len(games) < options.episodes:
        print(
            f"The play was ended after {LONGEST:,} steps: the agent may go in circles; epsilon=0.05 leads out of them."
        )
    if told := copies(played):
        print(f"{told} epsilon=0.01, or noop_max=30 in an ALE game, makes them differ.")
    if not games:
        raise ConfigError(f"run={options.run}: no game ended within {LONGEST:,} agent steps; try epsilon=0.05.")
    return {
        "checkpoint": player.path.name,
        "agent_steps": player.agent_steps,
        "epsilon": options.epsilon,
        "seed": options.seed,
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "actions": dict(counts.most_common()),
        "distinct_games": distinct(played),
        "games": games,
    }


class Film:
    """The pictures of a game, each drawn before the action that the agent then took."""

    def __init__(self, env: VectorEnv, player: Player, names: list[str], options: PlayConfig):
        self._env, self._player, self._keep = env, player, options.record
        what = "logits of the policy" if player.run.algo.name in ACTOR_CRITIC else "action values"
        self._overlay = Overlay(names, player.spec.stack, player.spec.largest, what) if options.overlay else None
        self._images: list[np.ndarray] = []
        self._before: np.ndarray | None = None  # the game before the step
        self._steps, self._total = 0, 0.0

    def look(self) -> None:
        """See the very first picture, once the environment was reset."""
        if self._before is None:
            self._before = self._env.render()

    def see(self, observation: np.ndarray, action: int, step: Step) -> np.ndarray | None:
        """The picture of a step that was just taken; ``None`` where it only began a game."""
        image, self._before = self._before, self._env.render()
        if image is None or (step.first[0] and not self._steps):
            return None
        self._steps += 1
        if self._overlay is not None:
            told = f"step {self._steps:,}   reward so far {self._total:g}"
            image = self._overlay.draw(image, observation, self._player.q, action, told)
        self._total += float(step.rewards[0])
        if self._keep:
            self._images.append(image)
        return image

    def cut(self) -> list[np.ndarray]:
        """The pictures of the game that ended, if they are to be recorded; the next game begins without any."""
        images, self._images = self._images, []
        self._steps, self._total = 0, 0.0
        return images


def _world(player: Player) -> World:
    env = envs.make_env(player.run.env, player.run.wrappers)
    try:
        return world_of(env, player.spec.num_actions)
    finally:
        env.close()


def _draw_table(player: Player, world: World) -> None:
    """Write the table into the run's folder as ``table.png``."""
    path = player.folder / TABLE
    if not _installed("matplotlib"):
        print(f"{TABLE} needs matplotlib; pip install 'dqnspeed[report]' brings it.")
        return
    values = player.network.state_dict()["values"].cpu().numpy()
    draw(values, world, path, f"{player.run.env.id} after {player.agent_steps:,} agent steps")
    print(path)


def _told(number: int, episode: Episode) -> dict[str, Any]:
    return {"game": number, "return": episode.episode_return, "length": episode.length}


def _wants_window(options: PlayConfig) -> bool:
    """Whether games are shown; says what to do where they cannot be."""
    if options.window is False:
        return False
    needed = options.window is True
    shows = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    )
    if not shows and needed:
        raise ConfigError("window=true: there is no display here; record=true writes videos instead.")
    if not shows and not options.record:
        print("There is no display here, so the games are played unseen; record=true writes videos of them.")
    if shows and not _installed("pygame"):
        if needed:
            raise ConfigError("window=true: needs pygame; pip install 'dqnspeed[play]' brings it.")
        return False
    return shows


def _installed(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


class Screen:
    """A window that shows pictures at a fixed rate; closing it ends the play."""

    def __init__(self, fps: float):
        self._period, self._next = 1 / fps, 0.0
        self._window: Any = None

    def __enter__(self) -> Screen:
        import pygame

        try:
            pygame.display.init()
        except pygame.error as error:
            raise ConfigError(f"window: cannot be opened ({error}); use window=false or record=true.") from error
        return self

    def __exit__(self, *_: object) -> None:
        import pygame

        pygame.quit()

    def show(self, image: np.ndarray) -> None:
        """Show ``image`` ``(H, W, 3) uint8`` when its time has come.

        Raises:
            KeyboardInterrupt: the window was closed.
        """
        import pygame

        scale = max(1, 420 // image.shape[0])
        size = (image.shape[1] * scale, image.shape[0] * scale)
        if self._window is None:
            self._window = pygame.display.set_mode(size)
            pygame.display.set_caption("dqnspeed")
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise KeyboardInterrupt
        surface = pygame.surfarray.make_surface(image.transpose(1, 0, 2))
        self._window.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._period


def earlier(folder: Path) -> list[Any]:
    """What the run's ``play.json`` holds; a damaged one is set aside and named."""
    path = folder / PLAYED
    try:
        results = json.loads(path.read_text())
        if isinstance(results, list):
            return results
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError:
        pass
    names = (path.with_suffix(f".json.damaged{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    try:
        os.replace(path, aside)
    except OSError as error:
        raise ConfigError(f"{path}: is damaged and cannot be set aside ({error.strerror}).") from error
    print(f"{path} is damaged; it is kept as {aside.name}, and a new one begun.", flush=True)
    return []


def keep(folder: Path, result: dict[str, Any]) -> None:
    """Add ``result`` to the run's ``play.json``, a list with one entry a call."""
    path = folder / PLAYED
    try:
        atomic.write_json(path, [*earlier(folder), result])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written, so this result is not kept ({error.strerror}).") from error


def _main() -> None:
    options, _ = COMMAND_LINE.read(sys.argv[1:] or ["--help"])
    try:
        result = play(options)
    except ActorError as error:
        fail(str(error), code=1)
    print(
        f"{result['checkpoint']} after {result['agent_steps']:,} agent steps: mean return {result['return_mean']:.2f} "
        f"± {result['return_std']:.2f} over {len(result['games'])} games\n"
        f"actions: {', '.join(f'{name} {count:,}' for name, count in result['actions'].items())}"
    )
    keep(Path(options.run), result)


def main() -> None:
    """Console entry point."""
    run_app(_main)
