"""Perceptrons of ours as compiled code sees them: the same weights, in torch's own memory.

Parameters are read where torch keeps them, so a compiled perceptron is always current; only a parameter that is
replaced by another tensor, not changed in place, leaves it behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.networks.distributions import ActionDistribution
from envfleet.train.networks.encoders import Encoder, VectorEncoder
from envfleet.train.networks.networks import Actor, Perceptron, TwinCritic
from envfleet.train.observations import Array


def why_not_compiled(body: nn.Module) -> str | None:
    """Why compiled code cannot take this network, as a part of a sentence; None if it can."""
    if type(body) is not Perceptron:
        return f"the networks are not envfleet's ({type(body).__name__})"
    if not isinstance(body.encoder, VectorEncoder):
        return "observations are no vectors of numbers"
    if any(parameter.device.type != "cpu" for parameter in body.parameters()):
        return "the networks are not on the CPU"
    return None


def why_no_updates(actor: Actor, kind: type[ActionDistribution], critic: nn.Module | None = None) -> str | None:
    """Why compiled code cannot train a policy of that kind, and a pair of critics with it; None if it can."""
    reason = why_not_compiled(actor.body)
    if reason is None and critic is not None and type(critic) is not TwinCritic:
        reason = f"the critic is not envfleet's ({type(critic).__name__})"
    if reason is None and type(actor.distribution) is not kind:
        reason = f"the distribution is not one of envfleet's ({type(actor.distribution).__name__})"
    return reason


def body_of(actor: nn.Module) -> Perceptron:
    """The perceptron of an actor that nothing speaks against."""
    assert isinstance(actor, Actor)
    assert isinstance(actor.body, Perceptron), why_not_compiled(actor.body)
    return actor.body


def compiled_perceptron(body: nn.Module, kernels: str | None = None) -> _learner.Perceptron:
    """A compiled perceptron on the parameters and statistics of one of ours; see `why_not_compiled`.

    Args:
        body: the network, such as an actor's or a critic's `body`.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.
    """
    assert isinstance(body, Perceptron), why_not_compiled(body)
    linear = [layer for layer in body.layers if isinstance(layer, nn.Linear)]
    layers = [(layer.weight.detach(), layer.bias.detach()) for layer in linear]
    return _learner.Perceptron(layers, activation_of(body.layers), statistics_of(body.encoder), kernels)


def activation_of(layers: nn.Sequential) -> str:
    """The name of the activation function between layers; any, if there is one layer only."""
    return "relu" if any(isinstance(layer, nn.ReLU) for layer in layers) else "tanh"


def statistics_of(encoder: Encoder) -> tuple[Tensor, Tensor, Tensor, float] | None:
    """What observations are normalised by, if they are."""
    assert isinstance(encoder, VectorEncoder)
    normalizer = encoder.normalizer
    return None if normalizer is None else (normalizer.count, normalizer.mean, normalizer.m2, normalizer.clip)


def numbers_for(encoder: Encoder, observations: Array) -> Array:
    """Observations as float32 or float64, which compiled code takes; float64 where they are normalised first."""
    assert isinstance(encoder, VectorEncoder)
    if observations.dtype in (np.float32, np.float64):
        return np.ascontiguousarray(observations)
    return observations.astype(np.float32 if encoder.normalizer is None else np.float64)


def parameters_of(body: nn.Module) -> list[nn.Parameter]:
    """Weight and bias of every layer in turn: the order in which compiled code takes them."""
    assert isinstance(body, Perceptron)
    return [parameter for layer in body.layers for parameter in layer.parameters()]


def trainable(
    body: nn.Module, others: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer, kernels: str | None = None
) -> _learner.Trainable:
    """A network that compiled code trains: on its parameters, and what the optimiser remembers of them.

    Args:
        body: one of ours, see `why_not_compiled`.
        others: parameters beside the network's, such as log deviations.
        optimizer: of all of these, made by `make_optimizer`.
        kernels: as for `compiled_perceptron`.
    """
    assert isinstance(body, Perceptron), why_not_compiled(body)
    tensors = [with_state(parameter, optimizer) for parameter in (*parameters_of(body), *others)]
    return _learner.Trainable(tensors, activation_of(body.layers), statistics_of(body.encoder), kernels)


def with_state(parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A parameter and what Adam remembers of it; before the first step that is made as Adam would make it."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return parameter.detach(), state["exp_avg"], state["exp_avg_sq"], state["step"]
