"""A small policy's forward pass in NumPy, for the one place where it counts: between two steps of the environments.

For a batch of ten observations torch spends most of its time on everything but arithmetic; NumPy takes a quarter of
it. The arrays are views of the parameters, so they are always current, and noise is drawn from torch's generator, so
that a run depends on one generator only. Whatever is not covered here acts through torch, with the same results up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from envfleet.train.networks.distributions import Categorical, DiagonalNormal
from envfleet.train.networks.encoders import Normalizer, VectorEncoder
from envfleet.train.networks.networks import Actor, Perceptron
from envfleet.train.observations import Array, Observations

Floats: TypeAlias = npt.NDArray[np.float32]
_Layer: TypeAlias = Callable[[Floats], Floats]

_LARGEST = 16_384
"""Activations a layer above which torch's arithmetic outweighs what its calls cost."""


@final
class QuickPolicy:
    """Draws actions as the actor's distribution does.

    Args:
        actor: whose parameters are used, now and whenever they change.
        noise_steps: noise is drawn for so many calls at once; a checkpoint between is exact.
    """

    def __init__(self, actor: Actor, noise_steps: int) -> None:
        assert isinstance(actor.body, Perceptron)
        self._layers = [*_encoder_layers(actor.body.encoder), *map(_layer, actor.body.layers)]
        self._log_std: Floats | None = None if actor.log_std is None else actor.log_std.detach().numpy()
        self._distribution = actor.distribution
        self._noise: list[Floats] = []
        self._noise_steps = noise_steps

    @staticmethod
    def suits(actor: Actor, num_envs: int, device: torch.device) -> bool:
        """Whether the actor is one of ours, small, on the CPU, and acts by a distribution that is written out here."""
        body = actor.body
        if device.type != "cpu" or not isinstance(body, Perceptron) or not isinstance(body.encoder, VectorEncoder):
            return False
        widths = [layer.out_features for layer in body.layers if isinstance(layer, nn.Linear)]
        known = isinstance(actor.distribution, (Categorical, DiagonalNormal))
        return known and num_envs * max(widths) <= _LARGEST

    def __call__(self, observations: Observations) -> Array:
        """Actions [num_envs, ...], as the distribution's `sample` gives them."""
        assert isinstance(observations, np.ndarray)
        values: Floats = observations
        for layer in self._layers:
            values = layer(values)
        noise = self._next_noise(values.shape)
        if self._log_std is None:
            assert isinstance(self._distribution, Categorical)
            return np.asarray(self._distribution.start + np.argmax(values + noise, axis=-1))
        assert isinstance(self._distribution, DiagonalNormal)
        return (values + np.exp(self._log_std) * noise).reshape(-1, *self._distribution.shape)

    def _next_noise(self, shape: tuple[int, ...]) -> Floats:
        if not self._noise or self._noise[-1].shape != shape:  # another number of environments than last time
            noise = torch.empty(self._noise_steps, *shape)
            noise = noise.exponential_().log_().neg_() if self._log_std is None else noise.normal_()
            self._noise = list(noise.numpy()[::-1])
        return self._noise.pop()


def _encoder_layers(encoder: Any) -> list[_Layer]:
    assert isinstance(encoder, VectorEncoder)
    layers: list[_Layer] = [] if encoder.normalizer is None else [_normalizer(encoder.normalizer)]
    return [*layers, lambda values: values.reshape(len(values), -1).astype(np.float32, copy=False)]


def _normalizer(module: Normalizer) -> _Layer:
    def normalize(values: Any) -> Floats:
        mean, scale = module.scaling()
        scaled = (values - mean.numpy()) * scale.numpy()
        return np.asarray(np.clip(scaled, -module.clip, module.clip), dtype=np.float32)

    return normalize


def _layer(module: nn.Module) -> _Layer:
    if isinstance(module, nn.Linear):
        weight, bias = module.weight.detach().numpy().T, module.bias.detach().numpy()
        return lambda values: np.add(product := values @ weight, bias, out=product)
    if isinstance(module, nn.Tanh):
        return lambda values: np.tanh(values, out=values)
    assert isinstance(module, nn.ReLU)
    return lambda values: np.maximum(values, 0, out=values)
