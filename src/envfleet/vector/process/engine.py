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
from envfleet.vector.block import Activity, FleetLayout
from envfleet.vector.engine import (
    PLAIN_STEP,
    NoQuickCalls,
    Order,
    QuickCalls,
    Report,
    ResetOrder,
    Rows,
)
from envfleet.vector.failures import Failure, as_error, warn_of_close
from envfleet.vector.fleet_block import FleetBlock
from envfleet.vector.fused_env import AnyEnv, build_envs
from envfleet.vector.pages import keep_apart
from envfleet.vector.process.shared_memory import create_block
from envfleet.vector.process.watch import Startup, Watch
from envfleet.vector.process.work import Tickets, Turns
from envfleet.vector.process.worker import (
    ALL_IN_BLOCK,
    CLOSE,
    STEP,
    WorkerSetup,
    worker_patience,
)
from envfleet.vector.process.workers import Workers
from envfleet.vector.recovery import LostWorker, Recovery, ShardTask
from envfleet.vector.replay import Replays
from envfleet.vector.runtime import deadline_after, signals_blocked, usable_cores
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import EnvFace, FleetSpaces

T = TypeVar("T")


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
        self._descriptor: int | None = None
        self._is_settled = False
        self._local_envs: list[AnyEnv] = []
        self._local_shard: Shard | None = None
        self._local_order: Order | None = None
        self._local_reports: list[Report | None] = []
        self._workers = Workers(context, tasks, daemon)
        self._recovery = Recovery(tasks, self._workers.where, self._workers.end_one)
        self._bounds, self._policy = self._recovery.bounds, self._all_tasks[0].policy
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
            theirs = self._startup.envs_of(range(len(self._workers)))
        except LostWorker as lost:
            note = "It was still making its environments: try whether SyncVectorEnv, or a single one, can be made."
            raise self._recovery.error(lost, note) from None
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
        self._turns = Turns(self._workers, self._mailroom, self._watch, self._recovery)
        self._tickets = Tickets(self._workers, self._mailroom, self._watch, self._recovery)
        self._is_settled = True
        self._hand_out(self._mailroom, self._descriptor, spaces, num_pages)
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
        if layout.is_repeatable and (last := self.block.hand_over_last()) is not None:
            self._recovery.replays = Replays(layout.rows(memory, 0, layout.num_envs), last)

    def _hand_out(self, mailroom: _core.Mailroom, descriptor: int, spaces: FleetSpaces, num_pages: int) -> None:
        patience = worker_patience(len(self._workers), usable_cores())
        for worker, (first, last) in enumerate(self._bounds):
            mailroom.assign(worker, first, last)
        try:
            setup = WorkerSetup(spaces, len(self._workers), patience, num_pages)
            self._startup.hand_out(setup, mailroom, descriptor)
        except LostWorker as lost:
            raise self._recovery.error(lost) from None

    # -- turns: all environments of all workers -------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a turn was begun and not yet collected."""
        return self._turns.is_under_way

    def begin(self, order: Order) -> None:
        """Sets all workers to work."""
        self._check_ours()
        if self._bounds:
            self._turns.begin(order)
        if not self._workers.all_sent:
            self._see_through(partial(self._watch.deliver, self._turns.unfinished))
        self._turns.order = self._local_order = order

    def finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits for all workers; a TimeoutError loses nothing, their work can still be collected."""
        self._check_ours()
        self._do_own_share()
        reports = [*self._local_reports, *self._finish_workers(timeout)]
        self.block.absorb(self._turns.order, reports)
        return reports

    def _do_own_share(self) -> None:
        """What the caller's own environments have to do, unless that was done before an earlier wait ended."""
        order, self._local_order = self._local_order, None
        if order is not None and self._local_shard is not None:
            self._local_reports = [self._local_shard.execute(order.part(0, len(self._local_envs)))]

    def _finish_workers(self, timeout: float | None) -> Sequence[Report | None]:
        payloads = self._see_through(partial(self._turns.await_answers, deadline_after(timeout)))
        return self._turns.end(payloads)

    def _step_all(self) -> Sequence[Report | None] | None:
        """A whole step that goes well in few calls; whatever does not is left to ``finish``."""
        self._check_ours()
        turns, mailroom, report = self._turns, self._mailroom, None
        if self._bounds:
            turns.order = PLAIN_STEP
            mailroom.post(0, len(self._bounds), STEP)
        if self._local_shard is not None:
            report = self._local_shard.step()
            self._local_reports = [report]
        try:
            self._watch.wait(mailroom.wait_done, turns.unfinished)
            if report is None and mailroom.is_silent(ALL_IN_BLOCK):
                turns.collected = mailroom.turns()
                return None
        except LostWorker as lost:
            self._replace(lost)
        return self.finish(None)

    def _see_through(self, wait: Callable[[], T]) -> T:
        """Waits; whoever is lost meanwhile is replaced, if it may be."""
        while True:
            try:
                return wait()
            except LostWorker as lost:
                self._replace(lost)

    # -- tickets: single environments -----------------------------------------------------------------

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[object]]) -> Callable[[], None]:
        """What has environments stepped; ``loose_actions`` as in a StepOrder, one value per row."""
        self._check_may_send()
        send = self._tickets.steps(rows, loose_actions)
        return partial(self._send_parcels, send) if loose_actions else send

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """What has environments reset, each as soon as its worker comes to it."""
        self._check_may_send()
        send = self._tickets.resets(rows, order)

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
                self._turns.excuse(worker, Report())
        self._recovery.revive(self._startup.start_in_place)
        self.discard()
        self._turns.forget_excuses()

    def _replace(self, lost: LostWorker) -> None:
        """Starts a worker in place of a lost one, if it may be replaced, and gives it the work that was lost."""
        worker = lost.worker
        self._recovery.permit(lost)
        self._tickets.collect()  # what it published before it died is as good as ever
        tickets = self._tickets.lost_by(worker)
        at_work = range(*self._bounds[worker]) if self.is_busy else [row for row, _ in tickets]
        self._forget_culprit(worker, at_work)
        self._recovery.replace(lost, self._startup.start_in_place)
        self._tickets.send_again(tickets)
        if self.is_busy:
            self._turns.give_again(lost)

    def _forget_culprit(self, worker: int, at_work: Container[int]) -> None:
        """Forgets the replay of the environment that a lost worker was at: it may have been the reason.

        Only that of one which had something to do: between two environments the block already names the next.
        """
        is_rebuilding = self._watch.activity_of(worker) == Activity.REBUILDING
        if self._watch.is_at_work(worker) and (is_rebuilding or self._watch.env_of(worker) in at_work):
            self._recovery.forget_environment(self._watch.env_of(worker))

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
        if self._is_settled and self._workers.is_ours:
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
        self._startup.dismiss()
        if not self._is_settled:
            return
        unfinished = self._turns.unfinished
        while any(self._workers.is_alive(worker) for worker in unfinished()) and time.monotonic() < deadline:
            self._workers.deliver(range(len(self._workers)), 0.0)  # what an interruption left
            self._mailroom.wait_done(0.01, 0.0, 0.0)
        for worker in set(range(len(self._workers))) - set(unfinished()):
            if self._workers.is_alive(worker):
                self._mailroom.post(worker, worker + 1, CLOSE)
