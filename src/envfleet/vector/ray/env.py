"""RayVectorEnv: environments in Ray actors, some of them an actor, on one machine or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.redraw import redrawn
from envfleet.vector.arguments import checked_count, documented, one_of_two_names
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.failures import OnFailure, checked_failure_policy
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.ray.actors import Actors, actors_that_fit, checked_demand, connect
from envfleet.vector.ray.engine import RayEngine
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import exclusive_for
from envfleet.vector.shard import split
from envfleet.vector.spaces import EnvFunctions, ObservationMode
from envfleet.vector.vector_env import CLOSE_TIMEOUT, FleetOptions, FleetVectorEnv


@final
@documented  # with SHARED_ARGUMENTS
class RayVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs the environments in Ray actors, several environments per actor, on one machine or many.

    Connects to Ray as ``ray.init()`` does, unless it is connected already, and never shuts it down.

    Args:
        env_fns: One function per environment, which makes it. They travel by cloudpickle, so lambdas, closures and
            what the main module defines are fine; what they import must be there on every machine.
        num_workers: Actors to run the environments in; by default as many as the cluster has room for now.
        num_cpus: CPUs that each actor takes of the cluster; a share, as 0.5, lets more of them on a machine.
        resources: What else each actor takes, by the names given to ``ray start --resources``: keeps actors off
            machines that do not have it.
        step_timeout: Seconds that one environment's step, reset or call may take; an actor that needs longer than
            all of its environments may is ended.
        start_timeout: Seconds that an actor may take to find a place in the cluster, and then to make each
            environment; None for no limit.
    """

    @remembers_arguments
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
        first_ready: int | None = None,
        batch_size: int | None = None,
        on_failure: OnFailure = "raise",
        step_timeout: float | None = None,
        start_timeout: float | None = 600.0,
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        batch_size = one_of_two_names(first_ready, batch_size)
        given = EnvFunctions.checked(env_fns, observation_mode, autoreset_mode, batch_size)
        self.env_fns, self.observation_mode = given.env_fns, given.observation_mode
        wanted, demand = checked_count("num_workers", num_workers), checked_demand(num_cpus, resources)
        limits = max_restarts, restart_window, step_timeout, start_timeout
        policy = checked_failure_policy(on_failure, *limits, check_nan=check_nan)
        ray = connect()
        bounds = split(len(given), min(wanted or actors_that_fit(ray, demand), len(given)))
        tasks = [ShardTask(given.env_fns[first:last], first, policy) for first, last in bounds]
        self._actors = Actors(ray, demand, len(tasks))
        engine = RayEngine(self._actors, tasks, exclusive_for(type(self).__name__))
        try:
            spaces = given.spaces(engine.make_envs())
            engine.settle(spaces)
        except BaseException:
            self._actors.end(CLOSE_TIMEOUT, terminate=False)
            raise
        plan = f"ray: {len(given)} environments in {_where(self._actors)}."
        super().__init__(spaces, engine, FleetOptions(plan, copy, batch_size, redrawn(given.env_fns)))

    @property
    def num_workers(self) -> int:
        """How many actors there are."""
        return len(self._actors)


def _where(actors: Actors) -> str:
    machines = len({place.machine for place in actors.places.values()})
    return f"{len(actors)} Ray actor{'s' * (len(actors) != 1)} on {machines} machine{'s' * (machines != 1)}"
