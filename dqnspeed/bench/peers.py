"""Other libraries, run as their documentation says, with the learner's work of the training that they stand beside.

That is the game, batch, ratio of steps and updates, replay, learning rate and last epsilon; network and wrappers are
those of DQN on Atari (Mnih et al., 2015), which each library brings itself. Libraries are imported in the measured
process alone.
"""

from __future__ import annotations

import importlib.metadata
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.bench.plan import Made, Piece, Plan
from dqnspeed.bench.subject import Program
from dqnspeed.bench.work import Work
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.system import machine

INSTALL = "pip install 'dqnspeed[peers]' brings it"
GROUP = "peers"
WARM_UPDATES = 4  # before the first event
FOREVER = 10**9  # agent steps
# Groups and keys that hold for peers too, or that they bring by themselves.
SHARED = {"env", "env.id", "seed", "device", "execution.threads", "algo.batch_size", "algo.steps_per_update",
          "algo.learning_starts", "algo.gamma", "optimizer.lr", "replay.capacity"}  # fmt: skip
# What a line may change besides, that is measured beside peers by itself: how fast the same work is done.
OURS = {"wrappers", "wrappers.backend", "wrappers.translate", "wrappers.spares", "num_envs", "parallelism", "execution"}


def stable_baselines3_dqn(work: Work, counter: Counter, games: int = 1) -> None:
    """DQN of Stable-Baselines3 with the numbers of RL Baselines3 Zoo (hyperparams/dqn.yml).

    With several ``games`` it does as many updates at a time, as its page on off-policy algorithms and several
    environments says.
    """
    from stable_baselines3 import DQN

    algo: Any = work.run.algo
    model = DQN(
        "CnnPolicy", _stable_baselines3_games(work, games), buffer_size=work.run.replay.capacity, gamma=algo.gamma,
        learning_rate=work.run.optimizer.lr, batch_size=algo.batch_size, learning_starts=algo.learning_starts,
        target_update_interval=1000, train_freq=algo.steps_per_update, gradient_steps=games,
        exploration_initial_eps=_epsilon(work), exploration_final_eps=_epsilon(work), seed=work.run.seed,
        device=work.run.device,
    )  # fmt: skip
    _count_stable_baselines3(model, counter, batches=1)


def stable_baselines3_dqn_games(work: Work, counter: Counter) -> None:
    """The same with four games at a time, as its example of Atari has them."""
    stable_baselines3_dqn(work, counter, games=4)


