"""A Ray actor, and the bytes that travel between it and the caller.

An actor makes its environments, then does what it is asked, one call after another. Both sides have a block of their
own with the same layout, so the bytes of a row need no description.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from envfleet.redraw import redrawn
from envfleet.vector.block import BlockRows, FleetLayout, aligned_zeros
from envfleet.vector.engine import Report, dump_failure, dump_report
from envfleet.vector.failures import Failure
from envfleet.vector.fused_env import AnyEnv, build_envs, close_envs
from envfleet.vector.layout import Array
from envfleet.vector.pickling import dumps
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import seed_global_generators
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import FleetSpaces, faces_of

_HEADER = struct.Struct("=I")
"""The beginning of a message: how many bytes of each info row follow."""


@final
class RowBytes:
    """Turns some arrays into bytes, one after another, and back."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.pieces = [array.reshape(-1).view(np.uint8).data for array in arrays]
        self._edges = np.cumsum([0, *(len(piece) for piece in self.pieces)]).tolist()
        self.size: int = self._edges[-1]

    def pack(self) -> bytes:
        """Returns the bytes of the arrays."""
        return b"".join(self.pieces)

    def unpack(self, payload: bytes, start: int = 0) -> None:
        """Writes into the arrays what ``pack`` returned elsewhere, which begins at ``start``."""
        source = memoryview(payload)
        for piece, first, last in zip(self.pieces, self._edges, self._edges[1:], strict=False):
            piece[:] = source[start + first : start + last]


@final
class Results:
    """Turns what environments leave in their rows, and the report that goes with it, into one message, and back.

    A message holds what the caller shows its user, and what has to outlive an actor.
    """

    def __init__(self, rows: BlockRows) -> None:
        self._infos = rows.info_rows
        self._bytes = RowBytes(
            [
                rows.rewards,
                rows.terminated,
                rows.truncated,
                rows.restarted,
                rows.restarts,
                rows.parameters,
                rows.info_kinds,
                *rows.observation_arrays,
            ]
        )
        self._kinds = rows.info_kinds

    def pack(self, report: bytes, info_bytes: int) -> bytes:
        """Returns the message; ``info_bytes`` is how much of an info row is in use, if any is."""
        width = info_bytes if self._kinds.any() else 0
        infos = np.ascontiguousarray(self._infos[:, :width]).reshape(-1)
        return b"".join((_HEADER.pack(width), *self._bytes.pieces, infos.data, report))

    def unpack(self, message: bytes) -> bytes:
        """Writes into the rows what the message holds, and returns the report."""
        (width,) = _HEADER.unpack_from(message)
        self._bytes.unpack(message, _HEADER.size)
        start = _HEADER.size + self._bytes.size
        end = start + len(self._infos) * width
        if width:
            self._infos[:, :width] = np.frombuffer(message, np.uint8, end - start, start).reshape(-1, width)
        return message[end:]


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
    """Runs in the actor's process: a shard with a block of its own.

    Most methods return bytes, which Ray passes on as they are. No method raises: what environments raise is reported.

    Args:
        task: The environments, pickled.
        first_index: The number of the first of them.
        seed: Of the global random generators.
        folders: The caller's ``sys.path``. What the caller has imported since it started Ray is looked for there too.
    """

    def __init__(self, task: bytes, first_index: int, seed: Sequence[int], folders: Sequence[str] = ()) -> None:
        seed_global_generators(seed)
        sys.path += [folder for folder in folders if folder not in sys.path]
        self._payload, self._first_index = task, first_index
        self._envs: list[AnyEnv] = []
        self._shard: Shard | None = None

    def place(self) -> Place:
        """Returns where the actor runs; to be called before ``make``, which may take long."""
        import ray  # an optional package, which is there: this is one of its actors

        return Place(ray.util.get_node_ip_address(), os.getpid())

    def make(self) -> bytes:
        """Makes the environments; returns what they show, or the failure of the first that could not be made."""
        try:
            self._task: ShardTask = pickle.loads(self._payload)
        except Exception as error:
            failure = Failure.of(error, self._first_index, "make")
            failure.note = _NOT_HERE
            return dump_failure(failure)
        self._envs, trouble = build_envs(self._task.env_fns, self._first_index)
        return dumps(faces_of(self._envs)) if trouble is None else dump_failure(trouble)

    def settle(self, spaces: bytes, restarts: Sequence[int]) -> None:
        """Lays out the block once all environments of the fleet exist.

        ``restarts`` says how often each environment was restarted before.
        """
        fleet: FleetSpaces = pickle.loads(spaces)
        task, num_envs = self._task, len(self._envs)
        self._layout = FleetLayout(
            replace(fleet, num_envs=num_envs),
            num_parameters=len(redrawn(task.env_fns)),
            refuse_nan=task.policy.check_nan,
        )
        self._memory = aligned_zeros(self._layout.size)
        rows = self._layout.rows(self._memory, 0, num_envs)
        rows.restarts[:] = restarts
        self._results, self._actions = Results(rows), RowBytes(rows.action_arrays)
        self._info_bytes = 0
        layout = self._layout
        self._shard = Shard(task, self._envs, rows, layout.observations, layout.actions, fleet.autoreset_mode)

    def ping(self) -> None:
        """Returns at once: the caller learns that everything before is done."""

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
        RowBytes(rows.action_arrays).unpack(actions)
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
