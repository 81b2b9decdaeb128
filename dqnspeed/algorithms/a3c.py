"""A3C with data parallelism (chapter 11): processes act, and send their experience to one learner."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.algorithms.a2c import NStepActorCritic
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig


@register("algo", "a3c")
@dataclass(frozen=True)
class A3C(NStepActorCritic):
    queue_batches: int = option("batches that may wait for the learner", ge=1)

    @property
    def queue(self) -> int:
        return self.queue_batches

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if not run.parallelism.processes:
            raise ConfigError(
                f"parallelism={run.parallelism.name}: algo={self.name} needs parallelism=process; algo=a2c is the same "
                f"in one process."
            )
