"""What acts and remembers in a process: the memory and the actors that fill it."""

from __future__ import annotations

import contextlib

import torch

from dqnspeed.actors import ActorArguments, Actors, make_actors, memory_lock
from dqnspeed.algorithms import Learner, make_memory
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.world import World
from dqnspeed.memory import Memory
from dqnspeed.runs.checkpoint import State
from dqnspeed.system import seeding


class Hands:
    """They continue from ``state``, if there is any, and close with ``resources``.

    Args:
        run: of this process alone, where it is one of a ``world``.
        segment: how often the run was resumed.
    """

    def __init__(
        self,
        run: RunConfig,
        spec: EnvSpec,
        learner: Learner,
        device: torch.device,
        state: State | None,
        segment: int,
        resources: contextlib.ExitStack,
        world: World | None = None,
    ):
        self._run = run
        lock = memory_lock(run)
        self.memory: Memory = make_memory(run, spec, lock, device)
        resources.callback(self.memory.close)
        learner.attach(self.memory, world)
        if state:
            if stored := state.pop("replay"):  # it may take half of the machine's memory
                self.memory.load_state_dict(stored)
            else:
                self.memory.resume_empty(learner.updates)
        actors = state["actors"] if state else None
        self.actors: Actors = make_actors(
            ActorArguments(run, spec, learner.network, self.memory, lock, device, actors, segment)
        )
        resources.callback(self.actors.close)
        with seeding.preserved():
            learner.warm_up(self.memory.blank(run.algo.batch_size))
        if state:
            seeding.load_state_dict(state["random"])

    def state_dict(self) -> State:
        """All that they need to continue; the actors must be paused."""
        return {
            "replay": self.memory.state_dict() if self._run.keeps_memory else None,
            "actors": self.actors.state_dict(),
            "random": seeding.state_dict(),
        }
