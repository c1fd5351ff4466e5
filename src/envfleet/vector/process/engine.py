"""The caller's side of the workers: passes turns and tickets, and goes on, if it may, when a worker is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import TypeVar, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.errors import FleetError
from envfleet.redraw import redrawn, write_first_parameters
from envfleet.vector.block import Activity, FleetBlock, FleetLayout
from envfleet.vector.engine import (
    NoQuickCalls,
    Order,
    QuickCalls,
    Report,
    ResetOrder,
    Rows,
    SetAttrOrder,
    StepOrder,
    is_turn,
    load_report,
)
from envfleet.vector.failures import (
    Failure,
    LostWorker,
    as_error,
    unless_failed,
    warn_of_close,
)
from envfleet.vector.fused_env import AnyEnv, build_envs
from envfleet.vector.pages import keep_apart
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.shared_memory import create_block
from envfleet.vector.process.tickets import Tickets
from envfleet.vector.process.watch import Startup, Watch
from envfleet.vector.process.worker import (
    ALL_IN_BLOCK,
    CLOSE,
    ORDER,
    REPORT_FOLLOWS,
    STEP,
    WorkerSetup,
    worker_patience,
)
from envfleet.vector.process.workers import Workers
from envfleet.vector.recovery import Recovery, ShardTask
from envfleet.vector.replay import Replays
from envfleet.vector.runtime import Deadline, deadline_after, signals_blocked, usable_cores
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import EnvFace, FleetSpaces

T = TypeVar("T")

_PLAIN_STEP = StepOrder()


@final
class ProcessEngine:
    """Worker processes, one task each; the caller's own process takes the first share, if it is to work too.

    Holds no reference to the vector environment, so that it can outlive it in a finalizer.
    """

    block: FleetBlock
    quick: QuickCalls
    rebuilt: npt.NDArray[np.uint32]

    def __init__(
        self,
        tasks: Sequence[ShardTask],
        context: str | None,
        exclusive: _core.Exclusive,
        *,
        daemon: bool,
        caller_works: bool,
    ) -> None:
        self.exclusive = exclusive
        self._all_tasks = tasks
        # Nobody else could take its place, so there is nothing to compare with.
        self._local_task = replace(tasks[0], notes_digests=False) if caller_works else None
        tasks = tasks[caller_works:]
        self._mailroom: _core.Mailroom | None = None
        self._descriptor: int | None = None
        self._order: Order = StepOrder()
        self._excuses: dict[int, Report] = {}
        self._collected_turns = 0
        self._inbox: tuple[int, list[bytes | None]] = (0, [])
        self._local_envs: list[AnyEnv] = []
        self._local_shard: Shard | None = None
        self._local_order: Order | None = None
        self._local_reports: list[Report | None] = []
        self._workers = Workers(context, tasks, daemon)
        self._without_block = set(range(len(tasks)))
        self._recovery = Recovery(tasks, self._workers.where, self._workers.end_one)
        self._bounds, self._policy = self._recovery.bounds, self._all_tasks[0].policy
        self._silence: Sequence[Report | None] = [None] * len(tasks)
        self._startup = Startup(self._workers, self._policy.start_timeout, exclusive.check)

    def end_with(self, owner: object) -> None:
        """Ends the workers when ``owner`` is gone, or the program ends."""
        # multiprocessing's own kind: it runs before multiprocessing waits for workers that are not daemons.
        self._finalizer = Finalize(owner, self._shut_down, args=(0.0, True), exitpriority=0)

    @property
    def processes(self) -> list[BaseProcess]:
        """The workers."""
        return self._workers.processes

    # -- starting -------------------------------------------------------------------------------------

    def make_envs(self) -> list[EnvFace]:
        """Waits until all environments are made and returns what they show, in order."""
        if self._local_task is not None:
            self._local_envs, failure = build_envs(self._local_task.env_fns, 0)
            if failure is not None:
                raise as_error(failure, worker=None)
        try:
            answers = self._startup.answers(range(len(self._workers)))
        except LostWorker as lost:
            note = "It was still making its environments: try whether SyncVectorEnv, or a single one, can be made."
            raise self._recovery.error(lost, note) from None
        theirs = [face for worker, answer in enumerate(answers) for face in unless_failed(answer, worker)]
        return [EnvFace.of(env) for env in self._local_envs] + theirs

    def settle(self, spaces: FleetSpaces, num_pages: int) -> None:
        """Lays out the block and gives it to every worker."""
        layout = FleetLayout(
            spaces,
            num_parameters=len(redrawn(self._all_tasks[0].env_fns)),
            num_pages=num_pages,
            control_bytes=_core.Mailroom.bytes(len(self._workers), spaces.num_envs),
            refuse_nan=self._policy.check_nan,
        )
        with signals_blocked():  # or an interruption would leave it open
            # The descriptor is kept, also for those that have to take another's place.
            memory, self._descriptor = create_block(layout.size)
        self._make_block(layout, memory)
        arrays = layout.arrays(memory)
        # Workers do so too, but nobody waits for that.
        write_first_parameters([env_fn for task in self._all_tasks for env_fn in task.env_fns], arrays["parameters"])
        self.rebuilt = arrays["rebuilt"]
        self._mailroom = _core.Mailroom(arrays["control"], len(self._workers), spaces.num_envs, create=True)
        self._watch = Watch(
            self._workers, self._mailroom, arrays["progress"], self._bounds, self._policy, self.exclusive.check
        )
        self._tickets = Tickets(self._workers, self._mailroom, self._watch, self._recovery)
        self._hand_out(spaces, num_pages)
        if self._local_task is not None:
            rows = layout.rows(memory, 0, len(self._local_envs))
            local = self._local_task, self._local_envs, rows, layout.observations, layout.actions
            self._local_shard = Shard(*local, spaces.autoreset_mode)
        self.quick = self.block.quick_calls(self.exclusive, self._step_all)

    def _make_block(self, layout: FleetLayout, memory: npt.NDArray[np.uint8]) -> None:
        bounds = [(task.first_index, task.first_index + len(task.env_fns)) for task in self._all_tasks]
        self.block = FleetBlock(layout, memory, bounds, keeps_last=self._policy.restart)
        if self.block.pages is not None:
            keep_apart(self.block.pages)
        if self.block.last is not None and layout.is_repeatable:
            self._recovery.replays = Replays(layout.rows(memory, 0, layout.num_envs), self.block.last)

    def _hand_out(self, spaces: FleetSpaces, num_pages: int) -> None:
        assert self._mailroom is not None
        patience = worker_patience(len(self._workers), usable_cores())
        self._setup = dumps_by_value(WorkerSetup(spaces, len(self._workers), patience, num_pages))
        for worker, (first, last) in enumerate(self._bounds):
            self._mailroom.assign(worker, first, last)
            try:
                self._settle(worker)
            except LostWorker as lost:
                raise self._recovery.error(lost) from None

    def _settle(self, worker: int) -> None:
        with signals_blocked():
            self._workers.tell(worker, self._setup, self._descriptor)
            self._without_block.discard(worker)
        self._startup.settle(worker)

    # -- turns: all environments of all workers -------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a turn was begun and not yet collected."""
        return self._mailroom is not None and self._mailroom.turns() != self._collected_turns

    def begin(self, order: Order) -> None:
        """Sets all workers to work."""
        self._check_ours()
        if self._bounds:
            self._begin_workers(order)
        self._order = self._local_order = order

    def _begin_workers(self, order: Order) -> None:
        assert self._mailroom is not None
        if type(order) is StepOrder and not order.loose_actions:
            self._order = order
            self._mailroom.post(0, len(self._silence), STEP)
            return
        self._watch.warn_of_copies()
        # Pickled before anything is posted: arguments that cannot be pickled must change nothing.
        payloads = [dumps_by_value(order.part(first, last)) for first, last in self._bounds]
        with signals_blocked():  # a worker that was told of an order must get it
            self._order = order
            if isinstance(order, ResetOrder):
                self._recovery.note_resets(order)
            elif isinstance(order, SetAttrOrder):
                self._recovery.expect_attributes(order)
            # Posted before it is sent: a long message needs a reader at the other end.
            self._mailroom.post(0, len(self._silence), ORDER)
            for worker, payload in enumerate(payloads):
                self._workers.tell(worker, payload)
        self._see_through(partial(self._watch.deliver, self._unfinished))

    def finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits for all workers; a TimeoutError loses nothing, their work can still be collected."""
        self._check_ours()
        self._do_own_share()
        reports = [*self._local_reports, *self._finish_workers(timeout)]
        self.block.absorb(reports)
        if self.block.last is not None and self._recovery.replays is None and is_turn(self._order):
            self.block.last.keep()
        return reports

    def _do_own_share(self) -> None:
        """What the caller's own environments have to do, unless that was done before an earlier wait ended."""
        order, self._local_order = self._local_order, None
        if order is not None and self._local_shard is not None:
            self._local_reports = [self._local_shard.execute(order.part(0, len(self._local_envs)))]

    def _finish_workers(self, timeout: float | None) -> Sequence[Report | None]:
        payloads = self._see_through(partial(self._await_answers, deadline_after(timeout)))
        self._end_turn()
        if payloads is None:
            return self._noted(self._silence)
        excuses, self._excuses = self._excuses, {}
        # Unpickled only when all have been read: one that cannot be must not leave others in the pipe.
        reports = [load_report(payload, first) for payload, (first, _) in zip(payloads, self._bounds, strict=True)]
        return self._noted([excuses.get(worker, report) for worker, report in enumerate(reports)])

    def _noted(self, reports: Sequence[Report | None]) -> Sequence[Report | None]:
        if isinstance(self._order, SetAttrOrder):
            self._recovery.note_attributes(self._order, reports)
        return reports

    def _step_all(self) -> Sequence[Report | None] | None:
        """A whole step that goes well in few calls; whatever does not is left to ``finish``."""
        assert self._mailroom is not None
        self._check_ours()
        mailroom, report = self._mailroom, None
        if self._bounds:
            self._order = _PLAIN_STEP
            mailroom.post(0, len(self._bounds), STEP)
        if self._local_shard is not None:
            report = self._local_shard.step()
            self._local_reports = [report]
        try:
            self._watch.wait(mailroom.wait_done, self._unfinished)
            if report is None and mailroom.is_silent(ALL_IN_BLOCK):
                self._collected_turns = mailroom.turns()
                return None
        except LostWorker as lost:
            self._replace(lost)
            self._go_on_with_turn(lost)
        return self.finish(None)

    def _see_through(self, wait: Callable[[], T]) -> T:
        """Waits; whoever is lost meanwhile is replaced, if it may be, and the new one is given its part of the turn."""
        while True:
            try:
                return wait()
            except LostWorker as lost:
                self._replace(lost)
                self._go_on_with_turn(lost)

    def _await_answers(self, deadline: Deadline) -> list[bytes | None] | None:
        """What the workers say, in order; None if nobody says anything."""
        assert self._mailroom is not None
        self._watch.deliver(self._unfinished, deadline)
        self._watch.wait(self._mailroom.wait_done, self._unfinished, deadline)
        if not self._excuses and self._mailroom.is_silent(ALL_IN_BLOCK):
            return None
        return self._read_answers(deadline)

    def _end_turn(self) -> None:
        assert self._mailroom is not None
        turns = self._mailroom.turns()
        if turns == self._collected_turns:
            return
        try:
            self._recovery.note_turn(self._order)
            self._collected_turns = turns
        except BaseException:  # an interruption: what was noted by halves, or will be once more, is worth nothing
            self._recovery.forget_all()
            raise

    def _read_answers(self, deadline: Deadline) -> list[bytes | None]:
        assert self._mailroom is not None
        turn = self._mailroom.turns()
        if self._inbox[0] != turn:
            self._inbox = turn, []
        payloads = self._inbox[1]
        while len(payloads) < len(self._workers):  # goes on where an interruption stopped it
            worker = len(payloads)
            speaks = worker not in self._excuses and self._mailroom.status(worker) == REPORT_FOLLOWS
            if not speaks:
                payloads.append(None)
                continue
            self._watch.await_message(worker, deadline)
            with signals_blocked():  # or an interruption would lose what was taken
                payloads.append(self._workers.pop_message(worker))
        return payloads

    def _unfinished(self) -> list[int]:
        assert self._mailroom is not None
        return [worker for worker in range(len(self._workers)) if not self._mailroom.is_finished(worker)]

    # -- tickets: single environments -----------------------------------------------------------------

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[object]]) -> Callable[[], None]:
        """What has environments stepped; ``loose_actions`` as in a StepOrder, one value a row."""
        self._check_may_send()
        send = self._tickets.steps(rows, loose_actions)
        return partial(self._send_parcels, send) if loose_actions else send

    def prepare_resets(self, order: ResetOrder) -> Callable[[], None]:
        """What has all environments reset, each as soon as its worker comes to it."""
        self._check_may_send()
        send = self._tickets.resets(order)

        def note_and_send() -> None:
            self._recovery.note_resets(order)
            self._send_parcels(send)

        return note_and_send

    def _check_may_send(self) -> None:
        self._check_ours()
        if self._local_task is not None:
            raise ValueError("send() and async_reset() need all environments in worker processes: caller_works=False.")

    def _send_parcels(self, send: Callable[[], None]) -> None:
        """Sends tickets with something beside the block; whoever is lost meanwhile is replaced, if it may be."""
        send()
        while not self._workers.all_sent:
            try:
                self._watch.deliver(self._tickets.still_out)
            except LostWorker as lost:
                self._replace(lost)

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, list[Report | None]]:
        """The oldest ``count`` results, with one report (or None) each; a TimeoutError loses nothing."""
        self._check_ours()
        deadline = deadline_after(timeout)
        while True:
            try:
                results = self._tickets.take(count, deadline)
                if results is not None:
                    break
                self._tickets.wait_for(count, deadline)
            except LostWorker as lost:
                self._replace(lost)
        self.block.absorb_rows(*results)
        if self.block.last is not None and self._recovery.replays is None:
            self.block.last.keep(results[0])
        return results

    def discard(self) -> None:
        """Waits for all work under way and forgets what comes of it."""
        self._check_ours()
        self._local_order = None
        if self.is_busy:
            self._finish_workers(None)
        self._tickets.collect()
        self._tickets.forget()
        while self._tickets.workers_out():
            self.receive(1, None)
            self._tickets.forget()
        self._tickets.forget_resets()

    # -- lost workers ---------------------------------------------------------------------------------

    def recover(self) -> None:
        """Starts workers in place of those that are gone, and forgets all work under way."""
        self._check_ours()
        self._tickets.collect()
        self._tickets.forget()
        for worker in range(len(self._workers)):
            if not self._workers.is_alive(worker):
                self._recovery.note_lost(self._workers.lost(worker))
                self._excuses[worker] = Report()
        self._recovery.revive(self._start_once)
        self.discard()
        self._excuses.clear()

    def _replace(self, lost: LostWorker) -> None:
        """Starts a worker in place of a lost one, if it may be replaced, and gives it the tickets that were lost."""
        worker = lost.worker
        self._recovery.permit(lost)
        self._tickets.collect()  # what it published before it died is as good as ever
        tickets = self._tickets.lost_by(worker)
        at_work = range(*self._bounds[worker]) if self.is_busy else [row for row, _ in tickets]
        self._forget_culprit(worker, at_work)
        self._recovery.replace(lost, self._start_once)
        self._tickets.send_again(tickets)

    def _forget_culprit(self, worker: int, at_work: Container[int]) -> None:
        """Forgets the replay of the environment that a lost worker was at: it may have been the reason.

        Only that of one which had something to do: between two environments the block already names the next.
        """
        is_rebuilding = self._watch.activity_of(worker) == Activity.REBUILDING
        if self._watch.is_at_work(worker) and (is_rebuilding or self._watch.env_of(worker) in at_work):
            self._recovery.forget_environment(self._watch.env_of(worker))

    def _start_once(self, worker: int, task: ShardTask) -> None:
        """Starts a worker in place of one that has ended, and returns when it can work."""
        assert self._mailroom is not None
        self._without_block.add(worker)
        self._workers.replace(worker, task)
        self._mailroom.clear(worker)
        unless_failed(self._startup.answers([worker])[0], worker)
        self._settle(worker)

    def _go_on_with_turn(self, lost: LostWorker) -> None:
        """Gives the worker that took another's place its part of the turn."""
        assert self._mailroom is not None
        worker, order = lost.worker, self._order
        if self._inbox[0] == self._mailroom.turns() and len(self._inbox[1]) > worker:
            return  # it had answered before it died
        excuse = self._recovery.excuse(lost, order)
        if excuse is not None:
            self._excuses[worker] = excuse
        elif isinstance(order, StepOrder) and not order.loose_actions:
            self._mailroom.post_again(worker, STEP)
        else:
            with signals_blocked():
                self._mailroom.post_again(worker, ORDER)
                self._workers.tell(worker, dumps_by_value(order.part(*self._bounds[worker])))

    # -- who is who -----------------------------------------------------------------------------------

    def worker_of(self, env_index: int) -> int | None:
        """Returns the worker that an environment runs in; None for one that runs in the caller's process."""
        return self._recovery.worker_of(env_index)

    def _check_ours(self) -> None:
        if not self._workers.is_ours:
            raise FleetError(
                "This fleet was made by another process, of which this one is a forked copy: its workers answer only "
                "to that one. Make a new fleet here."
            )

    # -- ending ---------------------------------------------------------------------------------------

    def close(self, timeout: float, terminate: bool) -> None:
        """Closes all environments and ends all workers within about ``timeout`` seconds."""
        failures = self._local_shard.close() if self._local_shard is not None else []
        failures += self.end_workers(timeout, terminate)
        warn_of_close(failures)
        if self._mailroom is not None and self._workers.is_ours:
            self._watch.warn_of_copies()

    def end_workers(self, timeout: float, terminate: bool) -> list[Failure]:
        """Ends all workers; returns what environments raised in close()."""
        failures = self._shut_down(timeout, terminate)
        self._finalizer.cancel()  # not before: a second Ctrl-C leaves it to the finalizer
        return failures

    def _shut_down(self, timeout: float, terminate: bool) -> list[Failure]:
        self.quick = NoQuickCalls()  # the others refer to this engine: both would keep each other alive
        if not self._workers.is_ours:
            return []
        failures: list[Failure] = []
        try:
            if not terminate:
                deadline = time.monotonic() + timeout
                self._ask_to_close(deadline)
                failures = self._workers.drain_until_ended(deadline)
        finally:  # a Ctrl-C while they are asked: then they are not asked any longer
            self._workers.kill()
            with signals_blocked():  # or an interruption might have it closed twice, when it may be another's
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None
        return failures

    def interrupt(self) -> None:
        """Ends the processes and nothing else, from another thread than the one that uses them."""
        for process in self._workers.processes if self._workers.is_ours else ():
            process.kill()

    def _ask_to_close(self, deadline: float) -> None:
        self._workers.dismiss(self._without_block)
        mailroom = self._mailroom
        if mailroom is None:
            return
        while any(self._workers.is_alive(worker) for worker in self._unfinished()) and time.monotonic() < deadline:
            self._workers.deliver(range(len(self._workers)), 0.0)  # what an interruption left
            mailroom.wait_done(0.01, 0.0, 0.0)
        for worker in set(range(len(self._workers))) - set(self._unfinished()):
            if self._workers.is_alive(worker):
                mailroom.post(worker, worker + 1, CLOSE)
