"""SyncVectorEnv: one shard, in this thread. Slow environments wait for each other; debuggers work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet import _core
from envfleet.redraw import redrawn
from envfleet.vector.arguments import documented, one_of_two_names
from envfleet.vector.block import FleetLayout, aligned_zeros
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.engine import PLAIN_STEP, Order, Report, ResetOrder, Rows, StepOrder
from envfleet.vector.failures import OnFailure, as_error, checked_failure_policy, warn_of_close
from envfleet.vector.fleet_block import FleetBlock
from envfleet.vector.fused_env import AnyEnv, EnvFn, build_envs, close_envs
from envfleet.vector.pages import num_pages
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import exclusive_for
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import EnvFace, EnvFunctions, ObservationMode
from envfleet.vector.vector_env import FleetOptions, FleetVectorEnv


@final
@documented  # with SHARED_ARGUMENTS
class SyncVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs the environments one after another in the caller's thread.

    Args:
        first_ready: How many results ``recv`` gives at a time; by default all.
    """

    @remembers_arguments
    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        first_ready: int | None = None,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        batch_size = one_of_two_names(first_ready, batch_size)
        given = EnvFunctions.checked(env_fns, observation_mode, autoreset_mode, batch_size)
        self.env_fns, self.observation_mode = given.env_fns, given.observation_mode
        policy = checked_failure_policy(on_failure, max_restarts, restart_window, check_nan=check_nan)
        envs, failure = build_envs(given.env_fns, 0)
        if failure is not None:
            raise as_error(failure, worker=None)
        try:
            spaces = given.spaces([EnvFace.of(env) for env in envs])
            randomize = redrawn(given.env_fns)
            pages = num_pages(copy=copy, restarts=policy.restart, autoreset_mode=spaces.autoreset_mode)
            layout = FleetLayout(spaces, num_parameters=len(randomize), num_pages=pages, refuse_nan=check_nan)
            task, exclusive = ShardTask(given.env_fns, 0, policy), exclusive_for(type(self).__name__)
            engine = SyncEngine(task, envs, layout, exclusive)
        except BaseException:
            close_envs(envs)
            raise
        plan = "sync: one environment after another in the caller's thread."
        self._shard = engine.shard
        super().__init__(spaces, engine, FleetOptions(plan, copy, batch_size, randomize))

    @property
    def envs(self) -> list[AnyEnv]:
        """The environments themselves."""
        return self._shard.envs


@final
class SyncEngine:
    """One shard in the caller's thread. Work on tickets is done when its results are asked for."""

    def __init__(
        self,
        task: ShardTask,
        envs: Sequence[AnyEnv],
        layout: FleetLayout,
        exclusive: _core.Exclusive,
    ) -> None:
        memory = aligned_zeros(layout.size)
        rows = layout.rows(memory, 0, len(envs))
        self.exclusive = exclusive
        self.shard = Shard(task, envs, rows, layout.observations, layout.actions, layout.autoreset_mode)
        self.block = FleetBlock(layout, memory, [(0, len(envs))], keeps_last=task.policy.restart)
        self.quick = self.block.quick_calls(exclusive, partial(_step_all, self.shard, self.block))
        self._order: Order = StepOrder()
        self._queue: deque[tuple[int, Callable[[], Report | None]]] = deque()

    is_busy = False

    def begin(self, order: Order) -> None:
        """Keeps the order for ``finish``."""
        self._order = order

    def finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  nothing to wait for
        """Carries it out."""
        reports = [self.shard.execute(self._order)]
        self.block.absorb(self._order, reports)
        return reports

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        """Steps to be taken by ``receive``."""
        step = self.shard.step_row
        loose = [[values[i] for values in loose_actions] for i in range(len(rows))]
        work = [(row, partial(step, row, own)) for row, own in zip(rows.tolist(), loose, strict=True)]
        return lambda: self._queue.extend(work)

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """Resets to be made by ``receive``."""
        reset, seeds, options = self.shard.reset_row, order.seeds, order.options
        work = [(row, partial(reset, row, seeds[row], options[row])) for row in rows.tolist()]
        return lambda: self._queue.extend(work)

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:  # noqa: ARG002
        """Does the oldest ``count`` of them."""
        work = [self._queue.popleft() for _ in range(count)]
        rows, reports = np.array([row for row, _ in work], np.intp), [carry_out() for _, carry_out in work]
        self.block.absorb_rows(rows, reports)
        return rows, reports

    def discard(self) -> None:
        """Forgets what was not asked for."""
        self._queue.clear()

    def recover(self) -> None:
        """Nothing dies here but the caller itself."""
        self._queue.clear()

    def close(self, timeout: float, terminate: bool) -> None:  # noqa: ARG002
        """Closes the environments."""
        warn_of_close(self.shard.close())

    def interrupt(self) -> None:
        """Nothing can: the other thread is inside an environment."""

    def worker_of(self, env_index: int) -> None:  # noqa: ARG002
        """No worker: the caller's own process."""
        return


def _step_all(shard: Shard, block: FleetBlock) -> Sequence[Report | None] | None:
    report = shard.step()
    if report is None:
        return None
    block.absorb(PLAIN_STEP, [report])
    return [report]
