"""Findings on an environment from games of a random policy, each with a verdict and advice."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import gymnasium
import numpy as np

from dqnspeed import envs
from dqnspeed.algorithms import algorithm_of
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec, Episode, FrameStack, VectorEnv
from dqnspeed.execution.arrays import host
from dqnspeed.exploration.base import Exploration

OK, LOOK, WRONG = "ok", "look", "wrong"  # verdicts: nothing to do; worth a look; prevents learning
LATE_STEP = 10**12  # an agent step after the end of every schedule
MIN_STEPS = 1000  # steps in which an event must occur, else its absence is a mistake
# Wrappers that do what a stage of ours does.
STAGES = {
    "FrameStackObservation": "stack",
    "FrameStack": "stack",
    "AtariPreprocessing": "frame_skip",
    "MaxAndSkipObservation": "frame_skip",
}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    verdict: str
    topic: str
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<6} {self.topic:<14} {self.what}" + (f" -> {self.advice}" if self.advice else "")


@dataclass
class Played:
    """The results of a random policy; rewards are those of the environment, not clipped."""

    seconds: float = 0.0
    rewards: list[float] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    terminated: int = 0
    truncated: int = 0
    still: int = 0  # steps that did not change the frame
    stack: np.ndarray = field(default_factory=lambda: np.empty(0))  # (stack * C, ...) from the middle of the play
    low: float = math.inf  # of the frames' values; NaN if one is
    high: float = -math.inf


def play_at_random(env: VectorEnv, spec: EnvSpec, seconds: float, seed: int, beat: Callable[[], None]) -> Played:
    """Play the one environment of ``env`` at random, a step at least; ``beat`` is called before each step."""
    played, rng = Played(), np.random.default_rng(seed)
    stack = FrameStack(1, spec.stack, spec.frame_shape, spec.frame_dtype)
    before = np.array(host(env.reset([seed])))
    stack.push(before, np.ones(1, bool))
    played.stack = np.array(stack.observations[0])
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < seconds or not played.rewards:
        beat()
        env.send(rng.integers(spec.num_actions, size=1))
        step = env.recv()
        frames = host(step.frames)
        stack.push(frames, step.first)
        if not step.first[0]:
            played.rewards.append(float(step.rewards[0]))
            played.still += int(np.array_equal(frames, before))
        played.episodes += step.episodes
        played.terminated += int(step.terminated[0])
        played.truncated += int(step.truncated[0])
        played.low = float(np.minimum(played.low, frames.min()))  # unlike min(), it keeps NaN
        played.high = float(np.maximum(played.high, frames.max()))
        if now < seconds / 2:
            played.stack = np.array(stack.observations[0])
        before = np.array(frames)
    played.seconds = time.perf_counter() - begin
    return played


def examine(run: RunConfig, spec: EnvSpec, played: Played, limit: int | None) -> Iterator[Finding]:
    """Findings on what was played; ``limit``: the environment's limit of steps in a game."""
    yield from _observations(run, spec, played)
    yield from _rewards(run, played)
    yield from _episodes(played, limit)
    yield from _actions(run, spec)


