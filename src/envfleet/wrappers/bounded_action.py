"""BoundedAction: policies act in units of -1 to 1, environments get actions within their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from envfleet.errors import InvalidActionError
from envfleet.wrappers._common import AnyVectorEnv, BatchWrapper, FloatArray, StepResult


@dataclass(frozen=True, eq=False)
class ActionMap:
    """The map of `bound_actions` for given bounds, prepared once: `ActionMap.between(low, high)(actions)`.

    All arrays have the shape of one action and dtype float64; `dtype` is the dtype of the mapped actions.
    """

    least: FloatArray
    most: FloatArray
    centre: FloatArray
    scale: FloatArray
    low: FloatArray
    high: FloatArray
    dtype: np.dtype[Any]

    @classmethod
    def between(cls, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> ActionMap:
        """Prepare the map onto `low`..`high`, floating arrays with the shape of one action."""
        if low.dtype.kind != "f" or high.dtype != low.dtype or high.shape != low.shape:
            raise TypeError(
                "low and high must be floating arrays of one shape and dtype, such as the bounds of a Box; got "
                f"low of shape {low.shape} and dtype {low.dtype}, high of shape {high.shape} and dtype {high.dtype}."
            )
        bottom, top = low.astype(np.float64), high.astype(np.float64)
        bounded = np.isfinite(bottom) & np.isfinite(top)
        below, above = np.where(bounded, bottom, -1.0), np.where(bounded, top, 1.0)
        # Halved before they are added: the widest bounds a float can hold must not overflow.
        centre, scale = above / 2 + below / 2, above / 2 - below / 2
        most = np.where(bounded, 1.0, np.inf)
        return cls(-most, most, centre, scale, bottom, top, low.dtype)

    def __call__(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map `actions`, floating [..., *shape], to new ones of the same shape and the bounds' dtype."""
        leading = actions.ndim - self.low.ndim
        if actions.dtype.kind != "f" or leading < 0 or actions.shape[leading:] != self.low.shape:
            raise InvalidActionError(
                f"Expected floating actions of shape (num_envs, *{self.low.shape}), got shape {actions.shape} and "
                f"dtype {actions.dtype}. Nothing was stepped."
            )
        units: FloatArray = np.maximum(actions, self.least)
        np.minimum(units, self.most, out=units)
        units *= self.scale
        units += self.centre
        # Rounding may have led past a bound; a component without bounds is left where its one bound allows it.
        np.maximum(units, self.low, out=units)
        np.minimum(units, self.high, out=units)
        return units.astype(self.dtype)

    def units(self, actions: npt.NDArray[Any]) -> FloatArray:
        """The units that lead to `actions`, [..., *shape] within the bounds: the map the other way round."""
        units: FloatArray = np.zeros(actions.shape)
        # Where the bounds coincide every number leads there; 0 is one.
        np.divide(actions - self.centre, self.scale, out=units, where=self.scale > 0)
        return units


def bound_actions(actions: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Map actions in units of -1 to 1 onto `low` to `high`.

    Actions are clipped to -1..1 first, so the result is exactly within the bounds. A component with an infinite
    bound has no such units. It is not scaled, only limited by a finite bound on its other side. If the same bounds
    are used at every step, `ActionMap.between(low, high)` is several times faster.

    Args:
        actions: float32 or float64 [..., *shape], such as [num_envs, *shape].
        low: the lower bounds of one action, floating [*shape].
        high: the upper bounds, floating [*shape].

    Returns:
        A new array of the shape of `actions` and the dtype of `low`.
    """
    return ActionMap.between(low, high)(actions)


class BoundedAction(BatchWrapper):
    """Let a policy act in units where -1 to 1 spans the environment's bounds.

    A policy whose samples may be any number, such as a Gaussian, does not need to know the environment's bounds:
    `actions`, float32 or float64 [num_envs, *shape], are clipped to -1..1 and mapped onto the bounds, component by
    component. A component with an infinite bound is not scaled, only limited by a finite bound on its other side.

    Args:
        envs: a vector environment whose actions are a Box of floats.

    Attributes:
        single_action_space: `Box(-inf, inf, shape, float32)`, because every number is a valid action.
    """

    def __init__(self, envs: AnyVectorEnv) -> None:
        super().__init__(envs)
        space = envs.single_action_space
        if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
            raise TypeError(
                f"BoundedAction needs actions that are a Box of floats, but those of {envs} are {space}. "
                "Leave the wrapper away: such actions have no bounds to be scaled to."
            )
        self._map = ActionMap.between(space.low, space.high)
        self.single_action_space = spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._shape = (self.num_envs, *space.shape)

    @property
    def action_map(self) -> ActionMap:
        """What maps a policy's actions onto the bounds."""
        return self._map

    def step(self, actions: npt.NDArray[Any]) -> StepResult:
        """Step the environments with `actions`, floating [num_envs, *shape], mapped onto their bounds."""
        actions = np.asarray(actions)
        if actions.shape != self._shape:
            raise InvalidActionError(
                f"Expected one action per environment, shape {self._shape}, got shape {actions.shape}. "
                "Nothing was stepped."
            )
        return self.env.step(self._map(actions))

    def send(self, actions: npt.NDArray[Any], env_ids: Any = None) -> None:
        """Send some environments `actions`, floating [len(env_ids), *shape], mapped onto their bounds."""
        envs: Any = self.env
        envs.send(self._map(np.asarray(actions)), env_ids)

    def recv(self, timeout: float | None = None) -> StepResult:
        """Return the results of the first environments that are ready."""
        envs: Any = self.env
        result: StepResult = envs.recv(timeout)
        return result
