"""A target network: the delayed copy of a network that targets are computed with (Mnih et al. 2015)."""

from __future__ import annotations

import copy

from dqnspeed.networks.base import Network


class TargetNetwork:
    """A copy of the network ``online``, brought up to date every ``update_every`` updates.

    Args:
        no_grad: ``False`` lets targets build autograd graphs that nobody uses (``execution.no_grad=false``).

    Attributes:
        network: the copy.
    """

    def __init__(self, online: Network, update_every: int, no_grad: bool):
        self.network = copy.deepcopy(online).requires_grad_(not no_grad)
        self._online, self._update_every = online, update_every

    def is_due(self, updates: int) -> bool:
        """Whether update number ``updates`` ends with :meth:`sync`."""
        return updates % self._update_every == 0

    def sync(self) -> None:
        """Copy the weights of the online network."""
        self.network.load_state_dict(self._online.state_dict())
