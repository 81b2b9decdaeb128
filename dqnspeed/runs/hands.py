"""What acts and remembers in a process: the memory and the actors that fill it."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

import torch

from dqnspeed.actors import ActorArguments, Actors, make_actors
from dqnspeed.algorithms import Learner, algorithm_of, make_memory
from dqnspeed.algorithms.footprint import memory_device
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.world import World
from dqnspeed.memory import Memory
from dqnspeed.memory.buffers import layout_bytes
from dqnspeed.runs.state_file import State
from dqnspeed.system import machine, seeding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HandsArguments:
    """What they are made with.

    Args:
        run: of one process alone, where several learn together.
        state: what they continue from, if there is any; ``segment``: how often the run was resumed.
    """

    run: RunConfig
    spec: EnvSpec
    learner: Learner
    device: torch.device
    state: State | None
    segment: int


class Hands:
    """They close with ``resources``; in a ``world`` their learner averages gradients with others."""

    def __init__(self, arguments: HandsArguments, resources: contextlib.ExitStack, world: World | None = None):
        run, spec, learner, device = arguments.run, arguments.spec, arguments.learner, arguments.device
        state = arguments.state
        self._run = run
        self.memory: Memory = make_memory(run, spec, place_of_memory(run, spec))
        resources.callback(self.memory.close)
        learner.attach(self.memory, world)
        if state:
            if stored := state.pop("replay"):  # it may take half of the machine's memory
                self.memory.load_state_dict(stored)
            else:
                self.memory.resume_empty(learner.updates)
        actors = state["actors"] if state else None
        self.actors: Actors = make_actors(
            ActorArguments(run, spec, learner.network, self.memory, device, actors, arguments.segment)
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


def place_of_memory(run: RunConfig, spec: EnvSpec) -> torch.device | None:
    """Where experience is kept, ``None``: on the host; the log has what it takes of a GPU, or why it does not."""
    where, device = memory_device(run, spec), machine.pick_device(run.device)
    taken = layout_bytes(algorithm_of(run).layout(run, spec)) / 1e9
    if where is not None:
        log.info("experience takes %.2f GB of the memory of %s", taken, where)
    elif device.type == "cuda" and run.replay.device == "auto":
        free = machine.free_gpu_memory(device) / 1e9
        log.info(
            "experience takes %.2f GB, and of the %.2f GB that are free on %s not as many are left beside the rest: it "
            "is kept on the host", taken, free, device,
        )  # fmt: skip
    return where
