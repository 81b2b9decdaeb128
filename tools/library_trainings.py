"""Trainings of other libraries, to be measured beside ours by ``library_speeds.py``.

Each counts agent steps and, where a test compares them, updates, and never ends. A library is imported only in its
measured process.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, cast

from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.bench.workloads import WARM_UP_UPDATES, Workload
from dqnspeed.system import machine

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOREVER = 10**9  # agent steps


def set_threads(workload: Workload) -> int:
    """Set ``execution.threads`` threads of torch, by default one for each core; returns their number."""
    import torch

    threads: int = workload.run.execution.threads or machine.cores()
    torch.set_num_threads(threads)
    return threads


def epsilon(workload: Workload) -> float:
    """Share of random actions."""
    return float(cast("Any", workload.run.exploration).start)


def count_rollouts(counter: Counter) -> Any:
    """Callback of Stable-Baselines3 that counts before each rollout; an event is one rollout and its updates."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Count(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.model._n_updates >= WARM_UP_UPDATES:
                counter.event({STEPS: self.num_timesteps, UPDATES: self.model._n_updates})

    return Count()


def sb3_atari_dqn(workload: Workload, counter: Counter, games: int = 1) -> None:
    """DQN of Stable-Baselines3 with the numbers of RL Baselines3 Zoo (hyperparams/dqn.yml).

    With several ``games``, as in its Atari example, DQN does as many updates at a time. Its page on off-policy
    algorithms with several environments recommends this.
    """
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    set_threads(workload)
    run, algo = workload.run, cast("Any", workload.run.algo)
    env = VecFrameStack(make_atari_env(run.env.id, n_envs=games, seed=run.seed), n_stack=4)
    model = DQN(
        "CnnPolicy", env, buffer_size=run.replay.buffer_size, gamma=algo.gamma, learning_rate=run.optimizer.lr,
        batch_size=algo.batch_size, learning_starts=algo.learning_starts, target_update_interval=1000,
        train_freq=algo.steps_per_update, gradient_steps=games, exploration_initial_eps=epsilon(workload),
        exploration_final_eps=epsilon(workload), seed=run.seed, device=run.device,
    )  # fmt: skip
    model.learn(FOREVER, callback=count_rollouts(counter))


def torchrl_dqn(workload: Workload, counter: Counter) -> None:
    """DQN of TorchRL after its ``sota-implementations/dqn``: 400 steps are collected, then the updates are done.

    Frames come from Gymnasium's preprocessing, which is faster than TorchRL's in floating point. The network scales
    frames, so that the replay holds bytes.
    """
    import gymnasium
    import torch
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
    from tensordict.nn import TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import DoubleToFloat, GymWrapper, SignTransform, TransformedEnv
    from torchrl.modules import MLP, ConvNet, EGreedyModule, QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate

    run, steps, device = workload.run, 400, machine.pick_device(workload.run.device)
    algo: Any = run.algo
    set_threads(workload)
    torch.manual_seed(run.seed)

    def make_game() -> Any:
        game = AtariPreprocessing(gymnasium.make(run.env.id, frameskip=1), terminal_on_life_loss=True)
        env = TransformedEnv(GymWrapper(FrameStackObservation(game, 4), categorical_action_encoding=True))
        env.append_transform(SignTransform(in_keys=["reward"]))
        env.append_transform(DoubleToFloat())
        return env

    class Scale(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.float() / 255

    env = make_game()
    convolutions = ConvNet(
        num_cells=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], activation_class=torch.nn.ReLU
    )
    network = torch.nn.Sequential(
        Scale(),
        convolutions,
        MLP(in_features=3136, out_features=env.action_spec.space.n, num_cells=[512], activation_class=torch.nn.ReLU),
    ).to(device)
    network(torch.zeros(1, 4, 84, 84, device=device))  # lazy modules
    actor = QValueActor(network, spec=Composite(action=env.action_spec), in_keys=["observation"]).to(device)
    greedy = EGreedyModule(
        spec=actor.spec, annealing_num_steps=1, eps_init=epsilon(workload), eps_end=epsilon(workload)
    )
    greedy.to(device)
    collector = Collector(
        make_game,
        TensorDictSequential(actor, greedy),
        frames_per_batch=steps,
        total_frames=FOREVER,
        init_random_frames=algo.learning_starts,
        policy_device=device,
        env_device="cpu",
        storing_device="cpu",
    )
    storage = LazyTensorStorage(run.replay.buffer_size)
    replay = TensorDictReplayBuffer(storage=storage, batch_size=algo.batch_size)
    loss = DQNLoss(value_network=actor, loss_function="l2", delay_value=True)
    loss.make_value_estimator(gamma=algo.gamma)
    target = HardUpdate(loss, value_network_update_interval=10_000)
    optimizer = torch.optim.Adam(loss.parameters(), lr=run.optimizer.lr)
    collected = updates = 0
    for data in collector:
        replay.extend(data.reshape(-1))
        collected += data.numel()
        greedy.step(data.numel())
        if collected < algo.learning_starts:
            continue
        for _ in range(steps // algo.steps_per_update):
            optimizer.zero_grad()
            loss(replay.sample().to(device))["loss"].backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 10)
            optimizer.step()
            target.step()
            updates += 1
        collector.update_policy_weights_()
        counter.event({STEPS: collected, UPDATES: updates})


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
        exploration_initial_eps=epsilon(workload), exploration_final_eps=epsilon(workload),
    )  # fmt: skip
    model.learn(FOREVER, callback=count_rollouts(counter))
