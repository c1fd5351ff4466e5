"""Training and evaluation mode: dropout and batch normalisation act differently in the two.

Networks rest in evaluation mode: to act, to value a state, to be judged. They are in training mode only for the forward
pass of a loss whose gradient moves them. So whoever looks at a policy meanwhile, such as a callback that evaluates it,
neither moves its statistics nor draws numbers for its dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from torch import nn

_OUR_NETWORKS = "envfleet.train.networks."
_SAME_IN_BOTH = (nn.Linear, nn.Conv2d, nn.ReLU, nn.Tanh, nn.Flatten, nn.Sequential, nn.ModuleList)


@final
class TrainingMode:
    """Puts networks into training mode for the length of a `with` block; afterwards they are in evaluation mode.

    It costs nothing for networks that act the same in both, as envfleet's own do.
    """

    def __init__(self, *networks: nn.Module) -> None:
        self._networks = [network for network in networks if depends_on_mode(network)]

    def __enter__(self) -> None:
        for network in self._networks:
            network.train()

    def __exit__(self, *_: object) -> None:
        for network in self._networks:
            network.eval()


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Puts a network into evaluation mode for the length of a `with` block; then every part is as it was before."""
    training = [part for part in network.modules() if part.training]
    if training:
        network.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def depends_on_mode(network: nn.Module) -> bool:
    """Whether a network may act differently in training mode: all that is not known to act the same may."""
    return not all(
        type(part) in _SAME_IN_BOTH or type(part).__module__.startswith(_OUR_NETWORKS) for part in network.modules()
    )
