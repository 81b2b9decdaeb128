"""Findings on an environment: on games of a random policy, and on its wrappers."""

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
from dqnspeed.algorithms.actor_critic import ActorCritic
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec, Episode, FrameStack, VectorEnv
from dqnspeed.execution.arrays import host
from dqnspeed.exploration.base import Exploration

OK, LOOK, WRONG = "ok", "look", "wrong"  # nothing to do; worth a look; prevents learning
LATE_STEP = 10**12  # an agent step after the end of every schedule
MIN_STEPS = 1000  # steps in which an event must happen
# Wrappers that do the same as an option of ``wrappers``.
EQUIVALENT_OPTIONS = {
    "FrameStackObservation": "stack",
    "FrameStack": "stack",
    "AtariPreprocessing": "frame_skip",
    "MaxAndSkipObservation": "frame_skip",
}
UNSAVED_STATISTICS = "NormalizeObservation", "NormalizeReward"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    verdict: str
    topic: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<6} {self.topic:<14} {self.text}" + (f" -> {self.advice}" if self.advice else "")


def first_problem(topic: str, text: str, *problems: tuple[bool, str, str]) -> Finding:
    """The finding of the first of ``problems``, each a condition, a verdict and advice, whose condition is true."""
    found = next((Finding(verdict, topic, text, advice) for is_true, verdict, advice in problems if is_true), None)
    return found or Finding(OK, topic, text)


@dataclass
class RandomPlay:
    """Results of a random policy.

    Attributes:
        rewards: of the environment, not clipped.
        num_unchanged: number of steps that did not change the frame.
        observation: ``(stack * C, ...)`` from the middle of the play.
        low, high: smallest and largest value of the frames; NaN if one is NaN.
    """

    rewards: list[float] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    num_terminated: int = 0
    num_truncated: int = 0
    num_unchanged: int = 0
    observation: np.ndarray = field(default_factory=lambda: np.empty(0))
    low: float = math.inf
    high: float = -math.inf


def play_at_random(env: VectorEnv, spec: EnvSpec, seconds: float, seed: int, beat: Callable[[], None]) -> RandomPlay:
    """Play one environment at random for some ``seconds``, at least one step; ``beat`` is called before each step."""
    play, rng = RandomPlay(), np.random.default_rng(seed)
    stack = FrameStack(1, spec.stack, spec.frame_shape, spec.frame_dtype)
    before = np.array(host(env.reset([seed])))
    stack.push(before, np.ones(1, bool))
    play.observation = np.array(stack.observations[0])
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds or not play.rewards:
        beat()
        env.send(rng.integers(spec.num_actions, size=1))
        step = env.recv()
        frames = host(step.frames)
        stack.push(frames, step.first)
        if not step.first[0]:
            play.rewards.append(float(step.rewards[0]))
            play.num_unchanged += int(np.array_equal(frames, before))
        play.episodes += step.episodes
        play.num_terminated += int(step.terminated[0])
        play.num_truncated += int(step.truncated[0])
        play.low = float(np.minimum(play.low, frames.min()))  # unlike min(), np.minimum keeps NaN
        play.high = float(np.maximum(play.high, frames.max()))
        if elapsed < seconds / 2:
            play.observation = np.array(stack.observations[0])
        before = np.array(frames)
    return play


def check_play(run: RunConfig, spec: EnvSpec, play: RandomPlay, max_episode_steps: int | None) -> Iterator[Finding]:
    """Findings on observations, rewards, episodes and exploration."""
    yield from _observations(run, spec, play)
    yield _rewards(run, play)
    yield _episodes(play, max_episode_steps)
    yield _exploration(run, spec)


