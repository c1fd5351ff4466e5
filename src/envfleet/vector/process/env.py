"""AsyncVectorEnv: environments in worker processes, some of them a worker, over one shared block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet import _core
from envfleet.redraw import redrawn
from envfleet.vector.arguments import checked_batch_size, checked_count, checked_env_fns
from envfleet.vector.block import FleetBuffers, FleetLayout, Rows
from envfleet.vector.engine import Order, Report, ResetOrder
from envfleet.vector.failures import Failure, OnFailure, as_error, checked_failure_policy, warn_of_close
from envfleet.vector.fused_env import EnvFn, build_envs
from envfleet.vector.pages import keep_apart, num_pages
from envfleet.vector.process.engine import Supervisor
from envfleet.vector.recovery import ShardTask
from envfleet.vector.replay import Replays
from envfleet.vector.runtime import signals_blocked, usable_cores
from envfleet.vector.shard import Shard, split
from envfleet.vector.spaces import EnvFace, ObservationMode, checked_mode, checked_observation_mode, fleet_spaces
from envfleet.vector.vector_env import CLOSE_TIMEOUT, FleetVectorEnv


@final
class AsyncVectorEnv(FleetVectorEnv):
    """Runs the environments in worker processes, several environments a worker.

    Args:
        env_fns: One function an environment, each making one. With "spawn" and "forkserver" they travel by
            cloudpickle, so lambdas, closures and what the main module defines are fine.
        shared_memory: Accepted for Gymnasium's sake: data always lies in one shared block, and spaces
            without a fixed layout travel beside it, so both values give the same results.
        copy: True: returned observations are the caller's to keep. False: they are live views on the shared
            block, valid until the next ``step_async`` or ``reset_async``.
        context: "fork", "spawn", "forkserver", or None: fork where that is safe, see docs/process-backend.md.
        daemon: Whether workers are daemonic; environments that start processes of their own need False.
        worker: Not supported, see the error it raises.
        observation_mode: "same" (all spaces equal), "different" (bounds may differ), or a pair
            ``(batched space, single space)``.
        autoreset_mode: When environments reset by themselves; "NextStep", "SameStep" or "Disabled".
        max_concurrency: The most environments to run at the same time; caps ``num_workers``.
        num_workers: Processes to run the environments in; by default as many as there are usable cores.
            Environments that wait rather than compute (for a server, a device) want one worker each.
        caller_works: The caller's process is one of the workers: while it would wait it steps a share
            itself. Faster on few cores; a crash in that share is a crash of the caller.
        batch_size: How many environments ``recv`` waits for; by default all.
        on_failure: "raise", or "restart": an environment that fails, whether it raises, crashes its worker or
            exceeds ``step_timeout``, is made again in place. Its episode counts as truncated, ``infos["restarted"]``
            tells, and all others never notice; see docs/failures.md for those that share a lost worker.
        step_timeout: Seconds that one environment's step, reset or call may take before its worker is ended.
        start_timeout: Seconds that a worker may take to start, and then to make each environment, before it is ended;
            None for no limit.
        max_restarts: How often one environment, or one worker, may be made again within ``restart_window`` seconds;
            None for no limit.
        restart_window: In seconds.
        check_nan: Treat NaN in observations and rewards as a failure.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
        caller_works: bool = False,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        step_timeout: float | None = None,
        start_timeout: float | None = 600.0,
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        self.closed = True  # until there is something to close
        _refuse_custom_worker(worker)
        self.env_fns = checked_env_fns(env_fns)
        self.num_envs = len(self.env_fns)
        self.shared_memory, self.context, self.daemon, self.worker = shared_memory, context, daemon, worker
        self.max_concurrency = checked_count("max_concurrency", max_concurrency)
        self.observation_mode = checked_observation_mode(observation_mode)
        mode = checked_mode(autoreset_mode)
        checked_batch_size(batch_size, self.num_envs)
        self._policy = checked_failure_policy(
            on_failure,
            max_restarts,
            restart_window,
            step_timeout=step_timeout,
            start_timeout=start_timeout,
            check_nan=check_nan,
        )
        if caller_works and (batch_size is not None or step_timeout is not None):
            raise ValueError(
                "The caller cannot be a worker (caller_works=True) and wait at the same time for the first to be ready "
                "(batch_size) or for those that hang (step_timeout): leave one of them out."
            )
        bounds = split(len(self.env_fns), _shards(len(self.env_fns), num_workers, self.max_concurrency))
        self._num_local = bounds[0][1] if caller_works else 0
        shares = bounds[1 if caller_works else 0 :]
        tasks = [
            ShardTask(self.env_fns[first:last], first, self._policy, notes_digests=self._policy.restart)
            for first, last in shares
        ]
        with signals_blocked():  # or an interruption would leave processes that nobody ends
            self._supervisor = Supervisor(context, tasks, daemon)
            # multiprocessing's own kind: it runs before multiprocessing waits for workers that are not daemons.
            self._finalizer = Finalize(self, self._supervisor.shut_down, args=(0.0, True), exitpriority=0)
        try:
            self._make_fleet(bounds, mode, copy, batch_size)
        except BaseException:
            self._end_workers(CLOSE_TIMEOUT, terminate=False)
            raise
        where = f"{len(shares)} worker process{'es' if len(shares) != 1 else ''}"
        self.plan = f"process: {len(self.env_fns)} environments in {where}{' and the caller' if caller_works else ''}."
        self.closed = False

    def _make_fleet(
        self, bounds: list[tuple[int, int]], mode: AutoresetMode, copy: bool, batch_size: int | None
    ) -> None:
        local_envs, failure = build_envs(self.env_fns[: self._num_local], 0)
        if failure is not None:
            raise as_error(failure, worker=None)
        faces = [EnvFace.of(env) for env in local_envs] + self._supervisor.faces()
        spaces = fleet_spaces(faces, self.observation_mode, mode)
        num_workers = len(self._supervisor.processes)
        control_bytes = _core.Mailroom.bytes(num_workers, spaces.num_envs)
        randomize = redrawn(self.env_fns)
        restarts = self._policy.restart
        pages = num_pages(copy=copy, restarts=restarts, autoreset_mode=mode)
        layout = FleetLayout(
            spaces,
            num_parameters=len(randomize),
            num_pages=pages,
            control_bytes=control_bytes,
            refuse_nan=self._policy.check_nan,
        )
        memory = self._supervisor.create_block(layout.size)
        arrays = layout.arrays(memory)
        buffers = FleetBuffers(layout, memory, bounds)
        if buffers.pages is not None:
            keep_apart(buffers.pages)
        replays: Replays | None = None
        if restarts and layout.is_repeatable:
            replays = Replays(layout.rows(memory, 0, spaces.num_envs))
        self._supervisor.hand_out(spaces, arrays["control"], arrays["progress"], replays, pages)
        self._rebuilt = arrays["rebuilt"]
        self._local_shard: Shard | None = None
        if local_envs:
            rows = layout.rows(memory, 0, len(local_envs))
            task = ShardTask(self.env_fns[: self._num_local], 0, self._policy)
            self._local_shard = Shard(task, local_envs, rows, layout.observations, layout.actions, mode)
        self._local_order: Order | None = None
        self._local_report: Report | None = None
        self._set_up(spaces, buffers, copy=copy, batch_size=batch_size, restarts=restarts, redrawn=randomize)
        self._supervisor.answer_to(self._exclusive.check)

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return self._supervisor.processes

    @property
    def rebuilt(self) -> npt.NDArray[np.uint32]:
        """How often each environment was brought back to where it was after it had lost its process: (num_envs,)."""
        counts: npt.NDArray[np.uint32] = self._rebuilt.copy()
        return counts

    @property
    def num_workers(self) -> int:
        """How many shares of environments run side by side, the caller's own included."""
        return len(self._supervisor.processes) + (self._local_shard is not None)

    def _begin(self, order: Order) -> None:
        self._supervisor.begin(order)
        self._local_order = order.part(0, self._num_local)

    def _finish(self, timeout: float | None) -> Sequence[Report | None]:
        if self._local_shard is None:
            return self._supervisor.finish(timeout)
        if self._local_order is not None:
            order, self._local_order = self._local_order, None
            self._local_report = self._local_shard.execute(order)
        return [self._local_report, *self._supervisor.finish(timeout)]

    def _steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        self._refuse_tickets()
        return self._supervisor.steps(rows, loose_actions)

    def _resets(self, order: ResetOrder) -> Callable[[], None]:
        self._refuse_tickets()
        return self._supervisor.resets(order)

    def _refuse_tickets(self) -> None:
        if self._local_shard is not None:
            raise ValueError("send() and async_reset() need all environments in worker processes: caller_works=False.")

    def _receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        return self._supervisor.receive(count, timeout)

    def _recover(self) -> None:
        self._local_order = None
        self._supervisor.recover()

    def _is_busy(self) -> bool:
        return self._supervisor.is_busy

    def _discard(self) -> None:
        self._local_order = None
        self._supervisor.discard()

    def _shut_down(self, timeout: float, terminate: bool) -> None:
        failures = self._local_shard.close() if self._local_shard is not None else []
        failures += self._end_workers(timeout, terminate)
        warn_of_close(failures)
        self._supervisor.warn_of_copies()

    def _cut_short(self) -> None:
        self._supervisor.kill_workers()

    def _end_workers(self, timeout: float, terminate: bool) -> list[Failure]:
        failures = self._supervisor.shut_down(timeout, terminate)
        self._finalizer.cancel()  # not before: a second Ctrl-C leaves it to the finalizer
        return failures

    def _worker_of(self, env_index: int) -> int | None:
        return self._supervisor.worker_of(env_index)


def _refuse_custom_worker(worker: Any) -> None:
    if worker is not None:
        raise ValueError(
            "A custom `worker` is not supported: envfleet's workers run several environments each and speak through "
            "a shared block, not through a pipe an environment. To change how an environment steps or resets, wrap it "
            "in a gymnasium.Wrapper inside env_fns; for other resets choose `autoreset_mode`; to run your own worker "
            "function use gymnasium.vector.AsyncVectorEnv."
        )


def _shards(num_envs: int, num_workers: Any, max_concurrency: int | None) -> int:
    wanted = checked_count("num_workers", num_workers)
    if wanted is not None and max_concurrency is not None and wanted > max_concurrency:
        raise ValueError(
            f"num_workers={wanted} would run more environments at a time than max_concurrency={max_concurrency} allows."
        )
    return min(wanted or usable_cores(), num_envs, max_concurrency or num_envs)
