"""Compare the DQN of other libraries with a training of dqnspeed: ``python tools/library_baselines.py [OVERRIDE...]``.

The overrides of ``dqnspeed.train`` may make our side faster at the same work. Game, batch size, ratio of steps and
updates, replay, learning rate and last epsilon hold for both sides. Each library uses its own
network and wrappers of DQN on Atari (Mnih et al., 2015), as its documentation says. A library is imported only in its
measured process.
"""

from __future__ import annotations

import importlib.metadata
import pickle
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, UPDATES, Counter
from dqnspeed.bench.measured_process import Program
from dqnspeed.bench.pairs import SamplingPlan, check_statistics
from dqnspeed.bench.plan import ComposedWorkload, Piece, Plan
from dqnspeed.bench.report import number
from dqnspeed.bench.session import BenchSession
from dqnspeed.bench.workloads import Workload
from dqnspeed.cli.app import run_app
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.system import machine

SAMPLING = SamplingPlan(settle_s=0.0, slice_s=1.0, num_pairs=6, start_s=60.0)  # some events take seconds
ENDLESS = 10**9  # agent steps
WARM_UP_UPDATES = 4  # before the first event
WORK = ("algo.batch_size=32", "algo.steps_per_update=1")  # else more games would change the batch size
# Groups and keys that hold for both sides, or change only the speed of the same work.
SAME_WORK = {"env", "env.id", "seed", "device", "algo.batch_size", "algo.steps_per_update", "algo.learning_starts",
             "algo.gamma", "optimizer.lr", "replay.buffer_size", "num_envs", "wrappers", "backend",
             "backend.compile_rom", "backend.reset_pool"}  # fmt: skip


def set_threads(workload: Workload) -> None:
    """Set ``execution.threads`` threads; with 0 the library's own number, at most one for each core."""
    import torch

    torch.set_num_threads(workload.run.execution.threads or min(torch.get_num_threads(), machine.cores()))


def epsilon(workload: Workload) -> float:
    return float(cast("Any", workload.run.exploration).start)


def stable_baselines3_dqn(workload: Workload, counter: Counter, games: int = 1) -> None:
    """DQN of Stable-Baselines3 with the numbers of RL Baselines3 Zoo (hyperparams/dqn.yml).

    With several ``games``, as in its Atari example, DQN does as many updates at a time. Its page on off-policy
    algorithms with several environments recommends this. An event is one rollout and its updates.
    """
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    class Count(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.model._n_updates >= WARM_UP_UPDATES:
                counter.event({STEPS: self.num_timesteps, UPDATES: self.model._n_updates})

    set_threads(workload)
    run, algo = workload.run, cast("Any", workload.run.algo)
    env = VecFrameStack(make_atari_env(run.env.id, n_envs=games, seed=run.seed), n_stack=4)
    model = DQN(
        "CnnPolicy", env, buffer_size=run.replay.buffer_size, gamma=algo.gamma, learning_rate=run.optimizer.lr,
        batch_size=algo.batch_size, learning_starts=algo.learning_starts, target_update_interval=1000,
        train_freq=algo.steps_per_update, gradient_steps=games, exploration_initial_eps=epsilon(workload),
        exploration_final_eps=epsilon(workload), seed=run.seed, device=run.device,
    )  # fmt: skip
    model.learn(ENDLESS, callback=Count())


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
        total_frames=ENDLESS,
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


# Package, name of the row, and function of each baseline.
LIBRARIES = (
    ("stable-baselines3", "DQN", stable_baselines3_dqn),
    ("stable-baselines3", "DQN, 4 games", partial(stable_baselines3_dqn, games=4)),
    ("torchrl", "DQN", torchrl_dqn),
)


def _main() -> None:
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return
    check_statistics()
    plan = Plan([*WORK, *sys.argv[1:]])
    check_same_work(plan)
    pieces = installed_libraries(plan)
    with (
        tempfile.TemporaryDirectory(prefix="dqnspeed-") as folder,
        BenchSession(plan, "micro", Path(folder), len(pieces) * SAMPLING.seconds(paired=True)) as session,
    ):
        rows = [session.measure(piece, SAMPLING) for piece in pieces]
    print(*session.result.disturbances, plan.equal_work, sep="\n")
    for row in rows:
        if row.ratio is None:
            print(f"{row.name}: {row.error}")
            continue
        faster, low, high = (1 / ratio for ratio in (row.ratio.median, row.ratio.high, row.ratio.low))
        speeds = f"{number(row.value)} {row.unit}, dqnspeed {number(row.reference)}"
        print(f"{row.name}: {speeds}, which is {faster:.2f}× ({low:.2f}–{high:.2f}) as fast")


def check_same_work(plan: Plan) -> None:
    """Raise :class:`ConfigError` if the overrides would change the work of our side alone."""
    run = plan.reference
    if plan.game is None or "NoFrameskip" not in run.env.id:
        raise ConfigError(f"env.id={run.env.id}: is no game of the libraries. Name one such as PongNoFrameskip-v4.")
    for key in sorted(changes.keys_of(plan.overrides)):
        speeds = key.partition(".")[0] in ("execution", "parallelism") and key != "parallelism.samples_per_step"
        if key not in SAME_WORK and not speeds:
            raise ConfigError(f"{key}: would change the work of our side alone. Leave it out.")
    if (plan.spec.observation_shape, run.wrappers.frame_skip) != ((4, 84, 84), 4):
        raise ConfigError(f"wrappers={run.wrappers.name}: would change the work of our side alone. Leave it out.")


def installed_libraries(plan: Plan) -> Sequence[Piece]:
    """A piece for each installed library; raises :class:`ConfigError` if there is none."""
    pieces = []
    for package, what, train in LIBRARIES:
        try:
            name = f"{package} {importlib.metadata.version(package)} {what}"
        except importlib.metadata.PackageNotFoundError:
            continue
        workload = pickle.dumps(Workload(train, plan.reference, plan.spec))
        program = Program([sys.executable, __file__, "measured"], workload)
        pieces.append(Piece("libraries", name, STEPS, partial(ComposedWorkload, program), plan.baseline))
    if not pieces:
        raise ConfigError("library_baselines: no library is installed. Use pip install 'dqnspeed[peers]'.")
    return pieces


if __name__ == "__main__":
    workloads.main() if sys.argv[1:] == ["measured"] else run_app(_main)
