"""A run in several processes, the ranks of a world: rank 0 leads, the others follow.

Each rank has actors and a memory of its own, and its share of every batch. Their gradients are averaged, so that the
weights of all stay the same. Rank 0 alone decides and writes files: its loop is the ordinary one, with actors and a
memory that stand for those of all ranks, and has the others do what these are called to do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, cast

import numpy as np

from dqnspeed.actors import Actors, Collected
from dqnspeed.algorithms import Learner, make_learner
from dqnspeed.algorithms.gradient import NotFiniteError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec, Episode
from dqnspeed.execution.memory import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import set_threads, share_of_cores
from dqnspeed.execution.world import (
    LostRankError,
    World,
    device_of_rank,
)  # fmt: skip
from dqnspeed.exploration.base import Exploration
from dqnspeed.memory import Memory, OrderedMemory
from dqnspeed.runs import state_file
from dqnspeed.runs.hands import Hands, HandsArguments
from dqnspeed.runs.rank_processes import led_world
from dqnspeed.runs.schedule import LearningStart, make_schedule
from dqnspeed.runs.state_file import State
from dqnspeed.system import machine, seeding


class Order(IntEnum):
    """What rank 0 has all of them do."""

    BEGIN, DISPATCH, COLLECT, MEASURE, DISCARD, UPDATE, PAUSE, PROCEED, REPORT, SAVE, END = range(11)


def share_of(run: RunConfig, rank: int) -> RunConfig:
    """What one rank has of ``run``, as an ordinary run: environments, and its share of the batch, of the replay and of
    the steps."""
    size, algo = run.execution.world_size, run.algo
    if size == 1:
        return run
    threads = share_of_cores(run, machine.cores())
    return replace(
        run,
        algo=replace(algo, batch_size=algo.batch_size // size, learning_starts=math.ceil(algo.learning_starts / size)),
        replay=replace(run.replay, capacity=run.replay.capacity // size),
        exploration=typed(run.exploration, Exploration).shared_by(size),
        parallelism=replace(run.parallelism, env_threads=threads.env_threads),
        execution=replace(run.execution, world_size=1, threads=threads.learner_threads),
        seed=int(np.random.SeedSequence([run.seed, rank, 3]).generate_state(1)[0]) if rank else run.seed,
    )


class Rank:
    """This process' part of the work, and what all of them count together."""

    def __init__(self, run: RunConfig, world: World, hands: Hands, learner: Learner, agent_steps: int):
        self.hands, self._world, self._learner = hands, world, learner
        self._share = share_of(run, world.rank)
        self._batch, self._lanes = self._share.algo.batch_size, self._share.num_lanes
        self._most = math.inf if run.stop.max_steps is None else run.stop.max_steps
        self.agent_steps = agent_steps  # of this rank
        self._schedule = None
        if not run.has_replay:
            self._schedule = make_schedule(self._share, hands.memory, LearningStart(0, 0), agent_steps)
        due, steps = world.gather(np.array([self.own_due(), agent_steps])).T
        self.due = int(due.min())  # batches that every rank has
        self._total = int(steps.sum())  # agent steps of all

    def collect(self, limit: float, wait: bool) -> Collected:
        """Have the own actors collect their share until ``limit``; returns what came in everywhere."""
        own = limit / self._world.size
        if self._schedule is not None:
            # Not a share of the most from the first on: of one rank's rows fewer may be agent steps than of another's,
            # which would wait for it.
            left = (self._most - self._total) / self._world.size
            own = min(self._schedule.limit(self._learner.updates), self.agent_steps + left)
        return self._together(self.hands.actors.collect(own, wait))

    def pause(self) -> Collected:
        return self._together(self.hands.actors.pause())

    def update(self) -> None:
        """Learn from the own share of a batch."""
        self._learner.update(self.hands.memory.sample(self._batch))

    def state_dict(self) -> State:
        return {**self.hands.state_dict(), "agent_steps": self.agent_steps}

    def own_due(self) -> int:
        return 0 if self._schedule is None else cast("OrderedMemory", self.hands.memory).due(self._batch)

    def _together(self, own: Collected) -> Collected:
        world = self._world
        self.agent_steps += own.agent_steps
        told = world.gather(np.array([own.agent_steps, len(own.episodes), len(own.lost), self.own_due()]))
        steps, games, lost, due = told.T
        self.due = int(due.min())
        self._total += int(steps.sum())
        found = Collected(int(steps.sum()), list(own.episodes), own.epsilon, list(own.lost))
        found.lost += [
            f"an actor of rank {rank} was lost." for rank in range(world.size) if rank != world.rank
            for _ in range(int(lost[rank]))
        ]  # fmt: skip
        if games.any():
            table = np.zeros((int(games.max()), 3))
            table[: len(own.episodes)] = [(e.env, e.episode_return, e.length) for e in own.episodes] or table[:0]
            for rank, theirs in enumerate(world.gather(table)):
                if rank != world.rank:
                    ended = theirs[: int(games[rank])]
                    found.episodes += [Episode(int(e) + rank * self._lanes, float(r), int(n)) for e, r, n in ended]
        return found


