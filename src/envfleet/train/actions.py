"""Actions on their way from a policy to environments: into the bounds of their space, and into its nesting.

    policy ──▶ array [batch, ...]  ──▶ EnvActions ──▶ what `envs.step` takes
               Box: units of -1 to 1                   Box: within the bounds, in the space's dtype
               Dict, Tuple: rows of numbers            Dict, Tuple: nested like the space

Rollouts, journals and replay buffers hold what the policy gave: it will be asked about exactly these numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
from gymnasium import Space, spaces

from envfleet.errors import InvalidActionError
from envfleet.train.networks.distributions import is_continuous, is_nested
from envfleet.train.observations import Array
from envfleet.wrappers._common import AnyVectorEnv, BatchWrapper, StepResult
from envfleet.wrappers._leaves import flatten, named_leaves, unflatten
from envfleet.wrappers.bounded_action import ActionMap


@final
class EnvActions:
    """From the actions an `ActionDistribution` gives for `space` to those that environments with this space take.

    Args:
        space: of a single environment's actions.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        leaves = [leaf for _, leaf in named_leaves(space)]
        self._maps = [_leaf_map(leaf) for leaf in leaves]
        self._shapes = [tuple(leaf.shape or ()) for leaf in leaves]
        self._ends = np.cumsum([math.prod(shape) for shape in self._shapes]).tolist()

    @property
    def bounds(self) -> ActionMap | None:
        """What maps actions onto the bounds of a Box; None for other spaces."""
        (first, *others) = self._maps
        return first if isinstance(first, ActionMap) and not others else None

    def rows(self, actions: Any) -> Array:
        """The numbers [batch, n] that lead to a batch of actions, such as those of a dataset."""
        leaves = zip(flatten(self._space, actions), self._maps, strict=True)
        numbers = [fit.units(leaf) if isinstance(fit, ActionMap) else np.asarray(leaf) for leaf, fit in leaves]
        return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in numbers], axis=1)

    def __call__(self, actions: Array) -> Any:
        """A batch of actions, [batch, *shape] or for nested spaces [batch, numbers of all leaves]."""
        if not is_nested(self._space):
            return self._maps[0](actions) if is_continuous(self._space) else actions
        if actions.ndim != 2 or actions.shape[1] != self._ends[-1]:
            raise InvalidActionError(
                f"Expected rows of {self._ends[-1]} numbers for actions of {self._space}, got an array of shape "
                f"{actions.shape}. Nothing was stepped."
            )
        columns = zip(np.split(actions, self._ends[:-1], axis=1), self._shapes, self._maps, strict=True)
        return unflatten(self._space, [fit(part.reshape(len(part), *shape)) for part, shape, fit in columns])


def _leaf_map(leaf: Space[Any]) -> Callable[[Array], Array]:
    if is_continuous(leaf):
        assert isinstance(leaf, spaces.Box)
        return ActionMap.between(leaf.low, leaf.high)
    return lambda actions: actions.astype(leaf.dtype, copy=False)


@final
class NestedAction(BatchWrapper):
    """Takes the rows of numbers that a policy gives for a Dict or Tuple action space.

    The action space stays the environments' own: it is what the policy's distribution is made for.
    """

    def __init__(self, envs: AnyVectorEnv) -> None:
        super().__init__(envs)
        self._to_env = EnvActions(envs.single_action_space)

    def step(self, actions: Array) -> StepResult:
        """Step all environments with `actions`, [num_envs, numbers of all leaves]."""
        return self.env.step(self._to_env(actions))

    def send(self, actions: Array, env_ids: Any = None) -> None:
        """Send some environments `actions`, [len(env_ids), numbers of all leaves]."""
        envs: Any = self.env
        envs.send(self._to_env(actions), env_ids)

    def recv(self, timeout: float | None = None) -> StepResult:
        """Return the results of the first environments that are ready."""
        envs: Any = self.env
        result: StepResult = envs.recv(timeout)
        return result
