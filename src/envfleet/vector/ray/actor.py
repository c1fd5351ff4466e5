"""A Ray actor: makes its environments, then carries out what it is asked, one call after another."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from envfleet.episodes import redrawn
from envfleet.vector.layout import aligned_zeros
from envfleet.vector.failures import Failure
from envfleet.vector.block import FleetLayout
from envfleet.vector.global_generators import seed_global_generators
from envfleet.vector.fused_env import AnyEnv
from envfleet.vector.engine import Report
from envfleet.vector.pickling import dump_failure, dump_report, dumps
from envfleet.vector.ray.cluster import import_ray
from envfleet.vector.ray.wire import Freight, Results
from envfleet.vector.shard import Shard
from envfleet.vector.share import ShardTask, build_envs, close_envs
from envfleet.vector.spaces import FleetSpaces, faces_of

_NOT_HERE = (
    "The machine that was to run it could not load it: install what it needs on every machine of the cluster, or have "
    'Ray bring it, as with ray.init(runtime_env={"working_dir": "."}).'
)


@dataclass(frozen=True)
class Place:
    """Where an actor runs."""

    machine: str
    pid: int

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.machine}"


@final
class ShardActor:
    """What runs in the actor's process: a shard over a block of its own.

    Calls are answered by bytes, which Ray passes on as they are. None raises: what environments raise is reported.
    """

    def __init__(self, task: bytes, first_index: int, seed: Sequence[int]) -> None:
        seed_global_generators(seed)
        self._payload, self._first_index = task, first_index
        self._envs: list[AnyEnv] = []
        self._shard: Shard | None = None

    def place(self) -> Place:
        """Where it runs; answered before environments are made, which may take long."""
        return Place(import_ray().util.get_node_ip_address(), os.getpid())

    def make(self) -> bytes:
        """Makes the environments; what they show, or the failure of the first that could not be made."""
        try:
            self._task: ShardTask = pickle.loads(self._payload)
        except Exception as error:
            failure = Failure.of(error, self._first_index, "make")
            failure.note = _NOT_HERE
            return dump_failure(failure)
        self._envs, trouble = build_envs(self._task.env_fns, self._first_index)
        return dumps(faces_of(self._envs)) if trouble is None else dump_failure(trouble)

    def settle(self, spaces: bytes, restarts: Sequence[int]) -> None:
        """Lays out the block once all environments of the fleet exist; ``restarts`` of its rows so far."""
        fleet: FleetSpaces = pickle.loads(spaces)
        task, num_envs = self._task, len(self._envs)
        self._layout = FleetLayout(
            replace(fleet, num_envs=num_envs),
            num_parameters=len(redrawn(task.env_fns)),
            refuse_nan=task.care.check_nan,
        )
        self._memory = aligned_zeros(self._layout.size)
        rows = self._layout.rows(self._memory, 0, num_envs)
        rows.restarts[:] = restarts
        self._results, self._actions = Results(rows), Freight(rows.action_arrays)
        self._info_bytes = 0
        layout = self._layout
        self._shard = Shard(task, self._envs, rows, layout.observations, layout.actions, fleet.autoreset_mode)

    def ping(self) -> None:
        """Answers."""

    # -- turns: all environments ----------------------------------------------------------------------

    def step(self, actions: bytes) -> bytes:
        """Steps all environments."""
        assert self._shard is not None
        self._actions.unpack(actions)
        return self._answer(self._results, self._shard.step())

    def execute(self, order: bytes, actions: bytes) -> bytes:
        """Carries out any order."""
        self._actions.unpack(actions)
        return self._answer(self._results, self._carry_out(order, 0, Shard.execute))

    # -- tickets: single environments -----------------------------------------------------------------

    def step_row(self, row: int, actions: bytes, loose_action: bytes) -> bytes:
        """Steps one environment."""
        rows = self._layout.rows(self._memory, row, row + 1)
        Freight(rows.action_arrays).unpack(actions)
        report = self._carry_out(loose_action, row, lambda shard, loose: shard.step_row(row, loose))
        return self._answer(Results(rows), report, row)

    def reset_row(self, row: int, seed_and_options: bytes) -> bytes:
        """Resets one environment."""
        rows = self._layout.rows(self._memory, row, row + 1)
        report = self._carry_out(seed_and_options, row, lambda shard, parcel: shard.reset_row(row, *parcel))
        return self._answer(Results(rows), report, row)

    def _carry_out(self, parcel: bytes, row: int, what: Callable[[Shard, Any], Report | None]) -> Report | None:
        assert self._shard is not None
        try:
            arguments = pickle.loads(parcel)
        except Exception as error:  # not on this machine
            return Report(failures=[Failure.of(error, self._first_index + row, "call")])
        return what(self._shard, arguments)

    def _answer(self, results: Results, report: Report | None, row: int = 0) -> bytes:
        if report is None:
            return results.pack(b"", self._info_bytes)
        if report.infos is not None:
            sizes = [schema.num_bytes for schema in report.infos.schemas.values()]
            self._info_bytes = max(self._info_bytes, *sizes, 0)
        return results.pack(dump_report(report, self._first_index, row), self._info_bytes)

    def close(self) -> bytes:
        """Closes the environments, also if they were never to be used; returns what they raised."""
        failures = close_envs(self._envs, self._first_index) if self._shard is None else self._shard.close()
        return dump_report(Report(failures=failures), self._first_index)
