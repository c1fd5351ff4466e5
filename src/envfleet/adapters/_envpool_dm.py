"""The kind of EnvPool's pools that returns time steps of ``dm_env``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, final

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces

from envfleet.adapters._envpool_config import PoolConfig
from envfleet.adapters._envpool_pool import Batch, EnvPool
from envfleet.adapters.dm_env import spec_of_space, step_types
from envfleet.vector.vector_env import FleetVectorEnv

_Players = namedtuple("players", ["env_id"])  # type: ignore[name-match]  # as EnvPool calls it


@final
class DMEnvPool(EnvPool, dm_env.Environment):  # type: ignore[misc]
    """A pool whose ``recv``, ``step`` and ``reset`` return batched time steps.

    Observations are named tuples: ``env_id``, ``players``, and ``obs``, or one field per key of a Dict space.
    """

    def __init__(self, fleet: FleetVectorEnv, config: PoolConfig) -> None:
        super().__init__(fleet, config)
        space = fleet.single_observation_space
        self._keys = tuple(map(str, space.spaces)) if isinstance(space, spaces.Dict) else ("obs",)
        self._state: Any = namedtuple("State", ("env_id", "players", *self._keys), rename=True)  # type: ignore[misc]
        self._is_dict = isinstance(space, spaces.Dict)

    def _shown(self, batch: Batch, is_reset: bool) -> dm_env.TimeStep:  # noqa: ARG002  a reset is a time step too
        ids = batch.ids.astype(np.int32)
        parts = batch.observations.values() if self._is_dict else (batch.observations,)
        return dm_env.TimeStep(
            step_type=step_types(batch.began, batch.terminated, batch.truncated),
            reward=batch.rewards,
            discount=np.where(batch.terminated, 0.0, 1.0).astype(np.float32),
            observation=self._state(ids, _Players(ids.copy()), *parts),
        )

    def observation_spec(self) -> Any:
        """The specs of one environment's fields."""
        number = specs.Array((), np.int32, "env_id")
        space = self.fleet.single_observation_space
        parts = spec_of_space(space, "obs")
        return self._state(number, _Players(number), *(parts.values() if self._is_dict else (parts,)))

    def action_spec(self) -> Any:
        """The spec of one environment's action."""
        return spec_of_space(self.fleet.single_action_space, "action")
