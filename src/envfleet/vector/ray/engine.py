"""The caller's side of the actors: passes turns and tickets, and goes on, if it may, when an actor is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import final
from weakref import WeakMethod

import numpy as np

from envfleet import _core
from envfleet.redraw import redrawn, write_first_parameters
from envfleet.vector.block import FleetLayout, aligned_zeros
from envfleet.vector.engine import (
    PLAIN_STEP,
    Order,
    QuickCalls,
    Report,
    ResetOrder,
    Rows,
    SetAttrOrder,
    StepOrder,
    load_report,
)
from envfleet.vector.failures import warn_of_close
from envfleet.vector.fleet_block import FleetBlock
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.ray.actor import Results, RowBytes
from envfleet.vector.ray.actors import INTERVAL, Actors, Call, Ref, Startup, Watch
from envfleet.vector.recovery import LostWorker, Recovery, ShardTask
from envfleet.vector.runtime import NEVER, Deadline, deadline_after, signals_blocked
from envfleet.vector.spaces import EnvFace, FleetSpaces

_LAST_WORDS = 5.0
"""Seconds to wait for Ray to say which calls a dead actor leaves unanswered."""


@final
class RayEngine:
    """Ray actors, one per task. The rows of the block travel as bytes."""

    block: FleetBlock
    quick: QuickCalls

    def __init__(self, actors: Actors, tasks: Sequence[ShardTask], exclusive: _core.Exclusive) -> None:
        self.exclusive, self._check_wanted = exclusive, exclusive.check
        self._actors, self._recovery = actors, Recovery(tasks, actors.where, actors.end_one)
        self._tasks, self._bounds, policy = tasks, self._recovery.bounds, self._recovery.policy
        sizes = [last - first for first, last in self._bounds]
        self._startup = Startup(actors, sizes, policy.start_timeout, exclusive.check)
        self._watch = Watch(actors, policy.step_timeout)
        self._order: Order = StepOrder()
        # Calls without an answer, or with one that nobody took, in the order they were made.
        self._turn: dict[Ref, Call] = {}
        self._tickets: dict[Ref, Call] = {}
        self._excuses: dict[int, Report] = {}
        self._backlog: deque[tuple[int, Report | None]] = deque()

    # -- starting -------------------------------------------------------------------------------------

    def make_envs(self) -> list[EnvFace]:
        """Starts all actors, waits until all environments are made, and returns what they show, in order."""
        # Pickled before any is started: what cannot be pickled must change nothing.
        payloads = [dumps_by_value(task) for task in self._tasks]
        for worker, payload in enumerate(payloads):
            self._actors.start(worker, payload, self._bounds[worker][0])
        try:
            return self._startup.envs_of(range(len(self._actors)))
        except LostWorker as lost:
            was_making = lost.worker in self._actors.places
            note = "It was still starting: see whether SyncVectorEnv can make the environments." * was_making
            raise self._recovery.error(lost, note or "No environments were made.") from None

    def settle(self, spaces: FleetSpaces) -> None:
        """Lays out the block, and has every actor lay out one for its rows."""
        policy = self._tasks[0].policy
        layout = FleetLayout(spaces, num_parameters=len(redrawn(self._tasks[0].env_fns)), refuse_nan=policy.check_nan)
        self._layout, self._memory = layout, aligned_zeros(layout.size)
        self.block = FleetBlock(layout, self._memory, self._bounds, keeps_last=policy.restart)
        # By a weak reference, or both would keep each other alive, and the actors of a fleet that nobody holds.
        step_all = WeakMethod(self._step_all)
        self.quick = self.block.quick_calls(self.exclusive, lambda: step_all()())  # type: ignore[misc]
        env_fns = [env_fn for task in self._tasks for env_fn in task.env_fns]
        write_first_parameters(env_fns, self.block.parameter_cells())
        rows = [layout.rows(self._memory, first, last) for first, last in self._bounds]
        self._results = [Results(each) for each in rows]
        self._actions = [RowBytes(each.action_arrays) for each in rows]
        self._restarts = [each.restarts for each in rows]
        self._row_wires: dict[int, tuple[RowBytes, Results]] = {}
        self._spaces = dumps_by_value(spaces)
        try:
            self._settle(range(len(self._actors)))
        except LostWorker as lost:
            raise self._recovery.error(lost) from None

    def _settle(self, workers: Sequence[int]) -> None:
        refs = [
            self._actors.call(worker, "settle", self._spaces, self._restarts[worker].tolist()) for worker in workers
        ]
        self._actors.answers(refs, workers)

    # -- turns: all environments of all actors --------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a turn was begun and not yet collected."""
        return bool(self._turn)

    def begin(self, order: Order) -> None:
        """Sets all actors to work."""
        self._actors.check_usable()
        actions = [actions.pack() for actions in self._actions]
        if isinstance(order, StepOrder) and not order.loose_actions:
            calls = [self._call_all(worker, "step", mine) for worker, mine in enumerate(actions)]
        else:
            # All pickled before anything is sent: arguments that cannot be pickled must change nothing.
            parts = [dumps_by_value(order.part(first, last)) for first, last in self._bounds]
            pairs = zip(parts, actions, strict=True)
            calls = [self._call_all(worker, "execute", *pair) for worker, pair in enumerate(pairs)]
        with signals_blocked():  # what an actor was told must be known to have been told
            self._order = order
            if isinstance(order, ResetOrder):
                self._recovery.note_resets(order)
            for call in calls:
                self._send(call, self._turn)

    def _call_all(self, worker: int, method: str, *args: bytes) -> Call:
        return Call(worker, range(*self._bounds[worker]), method, args)

    def _send(self, call: Call, calls: dict[Ref, Call]) -> None:
        calls[self._actors.call(call.worker, call.method, *call.args)] = call

    def finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits for all actors; a TimeoutError loses nothing, their work can still be collected."""
        self._actors.check_usable()
        deadline = deadline_after(timeout)
        while True:
            try:
                refs = self._wait(self._turn, len(self._turn), deadline)
                workers = [self._turn[ref].worker for ref in refs]
                answers = dict(zip(workers, self._actors.answers(refs, workers), strict=True))
                break
            except LostWorker as lost:
                self._replace(lost)
        with signals_blocked():
            self._turn.clear()
            excuses, self._excuses = self._excuses, {}
            payloads = {worker: self._results[worker].unpack(answer) for worker, answer in answers.items()}
        by_worker = {worker: load_report(payload, self._bounds[worker][0]) for worker, payload in payloads.items()}
        reports = [{**excuses, **by_worker}[worker] for worker in range(len(self._actors))]
        if isinstance(self._order, SetAttrOrder):
            self._recovery.note_attributes(self._order, reports)
        self.block.absorb(self._order, reports)
        return reports

    def _step_all(self) -> Sequence[Report | None] | None:
        self.begin(PLAIN_STEP)
        reports = self.finish(None)
        return reports if any(reports) else None

    def _wait(self, calls: dict[Ref, Call], number: int, deadline: Deadline = NEVER) -> list[Ref]:
        """Returns the first ``number`` calls that were answered, or will never be."""
        if number == 0:
            return []
        while True:
            ready, rest = self._actors.wait(list(calls), number, deadline.slice(INTERVAL))
            if len(ready) == number:
                return ready
            self._check_wanted()
            # A dead actor must be told of however long the others take.
            self._actors.answers(ready, [calls[ref].worker for ref in ready])
            self._watch.look((ref, calls[ref]) for ref in rest)
            deadline.check(sorted({calls[ref].worker for ref in rest}))

    # -- tickets: single environments -----------------------------------------------------------------

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[object]]) -> Callable[[], None]:
        """What has environments stepped; ``loose_actions`` as in a StepOrder, one value per row."""
        self._actors.check_usable()
        parcels = [dumps_by_value([values[i] for values in loose_actions]) for i in range(len(rows))]
        pairs = zip(rows.tolist(), parcels, strict=True)
        calls = [self._call_one(row, "step_row", self._wires_of(row)[0].pack(), parcel) for row, parcel in pairs]
        return partial(self._send_tickets, calls)

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """What has environments reset, each as soon as its actor comes to it."""
        self._actors.check_usable()
        parcels = [(row, dumps_by_value((order.seeds[row], order.options[row]))) for row in rows.tolist()]
        calls = [self._call_one(row, "reset_row", parcel) for row, parcel in parcels]

        def note_and_send() -> None:
            self._recovery.note_resets(order)
            self._send_tickets(calls)

        return note_and_send

    def _call_one(self, row: int, method: str, *args: bytes) -> Call:
        worker = self._recovery.worker_of(row)
        assert worker is not None
        return Call(worker, range(row, row + 1), method, (row - self._bounds[worker][0], *args))

    def _send_tickets(self, calls: Sequence[Call]) -> None:
        with signals_blocked():
            for call in calls:
                self._send(call, self._tickets)

    def _wires_of(self, row: int) -> tuple[RowBytes, Results]:
        if row not in self._row_wires:
            rows = self._layout.rows(self._memory, row, row + 1)
            self._row_wires[row] = RowBytes(rows.action_arrays), Results(rows)
        return self._row_wires[row]

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, list[Report | None]]:
        """The first ``count`` results, with one report (or None) each; a TimeoutError loses nothing."""
        self._actors.check_usable()
        deadline = deadline_after(timeout)
        while len(self._backlog) < count:
            try:
                if self._watch.is_due():
                    _, rest = self._actors.wait(list(self._tickets), len(self._tickets), 0)
                    self._watch.look((ref, self._tickets[ref]) for ref in rest)
                for ref in self._wait(self._tickets, count - len(self._backlog), deadline):
                    self._take_over(ref)
            except LostWorker as lost:
                self._replace(lost)
        taken = [self._backlog.popleft() for _ in range(count)]
        rows, reports = np.array([row for row, _ in taken], np.intp), [report for _, report in taken]
        self.block.absorb_rows(rows, reports)
        return rows, reports

    def _take_over(self, ref: Ref) -> None:
        call = self._tickets[ref]
        row = call.env_indices[0]
        (answer,) = self._actors.answers([ref], [call.worker])
        with signals_blocked():
            payload = self._wires_of(row)[1].unpack(answer)
            self._backlog.append((row, load_report(payload, row, "step")))
            del self._tickets[ref]

    def discard(self) -> None:
        """Waits for all work under way and forgets what comes of it."""
        if self.is_busy:
            self.finish(None)
        if self._tickets:
            self.receive(len(self._backlog) + len(self._tickets), None)
        self._backlog.clear()

    # -- lost actors ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Starts actors in place of those that are gone, and forgets all work under way."""
        self._actors.check_usable()
        self._turn.clear()
        self._tickets.clear()
        self._backlog.clear()
        self._excuses.clear()
        while True:
            self._recovery.revive(self._start_once)
            pings = {self._actors.call(worker, "ping"): worker for worker in range(len(self._actors))}
            calls = {ref: self._call_all(worker, "ping") for ref, worker in pings.items()}
            try:
                # Answered when they have done all they were told before.
                refs = self._wait(calls, len(calls))
                self._actors.answers(refs, [pings[ref] for ref in refs])
                return
            except LostWorker as lost:
                self._recovery.note_lost(lost)

    def _replace(self, lost: LostWorker) -> None:
        """Starts an actor in place of a lost one, if it may be replaced, and tells it what the lost one was told."""
        self._recovery.permit(lost)
        orphans = {ref: call for ref, call in {**self._turn, **self._tickets}.items() if call.worker == lost.worker}
        if orphans:
            self._actors.wait(list(orphans), len(orphans), _LAST_WORDS)
        orphans = {ref: call for ref, call in orphans.items() if not self._actors.has_answered(ref)}
        self._recovery.replace(lost, self._start_once)
        with signals_blocked():
            for ref, call in orphans.items():
                self._tell_again(ref, call, lost)

    def _tell_again(self, ref: Ref, call: Call, lost: LostWorker) -> None:
        """Gives the actor that took another's place one call that was lost."""
        if ref in self._tickets:
            del self._tickets[ref]
            self._send(call, self._tickets)
            return
        del self._turn[ref]
        excuse = self._recovery.excuse(lost, self._order)
        if excuse is not None:
            self._excuses[call.worker] = excuse
        else:
            self._send(call, self._turn)

    def _start_once(self, worker: int, task: ShardTask) -> None:
        """Starts an actor in place of one that was ended, and returns when it can work."""
        self._actors.start(worker, dumps_by_value(task), self._bounds[worker][0])
        self._startup.envs_of([worker])
        self._settle([worker])

    def worker_of(self, env_index: int) -> int | None:
        """Returns the actor that an environment runs in."""
        return self._recovery.worker_of(env_index)

    # -- ending ---------------------------------------------------------------------------------------

    def close(self, timeout: float, terminate: bool) -> None:
        """Closes all environments and ends all actors within about ``timeout`` seconds."""
        warn_of_close(self._actors.end(timeout, terminate))

    def interrupt(self) -> None:
        """Ends the actors and nothing else, from another thread than the one that uses them."""
        for worker in range(len(self._actors)):
            self._actors.end_one(worker)
