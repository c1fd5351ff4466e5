"""Work for the workers, given out and taken back: turns for all environments, tickets for single ones.

Of a lost worker, both know what it had to do, and can give that to the one in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import numpy as np

from envfleet import _core
from envfleet.vector.engine import PLAIN_STEP, Order, Report, ResetOrder, Rows, SetAttrOrder, StepOrder, load_report
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.watch import Watch
from envfleet.vector.process.worker import (
    ALL_IN_BLOCK,
    ORDER,
    REPORT_FOLLOWS,
    RESET_ROW,
    STEP,
    STEP_ROW,
    STEP_ROW_WITH_PARCEL,
)
from envfleet.vector.process.workers import Workers
from envfleet.vector.recovery import LostWorker, Recovery
from envfleet.vector.runtime import NEVER, Deadline, signals_blocked


@final
class Turns:
    """The caller's side of turns: has all environments of all workers do something, and takes what the workers answer.

    Attributes:
        order: What the last turn was to do.
        collected: The number of the last turn that was collected.
    """

    def __init__(self, workers: Workers, mailroom: _core.Mailroom, watch: Watch, recovery: Recovery) -> None:
        self._workers, self._mailroom, self._watch, self._recovery = workers, mailroom, watch, recovery
        self._bounds = recovery.bounds
        self.order: Order = PLAIN_STEP
        self.collected = 0
        self._excuses: dict[int, Report] = {}
        self._inbox: tuple[int, list[bytes | None]] = (0, [])
        self._silence: Sequence[Report | None] = [None] * len(workers)

    @property
    def is_under_way(self) -> bool:
        """Whether a turn was begun and not yet collected."""
        return self._mailroom.turns() != self.collected

    def begin(self, order: Order) -> None:
        """Sets all workers to work. What they are told may still have to be delivered, see ``Workers.all_sent``."""
        if type(order) is StepOrder and not order.loose_actions:
            self.order = order
            self._mailroom.post(0, len(self._bounds), STEP)
            return
        self._watch.warn_of_copies()
        # Pickled before anything is posted: arguments that cannot be pickled must change nothing.
        payloads = [dumps_by_value(order.part(first, last)) for first, last in self._bounds]
        with signals_blocked():  # a worker that was told of an order must get it
            self.order = order
            if isinstance(order, ResetOrder):
                self._recovery.note_resets(order)
            elif isinstance(order, SetAttrOrder):
                self._recovery.expect_attributes(order)
            # Posted before it is sent: a long message needs a reader at the other end.
            self._mailroom.post(0, len(self._bounds), ORDER)
            for worker, payload in enumerate(payloads):
                self._workers.tell(worker, payload)

    def unfinished(self) -> list[int]:
        """Returns the workers that still have something to do."""
        return [worker for worker in range(len(self._bounds)) if not self._mailroom.is_finished(worker)]

    def await_answers(self, deadline: Deadline) -> list[bytes | None] | None:
        """Waits for what the workers say, and returns it in order; None if nobody says anything."""
        self._watch.deliver(self.unfinished, deadline)
        self._watch.wait(self._mailroom.wait_done, self.unfinished, deadline)
        if not self._excuses and self._mailroom.is_silent(ALL_IN_BLOCK):
            return None
        return self._read_answers(deadline)

    def _read_answers(self, deadline: Deadline) -> list[bytes | None]:
        turn = self._mailroom.turns()
        if self._inbox[0] != turn:
            self._inbox = turn, []
        payloads = self._inbox[1]
        while len(payloads) < len(self._bounds):  # goes on where an interruption stopped it
            worker = len(payloads)
            speaks = worker not in self._excuses and self._mailroom.status(worker) == REPORT_FOLLOWS
            if not speaks:
                payloads.append(None)
                continue
            self._watch.await_message(worker, deadline)
            with signals_blocked():  # or an interruption would lose what was taken
                payloads.append(self._workers.pop_message(worker))
        return payloads

    def end(self, payloads: list[bytes | None] | None) -> Sequence[Report | None]:
        """Ends a turn with what ``await_answers`` returned; returns one report (or None) per worker."""
        self._note_end()
        reports = self._silence if payloads is None else self._unpacked(payloads)
        if isinstance(self.order, SetAttrOrder):
            self._recovery.note_attributes(self.order, reports)
        return reports

    def _unpacked(self, payloads: list[bytes | None]) -> list[Report | None]:
        excuses, self._excuses = self._excuses, {}
        # Unpickled only when all have been read: one that cannot be must not leave others in the pipe.
        reports = [load_report(payload, first) for payload, (first, _) in zip(payloads, self._bounds, strict=True)]
        return [excuses.get(worker, report) for worker, report in enumerate(reports)]

    def _note_end(self) -> None:
        turns = self._mailroom.turns()
        if turns == self.collected:
            return
        try:
            self._recovery.note_turn(self.order)
            self.collected = turns
        except BaseException:  # an interruption: what was noted by halves, or will be once more, is worth nothing
            self._recovery.forget_all()
            raise

    def give_again(self, lost: LostWorker) -> None:
        """Gives the worker that took another's place its part of the turn."""
        worker, order = lost.worker, self.order
        if self._inbox[0] == self._mailroom.turns() and len(self._inbox[1]) > worker:
            return  # it had answered before it died
        excuse = self._recovery.excuse(lost, order)
        if excuse is not None:
            self.excuse(worker, excuse)
        elif isinstance(order, StepOrder) and not order.loose_actions:
            self._mailroom.post_again(worker, STEP)
        else:
            with signals_blocked():
                self._mailroom.post_again(worker, ORDER)
                self._workers.tell(worker, dumps_by_value(order.part(*self._bounds[worker])))

    def excuse(self, worker: int, answer: Report) -> None:
        """Takes this for a worker's answer, which will not come."""
        self._excuses[worker] = answer

    def forget_excuses(self) -> None:
        """Forgets what would be taken for answers."""
        self._excuses.clear()


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

    def resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """Returns a function that has environments reset, each as soon as its worker comes to it."""
        parcels = [dumps_by_value((order.seeds[row], order.options[row])) for row in rows.tolist()]

        def send() -> None:
            self._reset_parcels.update(zip(rows.tolist(), parcels, strict=True))
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
