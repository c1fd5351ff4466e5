"""RayVectorEnv: environments in Ray actors, some of them an actor, on one machine or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from gymnasium.vector import AutoresetMode

from envfleet.redraw import redrawn
from envfleet.vector.arguments import checked_batch_size, checked_count, checked_env_fns
from envfleet.vector.block import FleetBuffers, FleetLayout, Rows, aligned_zeros
from envfleet.vector.engine import Order, Report, ResetOrder
from envfleet.vector.failures import OnFailure, checked_failure_policy, warn_of_close
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.ray.actors import Actors
from envfleet.vector.ray.cluster import actors_that_fit, checked_demand, connect
from envfleet.vector.ray.engine import Dispatcher
from envfleet.vector.recovery import ShardTask
from envfleet.vector.shard import split
from envfleet.vector.spaces import ObservationMode, checked_mode, checked_observation_mode, fleet_spaces
from envfleet.vector.vector_env import CLOSE_TIMEOUT, FleetVectorEnv


@final
class RayVectorEnv(FleetVectorEnv):
    """Runs the environments in Ray actors, several environments an actor, on one machine or many.

    Connects to Ray as ``ray.init()`` does, unless it is connected already, and never shuts it down.

    Args:
        env_fns: One function an environment, each making one. They travel by cloudpickle, so lambdas, closures and
            what the main module defines are fine; what they import must be there on every machine.
        copy: True: returned observations are the caller's to keep. False: they are live views, valid until the next
            ``step_wait`` or ``reset_wait``.
        observation_mode: "same" (all spaces equal), "different" (bounds may differ), or a pair
            ``(batched space, single space)``.
        autoreset_mode: When environments reset by themselves; "NextStep", "SameStep" or "Disabled".
        num_workers: Actors to run the environments in; by default as many as the cluster has room for now.
        num_cpus: CPUs that each actor takes of the cluster; a share, as 0.5, lets more of them on a machine.
        resources: What else each actor takes, by the names given to ``ray start --resources``: keeps actors off
            machines that do not have it.
        batch_size: How many environments ``recv`` waits for; by default all.
        on_failure: "raise", or "restart": an environment that fails is made again in place, and its episode counts as
            truncated. An actor that is lost takes all of its environments along: they are made again in another.
        step_timeout: Seconds that one environment's step, reset or call may take; an actor that needs longer than
            all of its environments may is ended.
        start_timeout: Seconds that an actor may take to find a place in the cluster, and then to make each
            environment; None for no limit.
        max_restarts: How often one environment, or one actor, may be made again within ``restart_window`` seconds;
            None for no limit.
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
        num_workers: int | None = None,
        num_cpus: float = 1.0,
        resources: Mapping[str, float] | None = None,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        step_timeout: float | None = None,
        start_timeout: float | None = 600.0,
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
        wanted, demand = checked_count("num_workers", num_workers), checked_demand(num_cpus, resources)
        policy = checked_failure_policy(
            on_failure,
            max_restarts,
            restart_window,
            step_timeout=step_timeout,
            start_timeout=start_timeout,
            check_nan=check_nan,
        )
        ray = connect()
        bounds = split(self.num_envs, min(wanted or actors_that_fit(ray, demand), self.num_envs))
        tasks = [ShardTask(self.env_fns[first:last], first, policy) for first, last in bounds]
        self._actors = Actors(ray, demand, len(tasks))
        self._dispatcher = Dispatcher(self._actors, tasks)
        try:
            spaces = fleet_spaces(self._dispatcher.start(tasks), self.observation_mode, mode)
            randomize = redrawn(self.env_fns)
            layout = FleetLayout(spaces, num_parameters=len(randomize), refuse_nan=check_nan)
            memory = aligned_zeros(layout.size)
            self._dispatcher.hand_out(spaces, layout, memory)
            buffers = FleetBuffers(layout, memory, bounds)
        except BaseException:
            self._actors.end(CLOSE_TIMEOUT, terminate=False)
            raise
        self._set_up(spaces, buffers, copy=copy, batch_size=batch_size, restarts=policy.restart, redrawn=randomize)
        self._dispatcher.answer_to(self._exclusive.check)
        self.plan = self._describe()
        self.closed = False

    def _describe(self) -> str:
        machines = len({place.machine for place in self._actors.places.values()})
        where = f"{len(self._actors)} Ray actor{'s' * (len(self._actors) != 1)}"
        return f"ray: {self.num_envs} environments in {where} on {machines} machine{'s' * (machines != 1)}."

    @property
    def num_workers(self) -> int:
        """How many actors there are."""
        return len(self._actors)

    def _begin(self, order: Order) -> None:
        self._dispatcher.begin(order)

    def _finish(self, timeout: float | None) -> Sequence[Report | None]:
        return self._dispatcher.finish(timeout)

    def _steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        return self._dispatcher.steps(rows, loose_actions)

    def _resets(self, order: ResetOrder) -> Callable[[], None]:
        return self._dispatcher.resets(order)

    def _receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        return self._dispatcher.receive(count, timeout)

    def _recover(self) -> None:
        self._dispatcher.recover()

    def _is_busy(self) -> bool:
        return self._dispatcher.is_busy

    def _discard(self) -> None:
        self._dispatcher.discard()

    def _shut_down(self, timeout: float, terminate: bool) -> None:
        warn_of_close(self._actors.end(timeout, terminate))

    def _cut_short(self) -> None:
        for worker in range(len(self._actors)):
            self._actors.end_one(worker)

    def _worker_of(self, env_index: int) -> int | None:
        return self._dispatcher.worker_of(env_index)