def stable_baselines3_ppo(work: Work, counter: Counter) -> None:
    """PPO of Stable-Baselines3 with the numbers of RL Baselines3 Zoo (hyperparams/ppo.yml): its own work."""
    from stable_baselines3 import PPO

    games, steps, size = 8, 128, 256
    model = PPO(
        "CnnPolicy", _stable_baselines3_games(work, games), n_steps=steps, n_epochs=4, batch_size=size,
        learning_rate=lambda left: 2.5e-4 * left, clip_range=lambda left: 0.1 * left, vf_coef=0.5, ent_coef=0.01,
        seed=work.run.seed, device=work.run.device,
    )  # fmt: skip
    _count_stable_baselines3(model, counter, batches=games * steps // size)


def _epsilon(work: Work) -> float:
    return float(cast("Any", work.run.exploration).start)


def _stable_baselines3_games(work: Work, games: int) -> Any:
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    return VecFrameStack(make_atari_env(work.run.env.id, n_envs=games, seed=work.run.seed), n_stack=4)


def _count_stable_baselines3(model: Any, counter: Counter, batches: int) -> None:
    """Train; an event is what was collected and learnt since the one before. An epoch has ``batches``."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Count(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            updates = self.model._n_updates * batches
            if updates >= WARM_UPDATES:
                counter.event({STEPS: self.num_timesteps, UPDATES: updates})

    model.learn(FOREVER, callback=Count())


def torchrl_dqn(work: Work, counter: Counter) -> None:
    """DQN of TorchRL as its ``sota-implementations/dqn`` has it: 400 steps are collected, then the updates are done.

    Its frames come from Gymnasium's preprocessing, which is quicker than its own in floating point, and are scaled by
    the network, so that the replay holds bytes.
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

    run, steps, device = work.run, 400, machine.pick_device(work.run.device)
    algo: Any = run.algo
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
    greedy = EGreedyModule(spec=actor.spec, annealing_num_steps=1, eps_init=_epsilon(work), eps_end=_epsilon(work))
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
    storage = LazyTensorStorage(run.replay.capacity)
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


@dataclass(frozen=True)
class Peer:
    """A way to train with another library.

    Args:
        package: what it is installed as.
    """

    name: str
    package: str
    train: Callable[[Work, Counter], None]


PEERS = (
    Peer("Stable-Baselines3 DQN", "stable-baselines3", stable_baselines3_dqn),
    Peer("Stable-Baselines3 DQN, 4 games", "stable-baselines3", stable_baselines3_dqn_games),
    Peer("Stable-Baselines3 PPO, its own work", "stable-baselines3", stable_baselines3_ppo),
    Peer("TorchRL DQN", "torchrl", torchrl_dqn),
)


def training(name: str) -> Callable[[Work, Counter], None]:
    """What trains with another library, on as many threads as ``execution.threads`` says, or as it takes by itself, of
    the cores there are."""
    [train] = [peer.train for peer in PEERS if peer.train.__name__ == name]

    def started(work: Work, counter: Counter) -> None:
        import torch

        # By itself it takes no heed of a container's quota.
        torch.set_num_threads(work.run.execution.threads or min(torch.get_num_threads(), machine.cores()))
        train(work, counter)

    return started


def check(plan: Plan, alone: bool = False) -> None:
    """Raise :class:`ConfigError` unless there is a peer to measure here, at the work of the reference.

    Args:
        alone: the reference is a line of the user's, which may be faster at this work.
    """
    run, given = plan.reference, "suite=peers" if alone else "peers=true"
    if not plan.is_atari or "NoFrameskip" not in run.env.id:
        raise ConfigError(
            f"{given}: they are run on games such as PongNoFrameskip-v4, and env.id={run.env.id} is none."
        )
    shared = SHARED | OURS if alone else SHARED
    for key in sorted(changes.keys_of(plan.overrides)):
        if key not in shared and key.partition(".")[0] not in shared - {"wrappers", "env"}:
            raise ConfigError(f"{given}: {key} would change our side alone; leave it out.")
    if (plan.spec.observation_shape, run.wrappers.frame_skip) != ((4, 84, 84), 4):
        raise ConfigError(f"{given}: wrappers={run.wrappers.name} would change our side alone; leave it out.")
    algo: Any = run.algo
    if plan.ratio != algo.batch_size / algo.steps_per_update:
        raise ConfigError(
            f"{given}: parallelism.replay_ratio={plan.ratio:g} would change the work of our side alone; leave it out."
        )
    if not any(map(_version, {peer.package for peer in PEERS})):
        raise ConfigError(f"{given}: needs other libraries; {INSTALL.replace('it', 'them')}.")


def pieces(plan: Plan) -> Iterator[Piece]:
    """The peers, each at the work of the plan's reference; one that is not installed is a piece that says so."""
    for peer in PEERS:
        yield Piece(GROUP, peer.name, f"{STEPS}/s", STEPS, partial(_made, plan, peer), version=_version(peer.package))


def _made(plan: Plan, peer: Peer) -> Made:
    if _version(peer.package) is None:
        raise ConfigError(f"is not installed; {INSTALL}")
    stdin = pickle.dumps(Work(peer.train.__name__, plan.reference, plan.spec))
    return Made(Program([sys.executable, "-m", "dqnspeed.bench.child"], stdin), kinds=[changes.ALGORITHM])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
