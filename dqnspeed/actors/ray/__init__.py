"""Actors on the machines of a Ray cluster: ``parallelism=ray``."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.actors.base import ActorArguments, Actors
from dqnspeed.actors.process import Process
from dqnspeed.actors.ray.cluster import ADDRESS, check_address
from dqnspeed.actors.ray.worker import MAX_BATCHES_AHEAD
from dqnspeed.config.options import ConfigError, check_installed, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig


@register("parallelism", "ray")
@dataclass(frozen=True)
class RayParallelism(Process):
    """Ray actors, on any number of machines, act while this process learns."""

    shares_memory = False
    joins_cluster = True

    address: str | None = option(
        "the Ray cluster: HOST:PORT, ray://HOST:PORT, auto, or null: one of its own, here", changeable=True
    )
    cpus_per_actor: float = option("CPUs that each actor asks the cluster for", gt=0, changeable=True)
    batch_steps: int = option("steps of each environment in a message", ge=1, le=10_000)
    compress: bool = option("compress frames on their way", changeable=True)
    weights_every: int = option(
        "updates that an actor's weights are behind before it is sent newer ones", ge=1, changeable=True
    )

    @property
    def steps_ahead(self) -> int:
        return MAX_BATCHES_AHEAD * self.batch_steps

    @property
    def uses_this_machine(self) -> bool:
        return self.address is None

    def make(self, arguments: ActorArguments) -> Actors:
        from dqnspeed.actors.ray.actors import RayActors

        return RayActors(self, arguments)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if self.transport == "queue":
            raise ConfigError("parallelism.transport=queue: belongs to parallelism=process; Ray has its own way.")

    def check_here(self) -> None:
        check_installed("parallelism=ray", "ray", "ray")
        check_address(ADDRESS, self.address)
