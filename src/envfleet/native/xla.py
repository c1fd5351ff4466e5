"""Turns of compiled environments inside compiled functions of JAX: what ``NativeVectorEnv.xla`` returns."""

from __future__ import annotations

from functools import cache
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet import _native
from envfleet.native.env import XlaFunctions
from envfleet.vector.layout import LayoutError, SpaceLayout
from envfleet.vector.spaces import FleetSpaces


def functions_of(fleet: _native.XlaFleet, spaces: FleetSpaces) -> XlaFunctions:
    """The functions of a fleet with these spaces."""
    _register()
    calls = _Calls(spaces)
    return XlaFunctions(jnp.array(fleet.handle(), jnp.uint32), calls.reset, calls.step)


@cache
def _register() -> None:
    for name, handler in _native.xla_handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")


@final
class _Calls:
    """Both functions. They know the spaces only; which environments are meant says the handle."""

    def __init__(self, spaces: FleetSpaces) -> None:
        self._num_envs = spaces.num_envs
        self._observations = SpaceLayout(spaces.single_observation_space, "observation")
        self._action_space, self._batched_actions = spaces.single_action_space, spaces.action_space
        self._same_step = spaces.autoreset_mode is AutoresetMode.SAME_STEP

    def reset(self, handle: Any, mask: Any = None) -> tuple[Any, tuple[Any, dict[str, Any]]]:
        mask = jnp.ones(self._num_envs, jnp.bool_) if mask is None else jnp.asarray(mask, jnp.bool_)
        handle, *leaves = self._call("envfleet_reset", self._rows(), handle, mask)
        return handle, (self._observations.batch(leaves, False), {})

    def step(self, handle: Any, actions: Any) -> tuple[Any, tuple[Any, Any, Any, Any, dict[str, Any]]]:
        rows = self._rows()
        flags = [self._array((), np.bool_)] * 2
        finals = rows if self._same_step else []
        results = [*rows, self._array((), np.float64), *flags, *finals]
        handle, *found = self._call("envfleet_step", results, handle, self._checked(actions))
        observations = self._observations.batch(found[: len(rows)], False)
        rewards, terminated, truncated = found[len(rows) : len(rows) + 3]
        infos = {}
        if self._same_step:
            last = self._observations.batch(found[len(rows) + 3 :], False)
            infos = {"final_obs": last, "_final_obs": terminated | truncated}
        return handle, (observations, rewards, terminated, truncated, infos)

    def _call(self, target: str, results: list[Any], handle: Any, argument: Any) -> Any:
        # Without the side effect, a call whose results nobody uses would be left out.
        call = jax.ffi.ffi_call(target, [jax.ShapeDtypeStruct((2,), jnp.uint32), *results], has_side_effect=True)
        return call(handle, argument)

    def _rows(self) -> list[Any]:
        return [self._array(shape, dtype) for _, shape, dtype in self._observations.array_leaves]

    def _array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((self._num_envs, *shape), jax.dtypes.canonicalize_dtype(dtype))

    def _checked(self, actions: Any) -> Any:
        actions, space = jnp.asarray(actions), self._action_space
        assert space.shape is not None
        assert space.dtype is not None
        expected = (self._num_envs, *space.shape)
        if actions.shape != expected or not np.can_cast(actions.dtype, space.dtype, "same_kind"):
            raise LayoutError(
                f"The actions do not fit the action space {self._batched_actions}: expected {space.dtype}{expected}, "
                f"got {actions.dtype}{actions.shape}. Nothing was stepped."
            )
        return actions.astype(jax.dtypes.canonicalize_dtype(space.dtype))
