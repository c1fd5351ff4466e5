"""AsyncVectorEnv: environments in worker processes, several per worker, over one shared block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.redraw import redrawn
from envfleet.vector.arguments import checked_count, documented, one_of_two_names
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.failures import OnFailure, checked_failure_policy
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.pages import num_pages
from envfleet.vector.process.engine import ProcessEngine
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import exclusive_for, signals_blocked, usable_cores
from envfleet.vector.shard import split
from envfleet.vector.spaces import EnvFunctions, ObservationMode
from envfleet.vector.vector_env import CLOSE_TIMEOUT, FleetOptions, FleetVectorEnv


@final
@documented  # with SHARED_ARGUMENTS
class AsyncVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs the environments in worker processes, several environments per worker.

    Args:
        shared_memory: Accepted for Gymnasium's sake: data always lies in one shared block, and spaces
            without a fixed layout travel beside it, so both values give the same results.
        context: "fork", "spawn", "forkserver", or None: fork where that is safe, see docs/process-backend.md.
        daemon: Whether workers are daemonic; environments that start processes of their own need False.
        worker: Not supported, see the error it raises.
        max_concurrency: The most environments to run at the same time; caps ``num_workers``.
        num_workers: Processes to run the environments in; by default as many as there are usable cores.
            Environments that wait rather than compute (for a server, a device) want one worker each.
        caller_works: The caller's process is one of the workers: while it would wait it steps a share
            itself. Faster on few cores; a crash in that share is a crash of the caller.
    """

    @remembers_arguments
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
        first_ready: int | None = None,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        step_timeout: float | None = None,
        start_timeout: float | None = 600.0,
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        _refuse_custom_worker(worker)
        batch_size = one_of_two_names(first_ready, batch_size)
        given = EnvFunctions.checked(env_fns, observation_mode, autoreset_mode, batch_size)
        self.env_fns, self.observation_mode = given.env_fns, given.observation_mode
        self.shared_memory, self.context, self.daemon, self.worker = shared_memory, context, daemon, worker
        self.max_concurrency = checked_count("max_concurrency", max_concurrency)
        limits = max_restarts, restart_window, step_timeout, start_timeout
        policy = checked_failure_policy(on_failure, *limits, check_nan=check_nan)
        if caller_works and (batch_size is not None or step_timeout is not None):
            raise ValueError(
                "The caller cannot be a worker (caller_works=True) and wait at the same time for the first to be ready "
                "(first_ready) or for those that hang (step_timeout): leave one of them out."
            )
        bounds = split(len(given), _shards(len(given), num_workers, self.max_concurrency))
        tasks = [
            ShardTask(given.env_fns[first:last], first, policy, notes_digests=policy.restart) for first, last in bounds
        ]
        with signals_blocked():  # or an interruption would leave processes that nobody ends
            exclusive = exclusive_for(type(self).__name__)
            engine = ProcessEngine(tasks, context, exclusive, daemon=daemon, caller_works=caller_works)
            engine.end_with(self)
        try:
            spaces = given.spaces(engine.make_envs())
            engine.settle(spaces, num_pages(copy=copy, restarts=policy.restart, autoreset_mode=given.autoreset_mode))
        except BaseException:
            engine.end_workers(CLOSE_TIMEOUT, terminate=False)
            raise
        self._processes, self._rebuilt, self._caller_works = engine.processes, engine.rebuilt, caller_works
        where = (
            f"{len(self.processes)} worker process{'es' * (len(self.processes) != 1)}{' and the caller' * caller_works}"
        )
        plan = f"process: {len(given)} environments in {where}."
        super().__init__(spaces, engine, FleetOptions(plan, copy, batch_size, redrawn(given.env_fns)))

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return self._processes

    @property
    def rebuilt(self) -> npt.NDArray[np.uint32]:
        """How often each environment was brought back to where it was after it had lost its process: (num_envs,)."""
        counts: npt.NDArray[np.uint32] = self._rebuilt.copy()
        return counts

    @property
    def num_workers(self) -> int:
        """How many shares of environments run side by side, the caller's own included."""
        return len(self._processes) + self._caller_works


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
