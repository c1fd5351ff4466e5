"""SyncVectorEnv: one shard, in this thread. Slow environments wait for each other; debuggers work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.redraw import redrawn
from envfleet.vector.arguments import checked_batch_size, checked_env_fns
from envfleet.vector.block import FleetBuffers, FleetLayout, Rows, aligned_zeros
from envfleet.vector.engine import Order, Report, ResetOrder
from envfleet.vector.failures import OnFailure, as_error, checked_failure_policy, warn_of_close
from envfleet.vector.fused_env import AnyEnv, EnvFn, build_envs, close_envs
from envfleet.vector.pages import num_pages
from envfleet.vector.recovery import ShardTask
from envfleet.vector.shard import Shard
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
        batch_size: How many results ``recv`` gives at a time; by default all.
        on_failure: "raise", or "restart": an environment that raises or returns what its spaces do not allow is made
            again in place, and its episode counts as truncated.
        max_restarts: How often one may be made again within ``restart_window`` seconds; None for no limit.
        restart_window: In seconds.
        check_nan: Treat NaN in observations and rewards as a failure.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        self.closed = True  # until there is something to close
        self.env_fns = checked_env_fns(env_fns)
        self.num_envs = len(self.env_fns)
        self.observation_mode = checked_observation_mode(observation_mode)
        mode = checked_mode(autoreset_mode)
        checked_batch_size(batch_size, self.num_envs)
        policy = checked_failure_policy(on_failure, max_restarts, restart_window, check_nan=check_nan)
        envs, failure = build_envs(self.env_fns, 0)
        if failure is not None:
            raise as_error(failure, worker=None)
        try:
            spaces = fleet_spaces([EnvFace.of(env) for env in envs], self.observation_mode, mode)
            randomize = redrawn(self.env_fns)
            layout = FleetLayout(
                spaces,
                num_parameters=len(randomize),
                num_pages=num_pages(copy=copy, restarts=policy.restart, autoreset_mode=mode),
                refuse_nan=check_nan,
            )
            memory = aligned_zeros(layout.size)
            task = ShardTask(self.env_fns, 0, policy)
            rows = layout.rows(memory, 0, len(envs))
            self._shard = Shard(task, envs, rows, layout.observations, layout.actions, mode)
        except BaseException:
            close_envs(envs)
            raise
        self._order: Order | None = None
        self._queue: deque[tuple[int, Callable[[], Report | None]]] = deque()
        buffers = FleetBuffers(layout, memory, [(0, len(envs))])
        self._set_up(spaces, buffers, copy=copy, batch_size=batch_size, restarts=policy.restart, redrawn=randomize)
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

    def _steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        step = self._shard.step_row
        loose = [[values[i] for values in loose_actions] for i in range(len(rows))]
        work = [(row, partial(step, row, own)) for row, own in zip(rows.tolist(), loose, strict=True)]
        return lambda: self._queue.extend(work)

    def _resets(self, order: ResetOrder) -> Callable[[], None]:
        rows = enumerate(zip(order.seeds, order.options, strict=True))
        work = [(row, partial(self._shard.reset_row, row, seed, options)) for row, (seed, options) in rows]
        return lambda: self._queue.extend(work)

    def _receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:  # noqa: ARG002
        work = [self._queue.popleft() for _ in range(count)]
        return np.array([row for row, _ in work], np.intp), [carry_out() for _, carry_out in work]

    def _is_busy(self) -> bool:
        return False

    def _discard(self) -> None:
        self._queue.clear()

    def _recover(self) -> None:
        self._queue.clear()

    def _shut_down(self, timeout: float, terminate: bool) -> None:  # noqa: ARG002
        warn_of_close(self._shard.close())

    def _worker_of(self, env_index: int) -> None:  # noqa: ARG002
        return None
