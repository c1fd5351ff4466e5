"""Encoders: from observations of any supported space to features a perceptron can take."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.observations import parts_of

_SMALLEST_IMAGE = 36
"""Below this many pixels a side the CNN's three strided layers have nothing left to look at."""


class Encoder(nn.Module, ABC):
    """From a batch of observations to features, float32[batch, features]."""

    features: int

    @abstractmethod
    def forward(self, observations: Any) -> Tensor:
        """Features float32[batch, features]."""

    def observe(self, observations: Any) -> None:
        """Count a batch [batch, ...] in the running statistics, if there are any."""


class Normalizer(nn.Module):
    """Shifts and scales observations to mean 0 and variance 1, by statistics that only `update` changes.

    They are buffers: saved with the weights, and frozen wherever nobody calls `update`, as in evaluation. Kept in
    float64, merged batch by batch.
    """

    count: Tensor
    mean: Tensor
    m2: Tensor

    def __init__(self, shape: Sequence[int], clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(tuple(shape), dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        """Float32 [batch, *shape], limited to ±clip; unchanged before the first `update`."""
        mean, scale = self.scaling()
        return ((observations - mean) * scale).clamp(-self.clip, self.clip).float()

    def scaling(self) -> tuple[Tensor, Tensor]:
        """What is subtracted and what the difference is multiplied by, float64[*shape] each."""
        variance = torch.where(self.count > 0, self.m2 / self.count.clamp(min=1), 1.0)
        return self.mean, torch.rsqrt(variance + 1e-8)

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Count a batch [batch, *shape]."""
        if not len(observations):  # whose mean would be NaN
            return
        batch = observations.double()
        total = self.count + len(batch)
        batch_mean = batch.mean(0)
        delta = batch_mean - self.mean
        self.m2 += (batch - batch_mean).square().sum(0) + delta.square() * (self.count * len(batch) / total)
        self.mean += delta * (len(batch) / total)
        self.count.copy_(total)


class VectorEncoder(Encoder):
    """Numbers as they are, flattened; normalised first if asked for."""

    def __init__(self, shape: Sequence[int], *, normalize: bool) -> None:
        super().__init__()
        self.features = int(np.prod(shape))
        self.normalizer = Normalizer(shape) if normalize else None

    def forward(self, observations: Tensor) -> Tensor:
        """Float32 [batch, features]."""
        if self.normalizer is not None:
            observations = self.normalizer(observations)
        return observations.float().reshape(-1, self.features)

    def observe(self, observations: Tensor) -> None:
        """Count a batch [batch, *shape]."""
        if self.normalizer is not None:
            self.normalizer.update(observations)


class OneHotEncoder(Encoder):
    """Discrete numbers, each as a row with a single 1."""

    start: Tensor

    def __init__(self, sizes: Sequence[int], start: Sequence[int]) -> None:
        super().__init__()
        self.features = sum(sizes)
        self._sizes = list(sizes)
        self.register_buffer("start", torch.tensor(list(start)), persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        """Float32 [batch, features]."""
        numbers = observations.reshape(observations.shape[0], -1).long() - self.start
        rows = [functional.one_hot(column, n) for column, n in zip(numbers.unbind(-1), self._sizes, strict=True)]
        return torch.cat(rows, -1).float()


class ImageEncoder(Encoder):
    """Three convolutions for images of bytes.

    Channels come first ([C, H, W], as stacked frames are) or last, or there are none ([H, W]). A stack of images with
    channels, [N, C, H, W] or [N, H, W, C], is one image with the channels of all.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._axes = len(shape)
        *stack, first, second, last = shape if len(shape) > 2 else (1, *shape)
        self._channels_last = last < first
        channels, *size = (last, first, second) if self._channels_last else (first, second, last)
        channels *= math.prod(stack)
        self._layers = nn.Sequential(
            *(orthogonal(nn.Conv2d(channels, 32, 8, stride=4)), nn.ReLU()),
            *(orthogonal(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU()),
            *(orthogonal(nn.Conv2d(64, 64, 3, stride=1)), nn.ReLU()),
            nn.Flatten(),
        )
        with torch.no_grad():
            self.features = int(self._layers(torch.zeros(1, channels, *size)).shape[-1])

    def forward(self, observations: Tensor) -> Tensor:
        """Float32 [batch, features]."""
        images = observations.movedim(-1, -3) if self._channels_last else observations
        if self._axes != 3:
            images = images.unsqueeze(1) if self._axes == 2 else images.flatten(1, 2)
        features: Tensor = self._layers(images.float() / 255)
        return features


class DictEncoder(Encoder):
    """Every entry of a dict or tuple by its own encoder, the results side by side."""

    def __init__(self, encoders: Mapping[Any, Encoder]) -> None:
        super().__init__()
        self._keys = list(encoders)
        # A ModuleList, because names of modules may not contain what keys of a Dict space may.
        self._encoders = nn.ModuleList(encoders.values())
        self.features = sum(module.features for module in encoders.values())

    def forward(self, observations: Any) -> Tensor:
        """Float32 [batch, features]."""
        pairs = zip(self._keys, self._encoders, strict=True)
        return torch.cat([module(observations[key]) for key, module in pairs], -1)

    def observe(self, observations: Any) -> None:
        """Count a batch, entry by entry."""
        for key, module in zip(self._keys, self._encoders, strict=True):
            assert isinstance(module, Encoder)
            module.observe(observations[key])


def encoder(space: Space[Any], *, normalize: bool) -> Encoder:
    """A module from observations of `space` to features [batch, module.features].

    Vectors are taken as they are (normalised by running statistics with `normalize`), images of bytes go through a CNN,
    discrete numbers become one-hot rows, and the entries of a Dict or Tuple are joined.
    """
    if (entries := parts_of(space)) is not None:
        return DictEncoder({key: encoder(entry, normalize=normalize) for key, entry in entries.items()})
    if isinstance(space, spaces.Discrete):
        return OneHotEncoder([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return OneHotEncoder(np.ravel(space.nvec).tolist(), np.ravel(space.start).tolist())
    if isinstance(space, spaces.MultiBinary):
        return VectorEncoder(space.shape, normalize=False)
    if isinstance(space, spaces.Box):
        return ImageEncoder(space.shape) if _is_image(space) else VectorEncoder(space.shape, normalize=normalize)
    raise TypeError(
        f"Observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, got {space}; "
        "wrap the environment, for instance with gymnasium.wrappers.FlattenObservation."
    )


def orthogonal(layer: Any, gain: float = 2**0.5) -> Any:
    """`layer` with orthogonal weights of the given gain and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _is_image(space: spaces.Box) -> bool:
    if space.dtype != np.uint8 or len(space.shape) not in (2, 3, 4):
        return False
    # Of a stack, each image: two of its axes are the sides, the third one, if any, the channels.
    return sorted(space.shape[-3:])[-2] >= _SMALLEST_IMAGE
