"""dqnspeed finds out how fast an Atari agent can learn on your machine, and gets it there.

From Python: :func:`compose` a configuration, :func:`train` an agent, :func:`read` the records of a run, and
:func:`load` the trained agent. Arguments are checked as on the command line. A mistake raises :class:`ConfigError`,
whose message is one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dqnspeed.system.startup  # noqa: F401 (the clock of start-up begins here)
from dqnspeed.config.options import ConfigError, path_of
from dqnspeed.system.messages import __version__, about

if TYPE_CHECKING:
    from dqnspeed.agents.agent import Agent
    from dqnspeed.cli.errors import RunError
    from dqnspeed.config.schema import RunConfig
    from dqnspeed.tracking.callbacks import Callback
    from dqnspeed.tracking.results import Results

# Imported at their first use, because torch and the environments take seconds to import.
_CLASSES = {
    "Agent": "dqnspeed.agents.agent",
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
    """Compose the configuration of a training and check it; the environment is tried too.

    Args:
        overrides: ``GROUP=OPTION`` and ``KEY=VALUE``, as on the command line.

    Returns:
        A frozen dataclass with the chosen option of each group, ``stop``, ``eval`` and scalars.

    Raises:
        ConfigError: an option is unknown, a value is missing, out of range or at odds with another value, or this
            machine cannot train it.

    Examples:
        >>> run = dqnspeed.compose(["experiment=cartpole", "seed=1"])
        >>> run.env.id, run.algo.name, run.num_envs, run.seed
        ('CartPole-v1', 'dqn', 16, 1)
    """
    from dqnspeed.cli import api

    return api.compose(overrides)


def train(
    overrides: Sequence[str] = (),
    folder: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    live: bool = False,
) -> Results:
    """Train an agent in this process, as the command line does, and return the results as :func:`read` does.

    The output is as on the command line, with a progress bar in a notebook. Ctrl-C, or the notebook's stop button,
    saves the run, ends it and returns the results with ``summary["stopped_by"] == "SIGINT"``. The override
    ``resume=FOLDER`` continues the run. A second Ctrl-C raises :class:`KeyboardInterrupt` at once. Signals need the
    main thread; a run in another thread ignores them. SIGTERM and SIGHUP save the run too, and then reach the handlers
    of the caller, as do SIGUSR1 and SIGUSR2 if Python handles them.

    Signal handlers, the threads of torch and OpenCV, the random generators of Python, NumPy and torch, and Hydra's
    state are restored at the end. Three things are not restored: an active W&B run is finished unless
    ``tracking=local``, the statistics of peak memory are reset, and ``execution.precision`` sets torch's arithmetic on
    GPUs.

    A script that uses actor or worker processes must call this function under ``if __name__ == "__main__":``, because
    each process imports the script. A notebook need not.

    Args:
        overrides: as on the command line, including ``resume=FOLDER``.
        folder: new folder of the run; by default a folder below ``outputs/`` in the working folder.
        callbacks: objects whose methods are called at the events of the training.
        live: serve a page that shows the training, as ``live=true`` does; in a notebook show the mean return and games
            below the cell, too.

    Raises:
        ConfigError: as :func:`compose`; or the folder cannot be used, or there is nothing to resume. Nothing was
            trained.
        RunError: an environment, an actor or a callback broke, a loss was not finite, or files could not be written.
        RuntimeError: a process of a run imported a script that calls this function without the guard.

    Examples:
        >>> results = dqnspeed.train(["experiment=cartpole", "stop.max_steps=2000"], folder="outputs/cartpole")
        cartpole: CartPole-v1, algo=dqn, backend=gymnasium, parallelism=serial, 16 environments, seed 0
        ...
        >>> results.summary["stopped_by"], results.summary["agent_steps"] >= 2000
        ('max_steps', True)
    """
    from dqnspeed.cli import api

    return api.train(overrides, folder, callbacks, live)


def read(folder: str | Path) -> Results:
    """Read the summary, configuration, metrics and episodes of a run, or of every run of a sweep.

    Tables are pandas DataFrames if pandas is installed (``pip install 'dqnspeed[pandas]'``), else lists of dicts. A
    :class:`UserWarning` names lines that cannot be read, unfinished runs and damaged summaries.

    Raises:
        ConfigError: there is no such folder, or the folder holds no run.

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
    """Load the trained agent of a run.

    Args:
        folder: folder of a run or of a published agent, one of its checkpoints, ``zoo:GAME``, an agent that ships with
            this package, or ``hub:USER/NAME``, an agent on the Hugging Face Hub.
        checkpoint: ``best`` (the newest if there is none), ``final`` or the name of another file in ``checkpoints/``.
        device: device of the network: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        trust: import an environment that the run's files name, even if they were not made here.

    Raises:
        ConfigError: there is no such folder, it holds no run, or its environment cannot be made here or is not trusted.
            The checkpoint, or a file of a published agent, is missing, damaged or of another network.

    Examples:
        >>> agent = dqnspeed.load("outputs/cartpole")
        >>> env = agent.make_env()
        >>> observation, info = env.reset(seed=1)
        >>> agent.values(observation).shape
        (2,)
        >>> observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        >>> env.close()
    """
    from dqnspeed.agents.agent import load_undisturbed

    return load_undisturbed(path_of(folder), checkpoint, device, trust)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
