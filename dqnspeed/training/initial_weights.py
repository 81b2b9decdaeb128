"""``init=``: a new run starts from the weights of another run, of a published agent, of the zoo, or of the Hub."""

from __future__ import annotations

from torch import Tensor

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.protocol import protocol_of
from dqnspeed.networks.base import Network, as_tensors, shown
from dqnspeed.tracking import hub
from dqnspeed.tracking.published import folder_at
from dqnspeed.tracking.run_folder import BEGUN, CHECKPOINTS, DamagedError, looking_into, read_config, read_summary
from dqnspeed.training import state_file
from dqnspeed.training.checkpoint import best_or_newest


def initial_weights(run: RunConfig, network: Network) -> dict[str, Tensor]:
    """The weights that ``run.init`` names, for ``network``, from the best checkpoint, else the newest.

    Raises:
        ConfigError: there are none, or a file is damaged; the network, its input scale or the protocol is another than
            the run's; or an agent of the Hub is named without its commit.
    """
    option = f"init={run.init}"
    address = str(run.init)
    if address.startswith(hub.HUB) and (exact := hub.pinned(address)) != address:
        raise ConfigError(f"{option}: a file of options has to name the commit. Use init: {exact}.")
    folder = folder_at(address)
    with looking_into(folder):
        path = best_or_newest(folder / CHECKPOINTS)
    if path is None:
        raise ConfigError(f"{option}: holds no checkpoint. Name the folder of a run, or zoo:GAME.")
    try:
        protocol, scale = read_summary(folder, BEGUN)["protocol"], read_config(folder)["model"]["input_scale"]
        weights = as_tensors(state_file.load(path)["learner"]["network"])
    except DamagedError as error:
        raise ConfigError(f"{option}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{option}: is damaged, or of another version of dqnspeed. Name another agent.") from error
    if (own := protocol_of(run)) != protocol:
        raise ConfigError(
            f"{option}: was trained by the protocol {protocol}, and this run has {own}. Use its wrappers and env."
        )
    if run.model.input_scale != scale:
        raise ConfigError(
            f"{option}: was trained with another input scale. Use model.input_scale="
            f"{'null' if scale is None else f'{scale:g}'}."
        )
    wanted = network.state_dict()
    for name in dict.fromkeys([*wanted, *weights]):
        there, here = (shown(held[name].shape) if name in held else "none" for held in (weights, wanted))
        if there != here:
            raise ConfigError(
                f"{option}: its network differs; {name} is {there} there and {here} here. Use its env, algo and model."
            )
    return weights
