"""Measure trainings of other libraries beside ours, in turns: ``python tools/library_speeds.py CASE [OVERRIDE...]``.

CASE is ``atari_ppo``, ``cartpole_ppo`` or ``cartpole_dqn``. All sides do the same work: games, steps, batches, epochs,
network. The overrides of ``dqnspeed.train`` may say how our side does it: ``parallelism``, ``execution``, ``backend``.
``execution.threads`` holds for the others, too. A library that is not installed is left out.
"""

from __future__ import annotations

import importlib
import pickle
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqnspeed import compose
from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, Counter
from dqnspeed.bench.measured_process import Program, running
from dqnspeed.bench.pairs import SamplingPlan, check_statistics, interval, take_turns
from dqnspeed.bench.plan import ENDLESS, START
from dqnspeed.bench.workloads import Workload
from dqnspeed.cli.app import run_app
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.system import machine
from dqnspeed.system.noise import disturbances

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SAMPLING = SamplingPlan(settle_s=0.5, slice_s=4.0, num_pairs=12)
FOREVER = 10**9  # agent steps
EPSILON = 0.02  # of DQN
SPEED_ONLY = {"backend", "parallelism", "execution", "device", "seed"}  # groups that change only how work is done


@dataclass(frozen=True)
class Case:
    """One piece of work.

    Attributes:
        overrides: the work, for our side.
        libraries: the same work by others, by name, with the module that each needs.
    """

    overrides: Sequence[str]
    libraries: Mapping[str, tuple[str, Callable[[Workload, Counter], None]]]


def set_threads(workload: Workload) -> int:
    """Set the number of threads of torch, all cores by default; returns it."""
    import torch

    threads: int = workload.run.execution.threads or machine.cores()
    torch.set_num_threads(threads)
    return threads


def count_rollouts(counter: Counter) -> Any:
    """Callback of Stable-Baselines3 that counts before each rollout."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Count(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.model._n_updates:
                counter.event({STEPS: self.num_timesteps})

    return Count()


def sb3_atari_ppo(workload: Workload, counter: Counter) -> None:
    """PPO of Stable-Baselines3 with the numbers of RL Baselines3 Zoo (hyperparams/ppo.yml)."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    set_threads(workload)
    env = VecFrameStack(make_atari_env(workload.run.env.id, n_envs=8, seed=workload.run.seed), n_stack=4)
    model = PPO(
        "CnnPolicy", env, n_steps=128, n_epochs=4, batch_size=256, learning_rate=2.5e-4, clip_range=0.1, vf_coef=0.5,
        ent_coef=0.01,
    )  # fmt: skip
    model.learn(FOREVER, callback=count_rollouts(counter))


def envpool_atari_ppo(workload: Workload, counter: Counter) -> None:
    """PPO of ``examples/ppo_cleanrl_style.py`` with EnvPool."""
    sys.path.insert(0, str(EXAMPLES))
    example: Any = importlib.import_module("ppo_cleanrl_style")
    update, rollout, done = example.update, example.NUM_STEPS * 8, 0

    def counted_update(*arguments: Any) -> None:
        nonlocal done
        update(*arguments)
        done += 1
        counter.event({STEPS: done * rollout})

    example.update = counted_update
    example.train("envpool", "pong", 1e6, 8, set_threads(workload), workload.run.seed, "cpu")


def sb3_cartpole_ppo(workload: Workload, counter: Counter) -> None:
    """PPO of Stable-Baselines3, whose policy and value share two layers of 64 units here, as ours do."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Layers(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, space: Any):
            super().__init__(space, 64)
            first, second = torch.nn.Linear(space.shape[0], 64), torch.nn.Linear(64, 64)
            self.layers = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layers(observations)
            return found

    set_threads(workload)
    env = make_vec_env(workload.run.env.id, n_envs=8, seed=workload.run.seed)
    shared = {"features_extractor_class": Layers, "net_arch": []}
    model = PPO("MlpPolicy", env, n_steps=128, n_epochs=4, batch_size=256, policy_kwargs=shared)
    model.learn(FOREVER, callback=count_rollouts(counter))


def sb3_cartpole_dqn(workload: Workload, counter: Counter) -> None:
    """DQN of Stable-Baselines3: two updates after a step of four environments."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    set_threads(workload)
    env = make_vec_env(workload.run.env.id, n_envs=4, seed=workload.run.seed)
    model = DQN(
        "MlpPolicy", env, batch_size=64, train_freq=1, gradient_steps=2, learning_starts=1000,
        exploration_initial_eps=EPSILON, exploration_final_eps=EPSILON,
    )  # fmt: skip
    model.learn(FOREVER, callback=count_rollouts(counter))


CASES = {
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
    for key in sorted(changes.keys_of(overrides)):
        if key.partition(".")[0] not in SPEED_ONLY:
            raise ConfigError(f"{key}: would change the work of our side alone. Leave it out.")
    check_statistics()
    print(*disturbances(), sep="\n")
    case = CASES[name]
    run = compose([*case.overrides, *ENDLESS, *overrides])
    workload = Workload(workloads.train, run, describe(run))
    ours = Program([sys.executable, "-c", START], pickle.dumps(workload))
    for library, (module, train) in case.libraries.items():
        if importlib.util.find_spec(module) is None:
            print(f"{library}: {module} is not installed")
            continue
        theirs = Program([sys.executable, __file__, "measured"], pickle.dumps(Workload(train, run, workload.spec)))
        with running([theirs]) as other, running([ours]) as own:
            pairs = take_turns(other, own, SAMPLING)
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
