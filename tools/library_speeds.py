"""Measure trainings of other libraries beside ours, in turns: ``python tools/library_speeds.py CASE [OVERRIDE...]``.

CASE is ``atari_dqn``, ``atari_ppo``, ``cartpole_ppo`` or ``cartpole_dqn``. All sides do the same work: games, steps,
batches, epochs, network. The overrides of ``dqnspeed.train`` may say how our side does it: ``parallelism``,
``execution``, ``backend``. ``execution.threads`` holds for the others, too. A library that is not installed is left
out.
"""

from __future__ import annotations

import importlib.util
import pickle
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from library_trainings import (
    envpool_atari_ppo,
    sb3_atari_dqn,
    sb3_atari_ppo,
    sb3_cartpole_dqn,
    sb3_cartpole_ppo,
    torchrl_dqn,
)

from dqnspeed import compose
from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, Counter
from dqnspeed.bench.measured_process import ProcessError, Program, running
from dqnspeed.bench.pairs import SamplingPlan, check_statistics, interval, take_turns
from dqnspeed.bench.plan import ENDLESS, START
from dqnspeed.bench.workloads import Workload
from dqnspeed.cli.app import run_app
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.system.noise import disturbances

SAMPLING = SamplingPlan(settle_s=0.5, slice_s=4.0, num_pairs=12)
EPSILON = 0.02  # of DQN
SPEED_ONLY = {"backend", "parallelism", "execution", "device", "seed"}  # groups that change only how work is done


@dataclass(frozen=True)
class Case:
    """One piece of work.

    Attributes:
        overrides: the work, for our side.
        libraries: the same work by others, by name, with the module that each needs.
        shared: keys that may be set, since they hold for all sides or change nothing of the work.
    """

    overrides: Sequence[str]
    libraries: Mapping[str, tuple[str, Callable[[Workload, Counter], None]]]
    shared: AbstractSet[str] = frozenset()

    def workload(self, overrides: Sequence[str]) -> Workload:
        """Our side; raises :class:`ConfigError` if ``overrides`` would change its work alone."""
        for key in sorted(changes.keys_of(overrides)):
            if key not in self.shared and key.partition(".")[0] not in SPEED_ONLY:
                raise ConfigError(f"{key}: would change the work of our side alone. Leave it out.")
        run = compose([*self.overrides, *ENDLESS, *overrides])
        return Workload(workloads.train, run, describe(run))


CASES = {
    "atari_dqn": Case(
        [
            "env=pong", "backend=ale", "algo.batch_size=32", "algo.steps_per_update=4", "algo.learning_starts=1000",
            f"exploration.start={EPSILON}", f"exploration.final={EPSILON}",
        ],
        {
            "Stable-Baselines3 DQN": ("stable_baselines3", sb3_atari_dqn),
            "Stable-Baselines3 DQN, 4 games": ("stable_baselines3", partial(sb3_atari_dqn, games=4)),
            "TorchRL DQN": ("torchrl", torchrl_dqn),
        },
        {"env", "num_envs", "algo.steps_per_update", "algo.learning_starts", "replay.buffer_size", "optimizer.lr"},
    ),
    "atari_ppo": Case(
        ["algo=ppo", "env=pong", "backend=atari_warp", "parallelism=overlap"],
        {
            "Stable-Baselines3 PPO": ("stable_baselines3", sb3_atari_ppo),
            "CleanRL's style with EnvPool": ("envpool", envpool_atari_ppo),
        },
    ),
    "cartpole_ppo": Case(
        [
            "experiment=own_env_ppo", "env.id=CartPole-v1", "num_envs=8", "algo.num_steps=128", "algo.epochs=4",
            "algo.batch_size=256", "model.hidden=[64,64]", "execution.threads=1",
        ],
        {"Stable-Baselines3 PPO": ("stable_baselines3", sb3_cartpole_ppo)},
    ),
    "cartpole_dqn": Case(
        [
            "experiment=own_env", "env.id=CartPole-v1", "num_envs=4", "algo.batch_size=64", "algo.steps_per_update=2",
            "algo.learning_starts=1000", "algo.double=false", "algo.n_step=1", "model.hidden=[64,64]",
            f"exploration.start={EPSILON}", f"exploration.final={EPSILON}", "execution.threads=1",
        ],
        {"Stable-Baselines3 DQN": ("stable_baselines3", sb3_cartpole_dqn)},
    ),
}  # fmt: skip


def main() -> None:
    """Print the speeds and their ratios."""
    name, overrides = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if name not in CASES:
        print(__doc__)
        raise ConfigError(f"CASE={name}: is not one of {', '.join(CASES)}.")
    case = CASES[name]
    workload = case.workload(overrides)
    check_statistics()
    print(*disturbances(), sep="\n")
    ours = Program([sys.executable, "-c", START], pickle.dumps(workload))
    for library, (module, train) in case.libraries.items():
        if importlib.util.find_spec(module) is None:
            print(f"{library}: {module} is not installed")
            continue
        theirs = Program([sys.executable, __file__, "measured"], pickle.dumps(replace(workload, function=train)))
        try:
            with running([theirs]) as other, running([ours]) as own:
                pairs = take_turns(other, own, SAMPLING)
        except ProcessError as error:
            print(f"{library}: not measured, a process {error}.")
            continue
        found = interval([mine[STEPS] / other[STEPS] for other, mine in pairs])
        assert found is not None
        theirs_speed, own_speed = (statistics.median(pair[side][STEPS] for pair in pairs) for side in (0, 1))
        print(
            f"{library}: {theirs_speed:,.0f} steps/s, dqnspeed {own_speed:,.0f}, which is {found.median:.2f}× "
            f"({found.low:.2f}–{found.high:.2f}) as fast"
        )
        shares = {part: statistics.median(mine[part] for _, mine in pairs) for part in workloads.PARTS}
        print("  of dqnspeed's time:", ", ".join(f"{part} {share:.0%}" for part, share in shares.items()))


if __name__ == "__main__":
    workloads.main() if sys.argv[1:] == ["measured"] else run_app(main)
