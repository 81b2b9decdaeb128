"""``init=``: a new run starts from the weights of another run, of a published agent, of the zoo, or of the Hub."""

from __future__ import annotations

from torch import Tensor

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.protocol import protocol_of
from dqnspeed.networks.base import Network, as_tensors, shown
from dqnspeed.tracking.published import folder_at
from dqnspeed.tracking.run_folder import BEGUN, CHECKPOINTS, DamagedError, looking_into, read_summary
from dqnspeed.training import state_file
from dqnspeed.training.checkpoint import best_or_newest


def initial_weights(run: RunConfig, network: Network) -> dict[str, Tensor]:
    """The weights that ``run.init`` names, for ``network``, from the best checkpoint, else the newest.

    Raises:
        ConfigError: there are none, a file is damaged, or the network or the protocol is another than the run's.
    """
    option = f"init={run.init}"
    folder = folder_at(str(run.init))
    with looking_into(folder):
        path = best_or_newest(folder / CHECKPOINTS)
    if path is None:
        raise ConfigError(f"{option}: holds no checkpoint. Name the folder of a run, or zoo:GAME.")
    try:
        protocol = read_summary(folder, BEGUN)["protocol"]
        arrays = state_file.load(path)["learner"]["network"]
    except DamagedError as error:
        raise ConfigError(f"{option}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{option}: is damaged, or of another version of dqnspeed.") from error
    if (own := protocol_of(run)) != protocol:
        raise ConfigError(
            f"{option}: was trained by the protocol {protocol}, and this run has {own}. Use its wrappers and env."
        )
    weights, wanted = as_tensors(arrays), network.state_dict()
    for name in dict.fromkeys([*wanted, *weights]):
        there, here = (shown(held[name].shape) if name in held else "none" for held in (weights, wanted))
        if there != here:
            raise ConfigError(
                f"{option}: its network differs; {name} is {there} there and {here} here. Use its env, algo and model."
            )
    return weights
