"""One gradient step, as all three algorithms take it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envfleet.train.finite import check_gradient, check_loss

_SHORT_MEMORY = 0.99


def make_optimizer(module: nn.Module, rate: float, *, short_memory: bool = False) -> torch.optim.Optimizer:
    """Adam over a network's parameters.

    Adam divides by the size its gradients had over the last thousand steps. A policy that learns from its latest
    rollout alone changes faster than that: after a quiet time a sudden large gradient is divided by what is long out of
    date, and the step ruins the policy. With `short_memory` it looks back a hundred steps.
    """
    second = _SHORT_MEMORY if short_memory else 0.999
    return torch.optim.Adam(module.parameters(), rate, betas=(0.9, second), fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """From now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, max_grad_norm: float = 0.0, *, of: str = "network") -> None:
    """One step of the optimiser's own parameters, the gradient shortened to `max_grad_norm` (0: as it is).

    A loss, or a gradient to be shortened, that is not finite is refused before anything has moved; `of` says whose it
    is.
    """
    check_loss(loss, of)
    parameters = optimizer.param_groups[0]["params"]
    # Not backward(): that would work out, and leave behind, the gradients of other networks the loss depends on.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    if max_grad_norm > 0:
        _shorten([gradient for gradient in gradients if gradient is not None], max_grad_norm, of)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def _shorten(gradients: list[Tensor], longest: float, of: str) -> None:
    """What torch.nn.utils.clip_grad_norm_ does, without sorting by device first: a third of its time."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    check_gradient(norm, of)
    torch._foreach_mul_(gradients, (longest / (norm + 1e-6)).clamp(max=1.0))
