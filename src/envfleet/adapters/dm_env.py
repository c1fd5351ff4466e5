"""Time steps of DeepMind's ``dm_env``, for any fleet: ``as_dm_env(envs)``.

::

    env = as_dm_env(envfleet.make_vec("CartPole-v1", 8))
    time_step = env.reset()
    while True:
        time_step = env.step(actions)  # time_step.step_type is an array, one entry per environment

A fleet in NEXT_STEP mode has ``dm_env``'s rules already: the step after the last one of an episode is the first one of
the next, and its action is ignored.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet._optional import needs
from envfleet.errors import UnsupportedError

with needs("dm"):
    import dm_env
    from dm_env import specs

__all__ = ["FleetDmEnv", "as_dm_env", "spec_of_space"]

_FIRST, _MID, _LAST = (int(kind) for kind in (dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST))


def as_dm_env(envs: VectorEnv[Any, Any, Any]) -> FleetDmEnv:
    """A fleet as a batched ``dm_env.Environment``.

    Args:
        envs: A vector environment in NEXT_STEP mode, which is the default. Closing the environment closes it.

    Raises:
        ValueError: Its autoreset mode is another one.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.NEXT_STEP:
        raise ValueError(
            "A last time step shows the last observation of its episode, and the next one the first of another: that "
            f"is NEXT_STEP, the default; this vector environment says {mode}. Make it without an autoreset_mode."
        )
    return FleetDmEnv(envs)


@final
class FleetDmEnv(dm_env.Environment):  # type: ignore[misc]
    """Batched time steps: every field is an array, or a tree of them, with one row per environment.

    ``step_type`` is int32: FIRST, MID or LAST. ``reward`` is float64, 0 in first steps. ``discount`` is float64: 0
    where the episode terminated, 1 everywhere else, also where it was truncated. Specs are those of one environment.
    """

    def __init__(self, envs: Any) -> None:
        self.fleet = envs
        self._observation_spec = spec_of_space(envs.single_observation_space, "observation")
        self._action_spec = spec_of_space(envs.single_action_space, "action")
        self._ended = np.zeros(envs.num_envs, np.bool_)

    def reset(self) -> dm_env.TimeStep:
        """Begins an episode in every environment."""
        observations, _ = self.fleet.reset()
        self._ended[:] = True
        nothing = np.zeros(self.fleet.num_envs)
        return self._time_step(observations, nothing, nothing.astype(bool), nothing.astype(bool))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Steps every environment; one whose episode has ended begins another instead."""
        observations, rewards, terminated, truncated, _ = self.fleet.step(action)
        return self._time_step(observations, rewards, terminated, truncated)

    def _time_step(
        self,
        observations: Any,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> dm_env.TimeStep:
        kinds, discounts = step_types(self._ended, terminated, truncated), np.where(terminated, 0.0, 1.0)
        self._ended = terminated | truncated
        return dm_env.TimeStep(kinds, rewards, discounts, observations)

    def observation_spec(self) -> Any:
        """The spec of one environment's observation; a tree of them for Dict and Tuple spaces."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """The spec of one environment's action."""
        return self._action_spec

    def reward_spec(self) -> specs.Array:
        """The spec of one environment's reward."""
        return specs.Array((), np.float64, "reward")

    def discount_spec(self) -> specs.BoundedArray:
        """The spec of one environment's discount."""
        return specs.BoundedArray((), np.float64, 0.0, 1.0, "discount")

    def close(self) -> None:
        """Closes the fleet."""
        self.fleet.close()


def step_types(
    began: npt.NDArray[np.bool_], terminated: npt.NDArray[np.bool_], truncated: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int32]:
    """FIRST for environments that began an episode, LAST for those that ended one, MID for the others."""
    return np.where(began, _FIRST, np.where(terminated | truncated, _LAST, _MID)).astype(np.int32)


def spec_of_space(space: Space[Any], name: str = "") -> Any:
    """The spec that says what a space says; a dict of them for a Dict space, a tuple for a Tuple space."""
    if isinstance(space, spaces.Dict):
        return {key: spec_of_space(part, str(key)) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(spec_of_space(part, f"{name}{index}") for index, part in enumerate(space.spaces))
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return specs.DiscreteArray(int(space.n), space.dtype, name)
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UnsupportedError(f"dm_env has no spec for {space}: it knows arrays, and trees of arrays.")
    low, high = _bounds(space)
    if isinstance(space, spaces.Box) and not (space.bounded_below.any() or space.bounded_above.any()):
        return specs.Array(space.shape, space.dtype, name)
    return specs.BoundedArray(space.shape, space.dtype, low, high, name)


def _bounds(space: Any) -> tuple[Any, Any]:
    """The least and the greatest values."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return space.start, space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
