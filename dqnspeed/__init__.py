"""dqnspeed finds out how fast an Atari agent can learn on your machine, and gets it there.

From Python: :func:`compose` a configuration, :func:`train` an agent, :func:`read` what a run has recorded, and
:func:`load` the trained agent. What they are given is checked as on the command line; a mistake raises
:class:`ConfigError`, whose message is one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dqnspeed.system.startup  # noqa: F401 (its clock begins here)
from dqnspeed.config.options import ConfigError, path_of
from dqnspeed.system.messages import __version__, about

if TYPE_CHECKING:
    from dqnspeed.cli.errors import RunError
    from dqnspeed.config.schema import RunConfig
    from dqnspeed.play.agent import Agent
    from dqnspeed.tracking.callbacks import Callback
    from dqnspeed.tracking.results import Results

# Imported when they are asked for: with torch and the environments, they take seconds.
_CLASSES = {
    "Agent": "dqnspeed.play.agent",
    "Callback": "dqnspeed.tracking.callbacks",
    "Results": "dqnspeed.tracking.results",
    "RunConfig": "dqnspeed.config.schema",
    "RunError": "dqnspeed.cli.errors",
}

__all__ = [
    "Agent",
    "Callback",
    "ConfigError",
    "Results",
    "RunConfig",
    "RunError",
    "__version__",
    "about",
    "compose",
    "load",
    "read",
    "train",
]


def compose(overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of a training, checked as before one: its environment is tried here.

    Args:
        overrides: ``GROUP=OPTION`` and ``KEY=VALUE``, as on the command line.

    Returns:
        A frozen dataclass with one of a group's options in each field; ``stop``, ``eval`` and scalars beside them.

    Raises:
        ConfigError: an option is unknown, a value missing, out of range or at odds with another, or this machine cannot
            train it.

    Examples:
        >>> run = dqnspeed.compose(["experiment=cartpole", "seed=1"])
        >>> run.env.id, run.algo.name, run.num_envs, run.seed
        ('CartPole-v1', 'dqn', 16, 1)
    """
    from dqnspeed.cli import api

    return api.compose(overrides)


def train(
    overrides: Sequence[str] = (), folder: str | Path | None = None, callbacks: Sequence[Callback] = ()
) -> Results:
    """Train an agent in this process, as the command line does, and return what :func:`read` gives.

    It prints what the command line prints, with a bar in a notebook. Ctrl-C, or the notebook's stop button, ends the
    run saved: its results are returned, with ``summary["stopped_by"] == "SIGINT"``, and ``resume=FOLDER`` among the
    overrides continues it; a second one raises :class:`KeyboardInterrupt` at once. That needs the main thread, where
    Python handles signals; in another the run goes on to its end. SIGTERM, SIGHUP, and SIGUSR1 and SIGUSR2 where Python
    handles them, save the run too, and then do what they did before.

    Handlers of signals, the threads of torch and OpenCV, the random generators of Python, NumPy and torch, and a Hydra
    of the process's own are restored at the end. Not so a W&B run that is active here, which that of ``tracking.wandb``
    finishes (``tracking=local`` has none), the statistics of peak memory, which start anew, and torch's arithmetic on
    GPUs, which ``execution.precision`` sets.

    With actor or worker processes a script must call it under ``if __name__ == "__main__":``, since each of them
    imports the script; a notebook need not.

    Args:
        overrides: as on the command line, ``resume=FOLDER`` too.
        folder: of the run, which must hold none; by default a new one below ``outputs/`` in the working folder.
        callbacks: objects whose methods are called at the events of the training.

    Raises:
        ConfigError: as :func:`compose`; or the folder cannot be used, or there is nothing to resume. Nothing was
            trained.
        RunError: an environment, an actor or a callback broke, a loss was not finite, or files could not be written.
        RuntimeError: a process that the script has started has come here by importing it.

    Examples:
        >>> results = dqnspeed.train(["experiment=cartpole", "stop.max_steps=2000"], folder="outputs/cartpole")
        cartpole: CartPole-v1, algo=dqn, backend=gymnasium, parallelism=serial, 16 environments, seed 0
        ...
        >>> results.summary["stopped_by"], results.summary["agent_steps"] >= 2000
        ('max_steps', True)
    """
    from dqnspeed.cli import api

    return api.train(overrides, folder, callbacks)


def read(folder: str | Path) -> Results:
    """Summary, configuration, metrics and episodes that a run, or every run below a sweep's folder, has recorded.

    Tables are pandas DataFrames where pandas is installed, which ``pip install 'dqnspeed[pandas]'`` brings, else lists
    of dicts. Lines that cannot be read are left out, and named in a :class:`UserWarning`, as is a run that is not
    finished or whose summary is damaged.

    Raises:
        ConfigError: there is no such folder, or it holds no run.

    Examples:
        >>> results = dqnspeed.read("outputs/cartpole")
        >>> results.summary["experiment"], results.summary["solved"]
        ('cartpole', False)
        >>> results.config["env"]["id"]
        'CartPole-v1'
        >>> returns = results.episodes["return"]  # with pandas; else [game["return"] for game in results.episodes]
    """
    from dqnspeed.tracking.results import read as read_results

    return read_results(path_of(folder))


def load(folder: str | Path, checkpoint: str = "best", device: str = "auto", trust: bool = False) -> Agent:
    """The trained agent of a run.

    Args:
        folder: of the run, or one of its checkpoints.
        checkpoint: ``best`` (the newest where there is none), ``final`` or the name of another file in
            ``checkpoints/``.
        device: where the network runs: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        trust: import an environment that the run's files name, also if they were not made here.

    Raises:
        ConfigError: there is no such folder, it holds no run, its environment cannot be made here or is not trusted, or
            the checkpoint is missing, damaged or another run's.

    Examples:
        >>> agent = dqnspeed.load("outputs/cartpole")
        >>> env = agent.make_env()
        >>> observation, info = env.reset(seed=1)
        >>> agent.values(observation).shape
        (2,)
        >>> observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        >>> env.close()
    """
    from dqnspeed.play.agent import load as load_agent

    return load_agent(path_of(folder), checkpoint, device, trust)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
