"""A small policy in compiled code, which acts by itself through a whole rollout of compiled environments.

    outputs of the perceptron + noise ──▶ actions, to be kept ──▶ within the bounds, as environments take them

Noise is drawn from torch's generator for many steps at once, so that a run depends on one generator only, and on the
same numbers of it whether the policy is called step by step or takes part in a rollout.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envfleet import _learner
from envfleet.train.networks.compiled import compiled_perceptron, numbers_for, why_not_compiled
from envfleet.train.networks.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagonalNormal,
    MultiCategorical,
    SquashedNormal,
)
from envfleet.train.networks.networks import Actor, Perceptron
from envfleet.train.observations import Array, Observations
from envfleet.wrappers.bounded_action import ActionMap

Floats: TypeAlias = npt.NDArray[np.float32]


class _Head(NamedTuple):
    """How actions follow from outputs, as `_learner.Policy` takes it."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    outputs: int
    noise: Callable[[Tensor], Tensor]
    sizes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()


def _gumbel(numbers: Tensor) -> Tensor:
    return numbers.exponential_().log_().neg_()


def _logistic(numbers: Tensor) -> Tensor:
    return numbers.uniform_().logit_()


def _head_of(distribution: ActionDistribution) -> _Head | None:
    if isinstance(distribution, Categorical):
        n = distribution.outputs
        return _Head("categorical", (), np.int64, n, _gumbel, (n,), (distribution.start,))
    if isinstance(distribution, MultiCategorical):
        sizes, starts = tuple(distribution.sizes), tuple(distribution.start.tolist())
        return _Head("categorical", distribution.shape, np.int64, distribution.outputs, _gumbel, sizes, starts)
    if isinstance(distribution, Bernoulli):
        return _Head("bernoulli", distribution.shape, np.int8, distribution.outputs, _logistic)
    if isinstance(distribution, (DiagonalNormal, SquashedNormal)):
        name = "normal" if isinstance(distribution, DiagonalNormal) else "squashed"
        return _Head(name, distribution.shape, np.float32, math.prod(distribution.shape), torch.Tensor.normal_)
    return None


def why_no_compiled_policy(actor: Actor) -> str | None:
    """Why an actor cannot act in compiled code, as a part of a sentence; None if it can."""
    if _head_of(actor.distribution) is None:
        return f"a distribution of your own ({type(actor.distribution).__name__})"
    return why_not_compiled(actor.body)


@final
class CompiledPolicy:
    """Draws actions as the actor's distribution does, or takes the likeliest.

    Args:
        actor: whose parameters are used, now and whenever they change; see `why_no_compiled_policy`.
        noise_steps: noise is drawn for so many steps at once; a checkpoint between is exact. 0: there is none, and the
            likeliest action is taken.
    """

    def __init__(self, actor: Actor, noise_steps: int) -> None:
        head = _head_of(actor.distribution)
        assert head is not None, why_no_compiled_policy(actor)
        assert isinstance(actor.body, Perceptron), why_no_compiled_policy(actor)
        self._actor, self._head, self._encoder = actor, head, actor.body.encoder
        self._perceptron = compiled_perceptron(actor.body)
        self._log_std: Floats | None = None if actor.log_std is None else actor.log_std.detach().numpy()
        self._noise_steps = noise_steps
        self._noise: Floats = np.empty((0, 0, head.outputs), np.float32)
        self._used = 0
        self._single: _learner.Policy | None = None
        """Acts step by step, with the noise there is."""
        self._single_for: tuple[int, Any] = (0, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledPolicy:
        """The same for the copy of the actor, with the noise that is left."""
        copied = CompiledPolicy(copy.deepcopy(self._actor, memo), self._noise_steps)
        copied._noise, copied._used = self._noise.copy(), self._used
        return copied

    @property
    def compiled(self) -> CompiledPolicy:
        """Itself: it can act through whole rollouts."""
        return self

    def __call__(self, observations: Observations) -> Array:
        """Actions [num_envs, ...], as the distribution's `sample` gives them."""
        actions, _ = self._act(observations)
        return actions

    def likeliest(self, observations: Observations) -> Array | None:
        """The likeliest actions, if there is no noise; None if the outputs for some row are not finite."""
        actions, are_fine = self._act(observations)
        return actions if are_fine else None

    def actions(self, *rows: int) -> Array:
        """An array for so many actions."""
        return np.zeros((*rows, *self._head.shape), self._head.dtype)

    def sees(self, space: Space[Any]) -> bool:
        """Whether rollouts can be made in environments that show this: a vector of floats."""
        is_plain = isinstance(space, spaces.Box) and space.dtype in (np.float32, np.float64)
        return is_plain and math.prod(space.shape or ()) == self._perceptron.inputs

    def for_rollout(self, steps: int, num_envs: int, sees: Any, bounds: ActionMap | None) -> _learner.Policy:
        """What acts in the next `steps` steps; `count` is to be told how many of them were made.

        Args:
            steps: how many.
            num_envs: how many environments there are.
            sees: the dtype of what they show.
            bounds: what actions are mapped onto before environments take them.
        """
        self._draw(steps, num_envs)
        return self._policy(steps, num_envs, sees, self._noise[self._used :], bounds)

    def count(self, steps: int) -> None:
        """So many steps were made: their noise is used up."""
        self._used += steps if self._noise_steps else 0

    def _act(self, observations: Observations) -> tuple[Array, bool]:
        assert isinstance(observations, np.ndarray)
        seen = numbers_for(self._encoder, observations)
        self._draw(1, len(seen))
        if self._single is None or self._single_for != (len(seen), seen.dtype):
            self._single_for = len(seen), seen.dtype
            self._single = self._policy(max(1, len(self._noise)), len(seen), seen.dtype, self._noise, None)
        actions = self.actions(len(seen))
        are_fine = self._single.act(self._used, seen, actions)
        self.count(1)
        return actions, are_fine

    def _draw(self, steps: int, num_envs: int) -> None:
        """See to it that there is noise for so many steps."""
        left = self._noise[self._used :]
        if left.shape[1] != num_envs:  # another number of environments than last time
            left = left[:0]
        if not self._noise_steps or len(left) >= steps:
            return
        blocks = [left] if len(left) else []
        for _ in range(math.ceil((steps - len(left)) / self._noise_steps)):
            drawn = self._head.noise(torch.empty(self._noise_steps, num_envs, self._head.outputs))
            blocks.append(drawn.numpy())
        self._noise = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        self._used, self._single = 0, None

    def _policy(self, steps: int, num_envs: int, sees: Any, noise: Floats, bounds: ActionMap | None) -> _learner.Policy:
        return _learner.Policy(
            self._perceptron,
            self._head.name,
            list(self._head.sizes),
            list(self._head.starts),
            sees_doubles=sees == np.float64,
            takes_doubles=bounds is not None and bounds.dtype == np.float64,
            steps=steps,
            rows=num_envs,
            noise=noise if self._noise_steps else None,
            log_deviations=self._log_std,
            bounds=None if bounds is None else _numbers(bounds),
            judges=not self._noise_steps,
        )


def _numbers(bounds: ActionMap) -> tuple[list[float], ...]:
    arrays = (bounds.least, bounds.most, bounds.centre, bounds.scale, bounds.low, bounds.high)
    return tuple(array.ravel().tolist() for array in arrays)
