"""SyncVectorEnv: one shard, in this thread. Slow environments wait for each other; debuggers work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.vector.arguments import checked_env_fns
from envfleet.vector.failures import as_error, warn_of_close
from envfleet.vector.fleet_buffers import FleetBuffers, FleetLayout
from envfleet.vector.member import AnyEnv
from envfleet.vector.orders import Order, Report
from envfleet.vector.shard import EnvFn, Shard, build_envs, close_envs
from envfleet.vector.spaces import (
    EnvFace,
    ObservationMode,
    checked_mode,
    checked_observation_mode,
    fleet_spaces,
)
from envfleet.vector.vector_env import FleetVectorEnv


@final
class SyncVectorEnv(FleetVectorEnv):
    """Runs the environments one after another in the caller's thread.

    Args:
        env_fns: One function an environment, each making one.
        copy: True: returned observations are the caller's to keep. False: they are live views, valid until
            the next ``step`` or ``reset``.
        observation_mode: "same" (all spaces equal), "different" (bounds may differ), or a pair
            ``(batched space, single space)``.
        autoreset_mode: When environments reset by themselves; "NextStep", "SameStep" or "Disabled".
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.closed = True  # until there is something to close
        self.env_fns = checked_env_fns(env_fns)
        self.num_envs = len(self.env_fns)
        self.observation_mode = checked_observation_mode(observation_mode)
        mode = checked_mode(autoreset_mode)
        envs, failure = build_envs(self.env_fns, 0)
        if failure is not None:
            raise as_error(failure, worker=None)
        try:
            spaces = fleet_spaces([EnvFace.of(env) for env in envs], self.observation_mode, mode)
            layout = FleetLayout(spaces)
            memory = np.zeros(layout.size, np.uint8)
            self._shard = Shard(envs, 0, layout.rows(memory, 0, len(envs)), layout.observations, layout.actions, mode)
        except BaseException:
            close_envs(envs)
            raise
        self._order: Order | None = None
        self._set_up(spaces, FleetBuffers(layout, memory, [(0, len(envs))]), copy=copy)
        self.plan = "sync: one environment after another in the caller's thread."
        self.closed = False

    @property
    def envs(self) -> list[AnyEnv]:
        """The environments themselves."""
        return self._shard.envs

    def _begin(self, order: Order) -> None:
        self._order = order

    def _finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  nothing to wait for
        assert self._order is not None
        return [self._shard.execute(self._order)]

    def _is_busy(self) -> bool:
        return False

    def _discard(self) -> None:
        pass

    def _shut_down(self, timeout: float | None, terminate: bool) -> None:  # noqa: ARG002
        warn_of_close(self._shard.close())

    def _worker_of(self, env_index: int) -> None:  # noqa: ARG002
        return None
