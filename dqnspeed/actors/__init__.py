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
    env_threads = share_of_cores(arguments.run, machine.cores()).env_threads
    parallelism = dataclasses.replace(arguments.run.parallelism, env_threads=env_threads)
    run = dataclasses.replace(arguments.run, parallelism=parallelism)
    return typed(parallelism, Parallelism).make(dataclasses.replace(arguments, run=run))


__all__ = ["ActorArguments", "ActorError", "Actors", "Collected", "NewGames", "make_actors"]