def _observations(run: RunConfig, spec: EnvSpec, played: Played) -> Iterator[Finding]:
    topic = "observations"
    scale = run.model.input_scale or spec.largest
    low, high = played.low, played.high
    shape = "x".join(map(str, spec.observation_shape))
    image = len(spec.frame_shape) == 3
    frames, channels = spec.stack, spec.frame_shape[0]
    layout = (
        f", {frames} frame{'s' * (frames > 1)} of {channels} channel{'s' * (channels > 1)}, channels first"
        if image
        else ""
    )
    largest = max(abs(low), abs(high))
    what = f"{shape} {spec.frame_dtype}{layout}; {low:g} to {high:g}, scaled {low / scale:.3g} to {high / scale:.3g}"
    if not math.isfinite(low + high):
        yield Finding(WRONG, topic, what, "not finite; look for divisions by zero in the environment")
    elif low == high:
        yield Finding(WRONG, topic, what, "they never change; look at the picture, and at what reset and step return")
    elif largest / scale < 1 / 16:
        yield Finding(
            WRONG,
            topic,
            what,
            f"almost zero for the network; set model.input_scale={largest:g}, or do not divide them in the environment",
        )
    elif largest / scale > 10 and not run.model.background:
        yield Finding(LOOK, topic, what, f"large for a network; set model.input_scale={largest:g}")
    else:
        yield Finding(OK, topic, what)
    if image and spec.frame_shape[0] > min(spec.frame_shape[1:]):
        yield Finding(
            LOOK,
            topic,
            f"{spec.frame_shape[0]} channels of {spec.frame_shape[1]}x{spec.frame_shape[2]}",
            "more channels than pixels a side; set env.channels=first or last if that is not so",
        )
    still = played.still / max(1, len(played.rewards))
    if low != high and still > 0.5:
        what = f"the frame does not change in {still:.0%} of steps"
        yield Finding(WRONG if still == 1 else LOOK, topic, what, "actions may do nothing, or it is an old picture")
    if image and spec.stack == 1 and spec.frame_dtype == np.uint8 and spec.largest == 255:
        yield Finding(LOOK, topic, "one frame shows no movement", "wrappers.stack=2 or more, where things move")


def _rewards(run: RunConfig, played: Played) -> Iterator[Finding]:
    topic, rewards = "rewards", np.array(played.rewards)
    nonzero = np.flatnonzero(rewards)
    if not np.isfinite(rewards).all():
        bad = int(np.argmin(np.isfinite(rewards)))
        yield Finding(WRONG, topic, f"{rewards[bad]} at step {bad + 1:,}", "must be finite numbers")
        return
    if not len(nonzero):
        what = f"all zero in {len(rewards):,} random steps"
        advice = "nothing says what is good; give a reward that random play meets now and then"
        yield Finding(WRONG if len(rewards) > MIN_STEPS else LOOK, topic, what, advice)
        return
    share, sizes = len(nonzero) / len(rewards), np.abs(rewards[nonzero])
    what = (
        f"{rewards.min():g} to {rewards.max():g}, not zero in {share:.2%} of steps, there of size {np.median(sizes):g}"
    )
    if share < 1e-3:
        further = "algo.n_step=10 carries them further" if run.has_replay else "expect long training"
        yield Finding(LOOK, topic, what, f"very rare; {further}")
    elif run.wrappers.clip_reward and sizes.max() > 1 and np.ptp(sizes) > 0:
        yield Finding(LOOK, topic, what, "wrappers.clip_reward=true makes them alike; returns are unclipped")
    elif not run.wrappers.clip_reward and sizes.max() > 20 and "model" in run.algo.uses:
        advice = "far from 1; divide them in the environment, or set wrappers.clip_reward=true"
        yield Finding(WRONG if getattr(run.algo, "loss", None) == "mse" else LOOK, topic, what, advice)
    elif np.ptp(rewards) == 0:
        yield Finding(LOOK, topic, what, "the same at every step, so only the length of a game counts")
    else:
        yield Finding(OK, topic, what)


def _episodes(played: Played, limit: int | None) -> Iterator[Finding]:
    topic, lengths = "episodes", [e.length for e in played.episodes]
    if not lengths:
        what, steps = f"none ended in {len(played.rewards):,} steps", len(played.rewards)
        if limit is not None and steps <= limit:
            yield Finding(LOOK, topic, f"{what}, fewer than its limit of {limit:,}", "ask again with more seconds=")
        else:
            advice = "games must end: check terminated, or give gymnasium.register max_episode_steps"
            yield Finding(WRONG if steps > MIN_STEPS else LOOK, topic, what, advice)
        return
    returns = [e.episode_return for e in played.episodes]
    ends = played.terminated + played.truncated
    what = (
        f"{len(lengths)} games of {min(lengths)} to {max(lengths)} steps (median {np.median(lengths):g}), "
        f"{played.terminated} terminated, {played.truncated} truncated, returns {np.mean(returns):.3g} "
        f"± {np.std(returns):.2g}"
    )
    if np.median(lengths) <= 1:
        yield Finding(WRONG, topic, what, "over as soon as they begin: check what terminated means")
    elif played.truncated == ends:
        yield Finding(
            LOOK, topic, what, "random play only ever meets the time limit; fine if nothing can be lost before"
        )
    elif len(returns) > 5 and np.std(returns) == 0:
        yield Finding(LOOK, topic, what, "every game returns the same, so none is better than another yet")
    else:
        yield Finding(OK, topic, what)


