"""Actors, which collect experience: in the learner's process, or in processes of their own."""

from __future__ import annotations

import dataclasses

from dqnspeed.actors.base import ActorArguments, Actors, Collected, NewGames, Parallelism
from dqnspeed.config.schema import typed
from dqnspeed.envs import ActorError
from dqnspeed.execution.threads import share_of_cores
from dqnspeed.system import machine


def make_actors(arguments: ActorArguments) -> Actors:
    """Make the actors that ``parallelism`` names."""
    run = arguments.run
    threads = share_of_cores(run, machine.cores()).stepping_threads
    run = dataclasses.replace(run, backend=run.backend.with_threads(threads))
    return typed(run.parallelism, Parallelism).make(dataclasses.replace(arguments, run=run))


__all__ = ["ActorArguments", "ActorError", "Actors", "Collected", "NewGames", "make_actors"]
