"""Tickets: single environments set to work, and their results collected as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector.engine import Report, ResetOrder, load_report
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.watch import Watch
from envfleet.vector.process.worker import REPORT_FOLLOWS, RESET_ROW, STEP_ROW, STEP_ROW_WITH_PARCEL
from envfleet.vector.process.workers import Workers
from envfleet.vector.recovery import LostWorker, Recovery
from envfleet.vector.runtime import NEVER, Deadline, signals_blocked

Rows: TypeAlias = npt.NDArray[np.intp]

_NO_RESULT = 255
"""Marks a place in which there is no result: no result has this status."""


@final
class Tickets:
    """The caller's side of tickets: sends them through the mailroom and keeps results until somebody takes them."""

    def __init__(self, workers: Workers, mailroom: _core.Mailroom, watch: Watch, recovery: Recovery) -> None:
        self._workers, self._mailroom, self._watch, self._recovery = workers, mailroom, watch, recovery
        self._bounds, self._replays = recovery.bounds, recovery.replays
        self._reset_parcels: dict[int, bytes] = {}
        self._backlog: deque[tuple[int, bytes | None]] = deque()
        num_envs = self._bounds[-1][1] if self._bounds else 0
        self._collected, self._statuses = np.empty(num_envs, np.intp), np.full(num_envs, _NO_RESULT, np.uint8)
        self._is_taking_over = False
        self._not_noted: set[int] = set()
        self._unheard: dict[int, LostWorker] = {}

    # Both pickle first and return a function that sends: what cannot be pickled must change nothing.

    def steps(self, rows: Rows, loose_actions: Sequence[Sequence[object]]) -> Callable[[], None]:
        """Returns a function that has environments stepped; ``loose_actions`` are those of a StepOrder."""
        if not loose_actions:
            return partial(self._mailroom.send, rows, STEP_ROW)
        parcels = [dumps_by_value([values[i] for values in loose_actions]) for i in range(len(rows))]
        return partial(self._send_parcels, rows, STEP_ROW_WITH_PARCEL, parcels)

    def resets(self, order: ResetOrder) -> Callable[[], None]:
        """Returns a function that has all environments reset, each as soon as its worker comes to it."""
        rows = np.arange(self._bounds[0][0], self._bounds[-1][1])
        parcels = [dumps_by_value((order.seeds[row], order.options[row])) for row in rows.tolist()]

        def send() -> None:
            self._reset_parcels = dict(zip(rows.tolist(), parcels, strict=True))
            self._send_parcels(rows, RESET_ROW, parcels)

        return send

    def _send_parcels(self, rows: Rows, kind: int, parcels: Sequence[bytes]) -> None:
        with signals_blocked():  # a worker that was given a ticket must get what belongs to it
            for i, parcel in enumerate(parcels):
                # The ticket first: a long message needs a reader at the other end.
                self._mailroom.send(rows[i : i + 1], kind)
                self._workers.tell(self._worker_of(int(rows[i])), parcel)

    def take(self, count: int, deadline: Deadline = NEVER) -> tuple[Rows, list[Report | None]] | None:
        """Returns the oldest ``count`` results, with one report (or None) each; None if there are fewer.

        Raises LostWorker if a worker was lost before the report came that it had announced.
        """
        rows = self._take_plain(count)
        if rows is not None:
            return rows, [None] * count
        missing = count - len(self._backlog)
        if missing > 0 and (self._is_taking_over or self._mailroom.num_ready() >= missing):
            self.collect(deadline)
        if self._unheard:
            raise self._unheard[min(self._unheard)]
        if len(self._backlog) < count:
            return None
        taken = [self._backlog.popleft() for _ in range(count)]
        return np.array([row for row, _ in taken], np.intp), [
            load_report(payload, row, "step") for row, payload in taken
        ]

    def _take_plain(self, count: int) -> Rows | None:
        """Returns the rows of the oldest results if no reports come with them, which is so most of the time."""
        # Nothing to tell anyone, and nothing that came before.
        is_plain = self._replays is None and not (self._reset_parcels or self._backlog or self._unheard)
        if not is_plain or self._is_taking_over or self._mailroom.num_ready() < count:
            return None
        rows, statuses = self._collected[:count], self._statuses[:count]
        self._is_taking_over = True
        self._mailroom.collect(rows, statuses)
        if statuses.any():  # not ALL_IN_BLOCK: `collect` goes on from here
            return None
        taken: Rows = rows.copy()
        statuses.fill(_NO_RESULT)
        self._is_taking_over = False
        return taken

    def wait_for(self, count: int, deadline: Deadline = NEVER) -> None:
        """Waits until ``take(count)`` has something to return or to raise; a TimeoutError loses nothing."""
        busy = partial(self.still_out, deadline)
        self._watch.deliver(busy, deadline)
        self._watch.look_now_and_then(busy)
        self._watch.wait(partial(self._are_there, count), busy, deadline)

    def _are_there(self, count: int, timeout: float, pause: float, yield_: float) -> bool:
        missing = count - len(self._backlog)
        return missing <= 0 or bool(self._unheard) or self._mailroom.wait_ready(missing, timeout, pause, yield_)

    def still_out(self, deadline: Deadline = NEVER) -> list[int]:
        """Collects all results that are there and returns the workers that still have something to do.

        Collecting comes first, since a worker whose long report nobody reads does not come to its next environment.
        """
        self.collect(deadline)
        return self.workers_out()

    def collect(self, deadline: Deadline = NEVER) -> None:
        """Takes all results that are there out of the mailroom; a TimeoutError loses nothing."""
        if self._is_taking_over:  # an interruption left something
            self._take_over(deadline)
        self._is_taking_over = True
        self._mailroom.collect(self._collected, self._statuses)
        self._take_over(deadline)

    def _take_over(self, deadline: Deadline) -> None:
        try:
            for place in np.flatnonzero(self._statuses != _NO_RESULT).tolist():
                self._take_over_one(place, deadline)
        finally:
            self._note()
        self._is_taking_over = False

    def _take_over_one(self, place: int, deadline: Deadline) -> None:
        """Takes one result and its report together: an interruption must not part them."""
        row = int(self._collected[place])
        if self._statuses[place] != REPORT_FOLLOWS:
            self._backlog.append((row, None))
            self._not_noted.add(row)
            self._statuses[place] = _NO_RESULT
            return
        worker = self._worker_of(row)
        try:
            self._watch.await_message(worker, deadline)
        except LostWorker as lost:  # before it said what there was to say
            self._unheard[row] = lost
            self._statuses[place] = _NO_RESULT
            return
        with signals_blocked():
            self._backlog.append((row, self._workers.pop_message(worker)))
            self._not_noted.add(row)
            self._statuses[place] = _NO_RESULT

    def _note(self) -> None:
        for row in self._not_noted if self._reset_parcels else ():
            self._reset_parcels.pop(row, None)
        if self._replays is None or not self._not_noted:
            self._not_noted.clear()
            return
        rows = np.array(sorted(self._not_noted), np.intp)
        try:
            self._replays.note(rows)
            self._not_noted.clear()
        except BaseException:  # an interruption: what was noted by halves, or will be once more, is worth nothing
            self._replays.forget(rows)
            raise

    def lost_by(self, worker: int) -> list[tuple[int, int]]:
        """Returns the tickets ``(row, kind)`` that a dead worker left undone; its results must be collected before."""
        rows = range(*self._bounds[worker])
        lost = [row for row in rows if row in self._unheard or self._mailroom.kind_out(row) is not None]
        for row in lost:
            self._unheard.pop(row, None)
        # What came with an action is forgotten: an environment that was made again takes none.
        return [(row, RESET_ROW if row in self._reset_parcels else STEP_ROW) for row in lost]

    def send_again(self, lost: Sequence[tuple[int, int]]) -> None:
        """Sends the tickets that ``lost_by`` found to the worker that took the dead one's place."""
        steps = [row for row, kind in lost if kind == STEP_ROW]
        resets = [row for row, kind in lost if kind == RESET_ROW]
        if steps:
            self._mailroom.send(np.array(steps, np.intp), STEP_ROW)
        if resets:
            parcels = [self._reset_parcels[row] for row in resets]
            self._send_parcels(np.array(resets, np.intp), RESET_ROW, parcels)

    def workers_out(self) -> list[int]:
        """Returns the workers that have something to do."""
        rows_of = [range(*bounds) for bounds in self._bounds]
        is_out = self._mailroom.kind_out
        return [worker for worker, rows in enumerate(rows_of) if any(is_out(row) is not None for row in rows)]

    def forget(self) -> None:
        """Drops the results that nobody took."""
        self._backlog.clear()
        self._unheard.clear()

    def forget_resets(self) -> None:
        """Forgets what resets were sent with; to be called when no environment is at work."""
        self._reset_parcels.clear()

    def _worker_of(self, row: int) -> int:
        worker = self._recovery.worker_of(row)
        assert worker is not None
        return worker