def _actions(run: RunConfig, spec: EnvSpec) -> Iterator[Finding]:
    topic, count = "exploration", spec.num_actions
    algorithm, exploration = algorithm_of(run), typed(run.exploration, Exploration)
    if (bonus := algorithm.entropy_bonus) is not None:
        yield Finding(
            OK if bonus else LOOK,
            topic,
            f"{count} actions, entropy bonus {bonus:g} (a uniform policy has entropy {np.log(count):.2f})",
            "" if bonus else "algo.ent_coef=0.01 keeps it from settling early",
        )
        return
    random, last = exploration.random_steps(), algorithm.epsilon_at(run, LATE_STEP)
    if "exploration" not in algorithm.uses or random is None:
        yield Finding(OK, topic, f"{count} actions")
        return
    what = f"{count} actions; {exploration.sentence()}: {random / count:,.0f} random tries of each"
    if random / count < 200:
        yield Finding(LOOK, topic, what, "few; raise exploration.decay_steps")
    elif last > 0.2 and not algorithm.explores_forever:
        yield Finding(LOOK, topic, what, f"training's returns are of a policy that is random {last:.0%} of the time")
    else:
        yield Finding(OK, topic, what)


def watchdog(run: RunConfig, topic: str) -> envs.Watchdog:
    """Print a last finding and exit with code 1 if an environment in this process hangs."""
    limit = run.parallelism.timeout_s

    def end(line: str) -> None:
        what = f"env.id={run.env.id} has not answered for {limit:g} s ({line})"
        print(Finding(WRONG, topic, what, "parallelism.timeout_s=60 waits longer"), flush=True)
        os._exit(1)  # what hangs cannot be stopped otherwise

    return envs.Watchdog(limit, end)


def wrapper_order(env: gymnasium.Env, run: RunConfig) -> Iterator[Finding]:
    """Findings on the wrappers of a user's environment, outermost first."""
    topic, chain = "wrappers", []
    while isinstance(env, gymnasium.Wrapper):
        chain.append(env)
        env = env.env
    names = [type(wrapper).__name__ for wrapper in chain]
    shown = " > ".join([*names, type(env).__name__])
    rewards = [i for i, w in enumerate(chain) if isinstance(w, gymnasium.RewardWrapper) or "Reward" in type(w).__name__]
    statistics = [i for i, name in enumerate(names) if name == "RecordEpisodeStatistics"]
    if rewards and statistics and min(statistics) < max(rewards):
        what = f"{names[min(statistics)]} outside {names[max(rewards)]} ({shown})"
        yield Finding(LOOK, topic, what, "its returns are of changed rewards; record first, change them after")
    elif rewards:
        yield Finding(
            LOOK,
            topic,
            f"{names[rewards[0]]} changes rewards ({shown})",
            "episode/return is of changed rewards; wrappers.clip_reward=true leaves returns alone",
        )
    doubled = []
    for name in names:
        stage = STAGES.get(name)
        if stage is not None and getattr(run.wrappers, stage) > 1:
            doubled.append(name)
            yield Finding(WRONG, topic, f"{name} and wrappers.{stage} do the same twice ({shown})", "drop one of them")
    running = [name for name in names if name in ("NormalizeObservation", "NormalizeReward")]
    for name in running:
        advice = "play and evaluations begin without them; divide by constants, or set model.input_scale"
        yield Finding(LOOK, topic, f"{name} has statistics of each copy's own, not saved ({shown})", advice)
    if not rewards and not doubled and not running:
        yield Finding(OK, topic, shown)
