"""Numbers that can be calculated with: neither NaN nor infinite, nor larger than the networks' float32 can hold.

One number that is not spreads through every sum it enters: a single NaN reward makes a rollout's advantages NaN, these
the loss, this every weight. So batches are looked at before they are learnt from, losses and gradients before a step is
taken, and weights before they are saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from envfleet.errors import NonFiniteError
from envfleet.train.networks.encoders import Normalizer
from envfleet.train.observations import Array, map_leaves, parts_of

LARGEST = float(np.finfo(np.float32).max)
"""What the networks can take in."""

_SURELY_FINE = 1e38
"""A sum of squares below this has no part that is not finite, in whatever precision it was added up."""


class Found(NamedTuple):
    """A number that is not finite: where in the batch's tree it is, its index in the array there, and itself."""

    path: str
    place: tuple[int, ...]
    value: float


def all_finite(batch: Any, largest: float = LARGEST) -> bool:
    """Whether all numbers of a batch's arrays lie within ±`largest`; one dot product for each where they do."""
    if isinstance(batch, (dict, tuple)):
        return all(all_finite(leaf, largest) for leaf in (batch.values() if isinstance(batch, dict) else batch))
    if batch.dtype.kind != "f" or float(np.vdot(batch, batch)) <= min(_SURELY_FINE, largest * largest):
        return True
    return not exceeding(batch, largest).any()


def exceeding(array: Array, largest: float = LARGEST) -> npt.NDArray[np.bool_]:
    """Where an array is not within ±`largest`: NaN, infinite or too large."""
    # Not `> largest`, which NaN is not.
    return np.asarray(~(np.abs(array) <= largest)) if array.dtype.kind == "f" else np.zeros(array.shape, np.bool_)


def exceeding_rows(batch: Any, axes: int, largest: float = LARGEST) -> npt.NDArray[np.bool_]:
    """The rows, by the first `axes` axes, in which any number exceeds `largest`."""
    if (parts := parts_of(batch)) is not None:
        found = [exceeding_rows(leaf, axes, largest) for leaf in parts.values()]
        return np.asarray(np.logical_or.reduce(found))
    return np.asarray(exceeding(batch, largest).any(axis=tuple(range(axes, batch.ndim))))


def repaired(batch: Any) -> Any:
    """A copy with 0 in the place of all that is not finite."""
    return map_leaves(lambda leaf: np.where(exceeding(leaf), leaf.dtype.type(0), leaf), batch)


def first_exceeding(batch: Any, largest: float = LARGEST, path: str = "") -> Found | None:
    """The first number that exceeds `largest`."""
    if (parts := parts_of(batch)) is not None:
        found = (first_exceeding(leaf, largest, f"{path}[{key!r}]") for key, leaf in parts.items())
        return next((each for each in found if each is not None), None)
    for index in np.argwhere(exceeding(batch, largest)).tolist():
        return Found(path, tuple(index), float(batch[tuple(index)]))
    return None


def check_loss(loss: Tensor, of: str) -> None:
    """Refuse a loss no step can be taken from."""
    check_number(loss.item(), f"{of} loss")


def check_gradient(norm: Tensor, of: str) -> None:
    """Refuse a gradient by its length: shortening an infinite one would make it NaN."""
    check_number(norm.item(), f"{of} gradient")


def check_weights(modules: Mapping[str, nn.Module], where: str, step: int | None = None) -> None:
    """Refuse networks that hold a number that is not finite, naming the tensor.

    Buffers of the user's own networks may be infinite, as masks are, but not NaN.

    Args:
        modules: the networks by name.
        where: the end of the sentence that says where they were met, such as "in actor.safetensors".
        step: of the run.
    """
    for module_name, module in modules.items():
        for name, tensor in odd_tensors(module):
            what = "nan" if tensor.isnan().any() else "inf"
            raise NonFiniteError(
                f"The {module_name}'s weights {where} are not finite: {name} contains {what}. A network with such a "
                "number gives the same useless answer to everything; go back to an earlier copy, or train again.",
                quantity=f"{module_name} weight {name}",
                step=step,
            )


def check_optimizers(optimizers: Mapping[str, torch.optim.Optimizer], where: str, step: int | None = None) -> None:
    """Refuse optimisers whose memory of earlier gradients is not finite: they would never move a weight again."""
    for name, optimizer in optimizers.items():
        for state in optimizer.state.values():
            for key, value in state.items():
                if not bool(torch.isfinite(torch.as_tensor(value)).all()):
                    raise NonFiniteError(
                        f"The {name}'s optimizer {where} is not finite: its {key} has overflowed, so gradients must "
                        "have been enormous; lower reward_scale or set max_grad_norm.",
                        quantity=f"{name} optimizer {key}",
                        step=step,
                    )


def odd_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a network that hold a number they should not, by name."""
    for path, part in module.named_modules():
        dot = "." if path else ""
        for name, parameter in part.named_parameters(recurse=False):
            if not bool(torch.isfinite(parameter).all()):
                yield f"{path}{dot}{name}", parameter
        for name, buffer in part.named_buffers(recurse=False):
            fine = torch.isfinite(buffer) if isinstance(part, Normalizer) else ~torch.isnan(buffer)
            if not bool(fine.all()):
                yield f"{path}{dot}{name}", buffer


def check_number(value: float, quantity: str) -> None:
    """Refuse a loss, or the length of a gradient, that is not finite."""
    if not math.isfinite(value):
        raise NonFiniteError(f"The {quantity} is {value}.", quantity=quantity)