class Leading:
    """Rank 0's: the memory and the actors of all ranks, as its loop sees them. They close with ``resources``."""

    def __init__(self, arguments: HandsArguments, resources: contextlib.ExitStack, config: Mapping[str, Any]):
        run, learner, state, segment = arguments.run, arguments.learner, arguments.state, arguments.segment
        world = self._world = resources.enter_context(led_world(run, arguments.device, config))
        resources.push(self._end)
        others = state.pop("ranks") if state else {}
        for rank in range(1, world.size):
            own = others.pop(str(rank), None)
            world.send(rank, state_file.dumps({"learner": learner.state_dict(), "own": own, "segment": segment}))
        steps = state["agent_steps"] if state else 0
        hands = Hands(replace(arguments, run=share_of(run, 0)), resources, world)
        self._rank = Rank(run, world, hands, learner, steps)
        self.actors: Actors = AllActors(world, self._rank, run.parallelism.overlaps)
        self.memory: Memory = AllMemory(world, self._rank, ordered=not run.has_replay)

    def state_dict(self) -> State:
        """That of every rank; the actors must be paused."""
        own, ranks = self._rank.state_dict(), {}
        for rank in range(1, self._world.size):  # one after another, since each may take much memory
            self._world.command(Order.SAVE, rank, 0)
            ranks[str(rank)] = state_file.loads(self._world.receive(rank))
        return {**own, "ranks": ranks}

    def _end(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:  # else the others see that this one is gone
            with contextlib.suppress(LostRankError):  # it is over, for whatever reason
                self._world.command(Order.END, 0, 0)


class AllActors:
    """The actors of all ranks."""

    def __init__(self, world: World, rank: Rank, dispatches: bool):
        self._world, self._rank, self._dispatches = world, rank, dispatches
        self._own = rank.hands.actors
        self.how = self._own.how

    @property
    def seconds(self) -> dict[str, float]:
        """Those of rank 0, with the time that it waited for gradients of others and averaged them."""
        return {**self._own.seconds, "averaging": self._world.seconds}

    def metrics(self) -> Mapping[str, float]:
        """Those of rank 0; the others forget theirs."""
        self._world.command(Order.REPORT, 0, 0)
        return self._own.metrics()

    def begin(self) -> None:
        self._world.command(Order.BEGIN, 0, 0)
        self._own.begin()

    def dispatch(self) -> None:
        if self._dispatches:
            self._world.command(Order.DISPATCH, 0, 0)
        self._own.dispatch()

    def collect(self, limit: float, wait: bool) -> Collected:
        self._world.command(Order.COLLECT, limit, wait)
        return self._rank.collect(limit, wait)

    def pause(self) -> Collected:
        self._world.command(Order.PAUSE, 0, 0)
        return self._rank.pause()

    def state_dict(self) -> dict[str, Any]:
        return self._own.state_dict()

    def proceed(self) -> None:
        self._world.command(Order.PROCEED, 0, 0)
        self._own.proceed()

    def close(self) -> None:
        """Nothing: those of each rank are closed there."""


class AllMemory:
    """The memories of all ranks. Frames are those of rank 0."""

    def __init__(self, world: World, rank: Rank, ordered: bool):
        self._world, self._rank, self._ordered = world, rank, ordered
        self._own = rank.hands.memory
        self.buffers, self.device = self._own.buffers, self._own.device
        self.taken, self.capacity = 0, 0  # each rank holds its actors back by itself

    def discard_pending(self) -> None:
        if self._ordered:
            self._world.command(Order.DISCARD, 0, 0)
            self._rank.due = 0
        self._own.discard_pending()

    def sample(self, batch_size: int) -> Any:
        """Rank 0's share of a batch; the others take theirs, and all are to update with them now."""
        self._world.command(Order.UPDATE, 0, 0)
        self._rank.due -= 1
        return self._own.sample(batch_size // self._world.size)

    def batches(self, batch_size: int, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield self.sample(batch_size)

    def blank(self, batch_size: int) -> Any:
        return self._own.blank(batch_size // self._world.size)

    def recent_frames(self, count: int) -> np.ndarray:
        """Rank 0's, from which the learners of all others begin, too."""
        frames = self._own.recent_frames(count)
        self._world.command(Order.MEASURE, 0, 0)
        for rank in range(1, self._world.size):
            self._world.send(rank, state_file.dumps({"frames": frames}))
        return frames

    def due(self, batch_size: int) -> int:
        """Batches that every rank had when they last told each other, and has still."""
        return self._rank.due

    def waiting(self) -> int:
        return 0

    def rows(self, lane: int) -> int:
        return self._own.rows(lane)

    def rows_allowed(self) -> np.ndarray:
        return self._own.rows_allowed()

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """None of a game that another rank played."""
        if lane < len(self._own.rows_allowed()):
            return self._own.frames_of(lane, begin, end)
        return self._own.frames_of(0, 0, 0)

    def append(self, rows: Any, lane: int = 0) -> None:
        self._own.append(rows, lane)

    def writer_gone(self, lane: int) -> None:
        self._own.writer_gone(lane)

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        return self._own.cut(lane, count)

    def state_dict(self) -> dict[str, Any]:
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._own.load_state_dict(state)

    def resume_empty(self, updates: int) -> None:
        self._own.resume_empty(updates)

    def close(self) -> None:
        """Nothing: that of each rank is closed there."""


def follow(world: World, run: RunConfig, spec: EnvSpec) -> None:
    """Be a rank that is not 0, until rank 0 ends the run.

    Raises:
        LostRankError: rank 0 or another one is gone.
    """
    share, device = share_of(run, world.rank), device_of_rank(run)
    seeding.seed_everything(share.seed)
    set_threads(run)
    set_precision(run.execution)
    keep_memory(run.execution)
    learner = make_learner(run, spec, device)
    sent = state_file.loads(world.receive(0))
    learner.load_state_dict(sent["learner"])
    own = sent["own"]
    steps = own["agent_steps"] if own else 0
    with contextlib.ExitStack() as resources:
        hands = Hands(HandsArguments(share, spec, learner, device, own, sent["segment"]), resources, world)
        del sent, own
        rank = Rank(run, world, hands, learner, steps)
        while (told := world.command(0, 0, 0))[0] != Order.END:
            _obey(Order(int(told[0])), told[1], told[2], world, rank, learner)


def _obey(order: Order, first: float, second: float, world: World, rank: Rank, learner: Learner) -> None:
    hands = rank.hands
    if order == Order.BEGIN:
        hands.actors.begin()
    elif order == Order.DISPATCH:
        hands.actors.dispatch()
    elif order == Order.COLLECT:
        rank.collect(first, bool(second))
    elif order == Order.MEASURE:
        learner.begin(state_file.loads(world.receive(0))["frames"])
    elif order == Order.DISCARD:
        hands.memory.discard_pending()
    elif order == Order.UPDATE:
        rank.update()
    elif order == Order.PAUSE:
        rank.pause()
    elif order == Order.PROCEED:
        hands.actors.proceed()
    elif order == Order.REPORT:
        hands.actors.metrics()
        with contextlib.suppress(NotFiniteError):  # rank 0 says so, too
            learner.stats()
    elif order == Order.SAVE and first == world.rank:
        world.send(0, state_file.dumps(rank.state_dict()))
