"""The schema of ``conf/``: frozen dataclasses and the ranges of their values.

The YAML files hold the values and this module the types, so a default is written once. Where the options of a group
differ in type, the class here holds what they share, and each is a subclass registered by name (``registry.py``). Code
below the commands sees only :class:`RunConfig`, never Hydra or OmegaConf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, TypeVar, Union  # noqa: UP035  OmegaConf reads these at run time

from dqnspeed.config.options import option

KINDS = ("exact", "equivalent", "changes the task", "changes the algorithm")


class GroupOption:
    """Base class of options, which may check the whole configuration."""

    def check(self, run: RunConfig) -> None:
        """Raise :class:`ConfigError` if this option cannot be combined with the rest of ``run``."""


Base = TypeVar("Base", bound=GroupOption)


def typed(option: GroupOption, base: type[Base]) -> Base:
    """``option`` with the type ``base`` of its group, which this package cannot import."""
    assert isinstance(option, base)
    return option


@dataclass(frozen=True)
class AlgoConfig(GroupOption):
    """Base class of algorithms: shared options, and properties that the rest of the configuration uses.

    An algorithm is a subclass with more options; ``dqnspeed.algorithms.base`` has its other methods.
    """

    replays: ClassVar[bool] = False  # whether it learns from a replay buffer, else from each transition once
    uses: ClassVar[tuple[str, ...]] = ("model", "optimizer")  # the groups it uses, of the groups that only some use
    supports_cuda_graph: ClassVar[bool] = False  # drawing a batch and updating can be one graph
    compiles_gradients: ClassVar[bool] = False  # on a CPU, together with the loss; see algorithms/optimization.py
    outputs: ClassVar[str] = "action values"  # outputs of its network for each action

    name: str = option("name of the algorithm")
    gamma: float = option("discount factor of one agent step", ge=0, le=1)
    max_grad_norm: float | None = option("maximum of the gradient's global norm, null: no clipping", gt=0)
    batch_size: int = option("transitions in one update", ge=1)
    learning_starts: int = option(
        "agent steps before the first update (on-policy: played and discarded; the background is measured on them)",
        ge=0,
    )

    @property
    def has_policy(self) -> bool:
        """Whether the network computes a policy, from which actions can be drawn."""
        return self.outputs != AlgoConfig.outputs

    def samples_per_step(self, run: RunConfig) -> float | None:
        """Samples trained on per agent step; ``None`` if the number is not fixed."""
        return 1

    def updates_per_step(self, run: RunConfig) -> float | None:
        """Updates per agent step; ``None`` if the number is not fixed."""
        samples = self.samples_per_step(run)
        return None if samples is None else samples / self.batch_size


@dataclass(frozen=True)
class EnvConfig:
    id: str = option("a Gymnasium id, 'module:Id-v0' for your own, or the name of an ALE ROM")
    reward_bound: float | None = option("mean return of 100 games at which the game counts as solved")
    sticky_actions: float | None = option(
        "probability that a frame repeats the last action, null: as the id says", ge=0, lt=1
    )
    full_action_space: bool | None = option("use all actions of the game, mostly 18; null: as the id says")
    max_episode_frames: int | None = option(
        "emulated frames before truncation, null: as the id says", ge=1, le=2**31 - 1
    )
    mode: int | None = option("ALE's mode of the game, null: its default", ge=0)
    difficulty: int | None = option("ALE's difficulty of the game, null: its default", ge=0)
    observation_key: str | None = option("entry of the observation, if observations are a Dict")
    recipe: str | None = option("overrides that suit the game, null: algo=dqn suits it")
    channels: str = option("position of the channels of an image", choices=("auto", "first", "last"))
    kwargs: Dict[str, Any] = option("keyword arguments for gymnasium.make (not for ALE games)")  # noqa: UP006


@dataclass(frozen=True)
class WrappersConfig(GroupOption):
    name: str = option("label of the wrappers")
    noop_max: int = option("maximum number of no-ops at the start of a game, 0: none", ge=0, le=2**20)
    fire_reset: bool = option("press FIRE at the start of a game and after a lost life")
    frame_skip: int = option("frames for which an action is repeated", ge=1, le=2**20)
    tap_frames: int = option(
        "frames after which the tapped form of an action ends, less than frame_skip; 0: no tapped actions", ge=0
    )
    max_pool: bool = option("pixel maximum of the last two frames of a skip")
    episodic_life: bool = option("a lost life ends the learner's episode, but not the game")
    grayscale: bool = option("convert images to grayscale")
    crop: List[int] | None = option(  # noqa: UP006
        "part of the image to keep, [top, bottom, left, right]; []: the part that changes in random play; null: all"
    )
    resize: int | None = option("side of the resized square image, null: not resized", ge=8, le=1024)
    resizer: str = option("library that resizes", choices=("cv2", "pillow"))
    interpolation: str = option("filter of the resize", choices=("area", "bilinear", "bicubic", "nearest"))
    clip_reward: bool = option("clip the learner's rewards to [-1, 1]")
    stack: int = option("number of stacked frames", ge=1, le=256)


@dataclass(frozen=True)
class BackendConfig(GroupOption):
    """Options that every backend has; ``dqnspeed.envs.backends.base`` says how a backend plays."""

    name: str = option("name of the backend")

    @property
    def uses_threads(self) -> bool:
        """Whether environments step on threads; the option ``threads`` says how many."""
        return hasattr(self, "threads")

    @property
    def given_threads(self) -> int:
        """Value of the option ``threads``; 0 if it is left open, or there is none."""
        return int(getattr(self, "threads", 0))

    def with_threads(self, count: int) -> BackendConfig:
        """Copy with ``count`` threads, if the backend uses threads."""
        changed: Any = {"threads": count} if self.uses_threads else {}
        return replace(self, **changed)


@dataclass(frozen=True)
class ParallelismConfig(GroupOption):
    processes: ClassVar[bool] = False  # actors are other processes than the learner's
    overlaps: ClassVar[bool] = False  # environments of the learner's process step while it computes
    shares_memory: ClassVar[bool] = False  # actor processes share memory with the learner
    joins_cluster: ClassVar[bool] = False  # a run joins a cluster, which a job of that cluster cannot do again

    name: str = option("name of the kind of actors")
    num_actors: int = option("actor processes, 0: chosen by the number of cores", ge=0, le=256)
    transport: str = option("how transitions travel (process only)", choices=("shared_memory", "queue"))
    samples_per_step: Union[int, float, str] | None = option(  # noqa: UP007
        "samples trained on per agent step of actor processes, kept from both sides; or 'free'"
    )
    restart_actors: bool = option(
        "replace an actor process that died, hangs or raised an error; else the run is saved and ends"
    )
    timeout_s: float = option("seconds of silence after which an actor or a worker counts as hung", gt=0)

    @property
    def steps_ahead(self) -> int:
        """Steps that each environment may be ahead of a learner that holds a ratio."""
        return 2

    @property
    def uses_this_machine(self) -> bool:
        """Whether actors run on cores of this machine."""
        return True


@dataclass(frozen=True)
class ModelConfig(GroupOption):
    name: str = option("label of the network")
    hidden: List[int] = option("units of the fully connected layers")  # noqa: UP006
    dueling: bool = option("separate value and advantage streams")
    layer_norm: bool = option("layer norm before every activation")
    input_scale: float | None = option("observations are divided by this, null: by the most their space allows", gt=0)
    background: bool = option("subtract the median of the first random frames")
    background_frames: int = option("frames the median is taken over", ge=1)


@dataclass(frozen=True)
class OptimizerConfig(GroupOption):
    name: str = option("the optimizer")
    lr: float = option("learning rate", gt=0)
    lr_final: float | None = option("learning rate at last, null: constant", ge=0)
    lr_decay_steps: int | None = option(
        "agent steps from the first update on over which lr falls to lr_final, null: until stop.max_steps, else until "
        "stop.max_minutes",
        ge=1,
    )
    eps: float = option("term that keeps the division finite", gt=0)
    weight_decay: float = option("weight decay", ge=0)


@dataclass(frozen=True)
class ReplayConfig(GroupOption):
    name: str = option("name of the replay buffer")
    buffer_size: int = option("transitions kept, all environments together", ge=2)
    device: str = option(
        "device of the buffer, auto: the learner's, if its GPU has room",
        choices=("auto", "cpu", "cuda"),
    )


@dataclass(frozen=True)
class ExplorationConfig(GroupOption):
    name: str = option("name of the exploration")


@dataclass(frozen=True)
class ExecutionConfig:
    name: str = option("label of the execution")
    no_grad: bool = option("build no autograd graph if no gradient is needed")
    precision: str = option(
        "arithmetic of the networks (tf32: on a GPU; auto: bf16 if the device computes in it, else fp32)",
        choices=("auto", "fp32", "tf32", "bf16"),
    )
    channels_last: bool = option("NHWC memory layout of the convolutions")
    compile: bool | None = option(
        "torch.compile of the update and, on a CPU, of acting (needs a C++ compiler); null: on a CPU, if there is one"
    )
    numpy_acting: bool = option("NumPy chooses the actions of small networks without convolutions (CPU)")
    threads: int = option("torch threads of the learner, 0: the cores that actors leave free", ge=0)
    keep_memory: bool = option("reuse the memory of freed tensors (CPU; glibc only)")
    pin_memory: bool = option("page-locked, asynchronous copies of batches that are not drawn on the GPU")
    graph: bool = option("drawing a batch and the update as one CUDA graph (CUDA only)")


@dataclass(frozen=True)
class TrackingConfig:
    name: str = option("label of the tracking")
    report_every_s: float = option("seconds between lines of metrics.jsonl", gt=0)
    progress: str = option("kind of progress display in the terminal", choices=("auto", "rich", "plain", "off"))
    trackers: List[str] = option("services that get the metrics: tensorboard, wandb, and services of plugins")  # noqa: UP006
    kwargs: Dict[str, Any] = option("keyword arguments of trackers of plugins, by their names")  # noqa: UP006
    wandb: str = option(
        "mode of W&B; auto: as WANDB_MODE and WANDB_DISABLED of the environment say, else offline",
        choices=("auto", "offline", "online", "disabled"),
    )
    video_every: int = option("training games between videos of the agent's observations, 0: no videos", ge=0)
    project: str = option("W&B project")
    group: str | None = option("W&B group, null: the sweep's folder in a sweep, else the run's id")
    run_name: str | None = option("W&B run name, null: rung, overrides and seed")


@dataclass(frozen=True)
class CheckpointConfig:
    best: bool = option("save the weights with the best mean return")
    final: bool = option("save a checkpoint at the end")
    every_minutes: float = option("minutes between checkpoints that a run can be resumed from, 0: never", ge=0)
    keep: int = option("number of periodic checkpoints to keep", ge=1)
    replay: bool = option("save the replay buffer too, so that a resumed run need not fill it again")


@dataclass(frozen=True)
class ExperimentConfig:
    name: str = option("name of the rung")
    kind: List[str] = option("kinds of change against the baseline", choices=KINDS)  # noqa: UP006
    about: str = option("one sentence on the rung")
    pong_bound: float | None = option("mean return at which the source of the rung calls Pong solved, null: 17")


@dataclass(frozen=True)
class EvalConfig:
    every_steps: int | None = option("agent steps between evaluations, null: none", ge=1)
    episodes: int = option("games of one evaluation", ge=1)
    epsilon: float = option("probability of a random action in evaluations, 0: greedy", ge=0, le=1)
    deterministic: bool = option("take the policy's most likely action in evaluations, false: draw from the policy")
    noop_max: int = option(
        "most no-ops at the start of an ALE game in evaluations and in play, 0: wrappers.noop_max", ge=0, le=2**20
    )


@dataclass(frozen=True)
class StopConfig:
    on: str = option("mean return that counts: of training games or the last evaluation", choices=("train", "eval"))
    reward_bound: float | None = option("solved at this mean return, null: never")
    window: int = option("finished games over which the mean is taken", ge=1)
    max_steps: int | None = option("maximum number of agent steps, null: no limit", ge=1)
    max_minutes: float | None = option("maximum minutes of training and evaluations, null: no limit", gt=0)

    @property
    def measure(self) -> str:
        """The mean return that counts, in words."""
        return "eval" if self.on == "eval" else f"train, {self.window}"


@dataclass(frozen=True)
class RunConfig:
    algo: AlgoConfig = option("algorithm, and when it updates")
    env: EnvConfig = option("game and its rules")
    wrappers: WrappersConfig = option("preprocessing of observations, actions and rewards")
    backend: BackendConfig = option("library that steps the environments")
    parallelism: ParallelismConfig = option("number and kind of actors")
    model: ModelConfig = option("network")
    optimizer: OptimizerConfig = option("optimizer and learning rate")
    replay: ReplayConfig = option("replay buffer and its sampling")
    exploration: ExplorationConfig = option("exploration of the actors")
    execution: ExecutionConfig = option("execution of updates: precision, threads, compilation, CUDA graphs")
    tracking: TrackingConfig = option("progress bar, TensorBoard, W&B")
    checkpoint: CheckpointConfig = option("checkpoints and their frequency")
    experiment: ExperimentConfig = option("rungs of the ladder and recipes, one file each")
    stop: StopConfig = option("no group: conditions that end a run")
    eval: EvalConfig = option("no group: evaluations during training")
    num_envs: int = option("environments of each actor, 0: chosen by the number of cores", ge=0, le=4096)
    seed: int = option("seed of all random numbers", ge=0, lt=2**32)
    device: str = option("device of the learner", choices=("auto", "cpu", "cuda", "mps"))
    live: bool = option("serve a page that shows the training")
    init: str | None = option(
        "initial weights: folder of a run or of a published agent, zoo:GAME or hub:USER/NAME; null: random"
    )

    @property
    def total_envs(self) -> int:
        """Environments of all actors together."""
        return self.num_envs * self.parallelism.num_actors

    @property
    def has_replay(self) -> bool:
        """Whether the algorithm learns from a replay buffer, else from each transition once."""
        return self.algo.replays

    @property
    def saves_buffer(self) -> bool:
        """Whether checkpoints hold the buffer; a replay buffer only with ``checkpoint.replay``."""
        return self.checkpoint.replay or not self.has_replay

    @property
    def shares_replay(self) -> bool:
        """Whether actor processes write rows into shared memory, from which the learner copies or reads them."""
        return self.parallelism.shares_memory and self.parallelism.transport == "shared_memory"

    @property
    def takes_turns(self) -> bool:
        """Whether one half of the environments steps while the network acts for the other half."""
        return self.parallelism.overlaps and not self.parallelism.processes and not self.has_replay

    @property
    def samples_per_step(self) -> float | None:
        """Samples trained on per agent step; ``None`` if the number is not fixed."""
        return self.algo.samples_per_step(self)

    @property
    def updates_per_step(self) -> float | None:
        """Updates per agent step; ``None`` if the number is not fixed."""
        return self.algo.updates_per_step(self)

    @property
    def decay_steps(self) -> int | None:
        """Agent steps after the first update over which values fall; ``None`` without a limit of steps."""
        whole = self.stop.max_steps and max(1, self.stop.max_steps - self.algo.learning_starts)
        return self.optimizer.lr_decay_steps or whole

    @property
    def decay_updates(self) -> float:
        """Updates over which the learning rate and an entropy bonus decay; infinite if the number is not fixed."""
        per_step, steps = self.updates_per_step, self.decay_steps
        return math.inf if per_step is None or steps is None else steps * per_step

    @property
    def decay_seconds(self) -> float | None:
        """Seconds over which the learning rate and an entropy bonus decay, if no number of steps is given."""
        minutes = self.stop.max_minutes
        return None if minutes is None or self.decay_steps is not None else 60 * minutes