def _observations(run: RunConfig, spec: EnvSpec, play: RandomPlay) -> Iterator[Finding]:
    topic, low, high = "observations", play.low, play.high
    scale, largest = run.model.input_scale or spec.largest, max(abs(low), abs(high))
    channels, *sides = spec.frame_shape
    is_image, layout = len(sides) == 2, ""
    if is_image:
        layout = f", {_count(spec.stack, 'frame')} of {_count(channels, 'channel')}, channels first"
    shape = "x".join(map(str, spec.observation_shape))
    yield first_problem(
        topic,
        f"{shape} {spec.frame_dtype}{layout}; {low:g} to {high:g}, scaled {low / scale:.3g} to {high / scale:.3g}",
        (not math.isfinite(low + high), WRONG, "not finite; look for divisions by zero in the environment"),
        (low == high, WRONG, "they never change; look at the picture, and at what reset and step return"),
        (largest / scale < 1 / 16, WRONG,
         f"almost zero for the network; set model.input_scale={largest:g}, or do not divide them in the environment"),
        (largest / scale > 10 and not run.model.background, LOOK,
         f"large for a network; set model.input_scale={largest:g}"),
    )  # fmt: skip
    if is_image and channels > min(sides):
        text = f"{channels} channels of {sides[0]}x{sides[1]}, more channels than pixels a side"
        yield Finding(LOOK, topic, text, "set env.channels=first or last if that is wrong")
    unchanged = play.num_unchanged / max(1, len(play.rewards))
    if low != high and unchanged > 0.5:
        text = f"the frame does not change in {unchanged:.0%} of steps"
        advice = "check that actions have an effect, and that step returns a new picture"
        yield Finding(WRONG if unchanged == 1 else LOOK, topic, text, advice)
    if is_image and spec.stack == 1 and spec.frame_dtype == np.uint8 and spec.largest == 255:
        yield Finding(LOOK, topic, "one frame shows no movement", "set wrappers.stack=2 or more if things move")


def _rewards(run: RunConfig, play: RandomPlay) -> Finding:
    topic, rewards = "rewards", np.array(play.rewards)
    if not np.isfinite(rewards).all():
        bad = int(np.argmin(np.isfinite(rewards)))
        return Finding(WRONG, topic, f"{rewards[bad]} at step {bad + 1:,}", "rewards must be finite numbers")
    sizes = np.abs(rewards[rewards != 0])
    if not len(sizes):
        advice = "give a reward that random play gets now and then; the agent learns from nothing else"
        text = f"all zero in {len(rewards):,} random steps"
        return Finding(WRONG if len(rewards) > MIN_STEPS else LOOK, topic, text, advice)
    share, clips = len(sizes) / len(rewards), run.wrappers.clip_reward
    verdict_on_large = WRONG if getattr(run.algo, "loss", None) == "mse" else LOOK
    remedy = "set algo.n_step=10 to carry them further" if run.has_replay else "expect long training"
    return first_problem(
        topic,
        f"{rewards.min():g} to {rewards.max():g}, not zero in {share:.2%} of steps, median size {np.median(sizes):g}",
        (share < 1e-3, LOOK, f"very rare; {remedy}"),
        (clips and sizes.max() > 1 and np.ptp(sizes) > 0, LOOK,
         "wrappers.clip_reward=true makes them equal for the learner; returns are not clipped"),
        (not clips and sizes.max() > 20 and "model" in run.algo.uses, verdict_on_large,
         "far from 1; divide them in the environment, or set wrappers.clip_reward=true"),
        (np.ptp(rewards) == 0, LOOK, "the same at every step, so only the length of a game counts"),
    )  # fmt: skip


def _episodes(play: RandomPlay, max_episode_steps: int | None) -> Finding:
    topic, num_steps, lengths = "episodes", len(play.rewards), [episode.length for episode in play.episodes]
    if not lengths:
        text = f"none ended in {num_steps:,} steps"
        if max_episode_steps is not None and num_steps <= max_episode_steps:
            text += f", fewer than its limit of {max_episode_steps:,}"
            return Finding(LOOK, topic, text, "give the doctor more seconds=")
        advice = "games must end: check terminated, or give gymnasium.register max_episode_steps"
        return Finding(WRONG if num_steps > MIN_STEPS else LOOK, topic, text, advice)
    returns = [episode.episode_return for episode in play.episodes]
    return first_problem(
        topic,
        f"{len(lengths)} games of {min(lengths)} to {max(lengths)} steps (median {np.median(lengths):g}), "
        f"{play.num_terminated} terminated, {play.num_truncated} truncated, returns {np.mean(returns):.3g} "
        f"± {np.std(returns):.2g}",
        (float(np.median(lengths)) <= 1, WRONG, "over as soon as they begin: check the meaning of terminated"),
        (not play.num_terminated, LOOK, "random play only meets the time limit; fine if a game cannot be lost before"),
        (len(returns) > 5 and np.std(returns) == 0, LOOK, "all games have the same return, so none is better yet"),
    )  # fmt: skip


def _exploration(run: RunConfig, spec: EnvSpec) -> Finding:
    topic, num_actions = "exploration", spec.num_actions
    algorithm, exploration = algorithm_of(run), typed(run.exploration, Exploration)
    if isinstance(algorithm, ActorCritic):
        bonus = algorithm.ent_coef
        text = (
            f"{num_actions} actions, entropy bonus {bonus:g} (a uniform policy has entropy {np.log(num_actions):.2f})"
        )
        return first_problem(
            topic, text, (not bonus, LOOK, "set algo.ent_coef=0.01, so that the policy does not settle early")
        )
    random_steps, last_epsilon = exploration.random_steps(), algorithm.epsilon_at(run, LATE_STEP)
    if "exploration" not in algorithm.uses or random_steps is None:
        return Finding(OK, topic, f"{num_actions} actions")
    tries = random_steps / num_actions
    return first_problem(
        topic,
        f"{num_actions} actions; {exploration.sentence()}: {tries:,.0f} random tries of each",
        (tries < 200, LOOK, "few; raise exploration.decay_steps"),
        (last_epsilon > 0.2 and not algorithm.explores_forever, LOOK,
         f"training's returns are of a policy that is random {last_epsilon:.0%} of the time"),
    )  # fmt: skip


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def watchdog(run: RunConfig, topic: str) -> envs.Watchdog:
    """Print a last finding and exit with code 1 if an environment in this process hangs."""
    limit = run.parallelism.timeout_s

    def end(line: str) -> None:
        text = f"env.id={run.env.id} has not answered for {limit:g} s ({line})"
        print(Finding(WRONG, topic, text, "set parallelism.timeout_s=60 to wait longer"), flush=True)
        os._exit(1)  # nothing else stops code that hangs

    return envs.Watchdog(limit, end)


def check_wrappers(env: gymnasium.Env, run: RunConfig) -> Iterator[Finding]:
    """Findings on the wrappers of a user's environment, outermost first."""
    topic, chain = "wrappers", list[gymnasium.Wrapper]()
    while isinstance(env, gymnasium.Wrapper):
        chain.append(env)
        env = env.env
    names = [type(wrapper).__name__ for wrapper in chain]
    shown = " > ".join([*names, type(env).__name__])
    rewards = [i for i, w in enumerate(chain) if isinstance(w, gymnasium.RewardWrapper) or "Reward" in names[i]]
    is_sound = not rewards
    if rewards and "RecordEpisodeStatistics" in names[: max(rewards)]:
        text = f"RecordEpisodeStatistics outside {names[max(rewards)]} ({shown})"
        yield Finding(LOOK, topic, text, "its returns are of changed rewards; record first, change rewards after")
    elif rewards:
        text = f"{names[rewards[0]]} changes rewards ({shown})"
        advice = "episode/return is of changed rewards; wrappers.clip_reward=true does not change returns"
        yield Finding(LOOK, topic, text, advice)
    for name in names:
        option = EQUIVALENT_OPTIONS.get(name)
        if option is not None and getattr(run.wrappers, option) > 1:
            is_sound = False
            yield Finding(WRONG, topic, f"{name} and wrappers.{option} do the same twice ({shown})", "drop one of them")
        if name in UNSAVED_STATISTICS:
            is_sound = False
            text = f"{name} has other statistics in each copy of the environment, which are not saved ({shown})"
            advice = "play and evaluations begin without statistics; divide by constants, or set model.input_scale"
            yield Finding(LOOK, topic, text, advice)
    if is_sound:
        yield Finding(OK, topic, shown)
