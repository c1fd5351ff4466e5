"""How a fleet goes on after a failure: who may be made again, how often, with which seeds and from which tasks.

A ``Shard`` restarts single environments with what stands first here; ``Recovery`` replaces whole workers.
"""

from __future__ import annotations

import dataclasses
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np

from envfleet.errors import WorkerDiedError, WorkerError, WorkerStuckError
from envfleet.redraw import redrawn
from envfleet.vector.engine import CallOrder, Order, Report, ResetOrder, SetAttrOrder, StepOrder
from envfleet.vector.failures import Failure, FailurePolicy, as_error, in_words
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.replay import Replay, Replays
from envfleet.vector.spaces import EnvFace


@dataclass(frozen=True)
class ShardTask:
    """What a shard is to run.

    Attributes:
        env_fns: One function per environment, which makes it.
        first_index: The number of the shard's first environment in the fleet.
        policy: What is done about environments that fail.
        seeds: The seeds that the environments were last reset with, if this shard takes the place of a lost one.
        cause: Why the other shard was lost; empty if this shard takes nobody's place.
        replays: By row, what environments of the lost shard are rebuilt from; all others are restarted.
        notes_digests: Whether the shard notes what its environments show, so that they can be rebuilt elsewhere.
        attributes: By row, what ``set_attr`` has set on environments of the lost shard, by name.
    """

    env_fns: Sequence[EnvFn]
    first_index: int
    policy: FailurePolicy
    seeds: Sequence[int | None] = ()
    cause: str = ""
    replays: Mapping[int, Replay] = field(default_factory=dict)
    notes_digests: bool = False
    attributes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


Answer: TypeAlias = "list[EnvFace] | Failure"
"""What a worker says that was started with a task: what its environments show, or why there are none."""


def all_made(answers: Mapping[int, Answer]) -> list[EnvFace]:
    """Returns what the environments of some workers show, in order, given what each worker says.

    Raises the error of the first environment that could not be made.
    """
    found: list[EnvFace] = []
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, Failure):
            raise as_error(answer, worker)
        found += answer
    return found


def restart_seed(seed: int | None, number: int) -> int | None:
    """Returns the seed of an environment that was made again for the ``number``-th time since ``reset(seed=seed)``.

    Both numbers determine it, and it differs from all before. Where no seed was given there is none here either.
    """
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])


@final
class RestartBudget:
    """Allows so many restarts in so many seconds: what is broken for good must not be made again for ever."""

    def __init__(self, policy: FailurePolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def spend(self, since: float = math.inf) -> bool:
        """Returns whether one more restart is allowed now, and counts it if so.

        Restarts after ``since`` count however long ago they are: attempts may take longer than the window.
        """
        oldest = min(time.monotonic() - self._policy.window, since)
        while self._times and self._times[0] < oldest:
            self._times.popleft()
        if self._policy.max_restarts is not None and len(self._times) >= self._policy.max_restarts:
            return False
        self._times.append(time.monotonic())
        return True

    @property
    def exhausted_text(self) -> str:
        """Says why no more restarts are allowed."""
        endless = self._policy.window == math.inf or not self._times
        seconds = 0.0 if endless else max(self._policy.window, math.ceil(time.monotonic() - self._times[0]))
        within = f" within {seconds:g} s" if seconds else ""
        return (
            f"It had been restarted {len(self._times)} time{'s' * (len(self._times) != 1)}{within}, which is all that "
            "max_restarts allows. "
            "Mend the environment, or allow more."
        )


@final
class LostWorker(Exception):  # noqa: N818  not an error to be shown: whoever catches it decides what it means
    """A worker is gone, or was ended because it was stuck.

    Whoever raises this has made sure that the worker has ended.

    Attributes:
        worker: The number of the worker.
        cause: What happened to the worker, as the rest of a sentence that begins with its name.
        is_stuck: Whether the worker was ended because it was stuck.
    """

    def __init__(self, worker: int, cause: str, *, is_stuck: bool = False) -> None:
        super().__init__(cause)
        self.worker, self.cause, self.is_stuck = worker, cause, is_stuck


_ADVICE = (
    'reset() starts it again, and on_failure="restart" does so by itself. If an environment crashes or hangs, find out '
    "why with SyncVectorEnv."
)
_NOT_ASKED_AGAIN = "It was started again, but not asked again: nobody knows how much of the call was done."

StartOnce: TypeAlias = Callable[[int, ShardTask], None]
"""Starts a worker, given its number and its task, and returns when it can work."""


@final
class Recovery:
    """What a fleet knows about its workers in case one is lost, and what it then does.

    1. Somebody who waits for a worker finds it gone and raises ``LostWorker``.
    2. ``permit`` decides whether another may take its place. If not, the user gets an error, and the next ``reset()``
       calls ``revive``.
    3. ``replace`` starts another with the task of the lost one. It rebuilds the environments that can be rebuilt.
    4. The engine gives the new worker the work that was lost. If that was a call, ``excuse`` answers instead.

    Args:
        tasks: The tasks of the workers, in order.
        where: Says where a worker runs, for messages.
        end_one: Ends a worker.

    Attributes:
        policy: What is done about workers that are lost.
        bounds: The environments ``(first, last + 1)`` of each worker.
        replays: What environments are rebuilt from; None if they cannot be rebuilt.
    """

    def __init__(self, tasks: Sequence[ShardTask], where: Callable[[int], str], end_one: Callable[[int], None]) -> None:
        self._tasks, self._where, self._end_one = list(tasks), where, end_one
        self.policy = tasks[0].policy if tasks else FailurePolicy()
        self.bounds = [(task.first_index, task.first_index + len(task.env_fns)) for task in tasks]
        self.replays: Replays | None = None
        self._seeds: list[list[int | None]] = [[None] * len(task.env_fns) for task in tasks]
        self._budgets = [RestartBudget(task.policy) for task in tasks]
        self._attributes: list[dict[int, dict[str, Any]]] = [{} for _ in tasks]
        # What became of workers that are gone. Not the exceptions: their tracebacks would keep the fleet alive.
        self._gone: dict[int, str] = {}

    def worker_of(self, env_index: int) -> int | None:
        """Returns the worker that an environment runs in; None for one that runs in the caller's process."""
        worker = bisect_right(self.bounds, env_index, key=lambda bound: bound[0]) - 1
        return None if worker < 0 else worker

    # -- what is noted while all goes well ------------------------------------------------------------

    def note_resets(self, order: ResetOrder) -> None:
        """Notes the seeds and options of resets; to be called before they are sent."""
        if self.replays is not None:
            self.replays.expect_resets({row: order.options[row] for row in np.flatnonzero(order.mask).tolist()})
        for seeds, (first, _) in zip(self._seeds, self.bounds, strict=True):
            for row in range(len(seeds)):
                if order.mask[first + row] and order.seeds[first + row] is not None:
                    seeds[row] = order.seeds[first + row]

    def note_turn(self, order: Order) -> None:
        """Notes what all environments have done; to be called when they have carried out an order."""
        if self.replays is not None and isinstance(order, StepOrder):
            self.replays.note()
        elif self.replays is not None and isinstance(order, ResetOrder):
            self.replays.note(np.flatnonzero(order.mask))

    def expect_attributes(self, order: SetAttrOrder) -> None:
        """Notes that environments are about to be changed; to be called before the order is sent."""
        if self.replays is not None:
            self.replays.note_change(np.flatnonzero(order.mask))

    def note_attributes(self, order: SetAttrOrder, reports: Sequence[Report | None]) -> None:
        """Notes what was set, except where that failed: whoever takes a worker's place sets it again.

        A parameter that every episode draws anew is not noted.
        """
        if self._tasks and order.name in redrawn(self._tasks[0].env_fns):
            return
        for noted, (first, last), report in zip(self._attributes, self.bounds, reports, strict=True):
            failures = report.failures if report is not None else []
            if any(failure.method == "call" for failure in failures):  # the excuse of a worker that was lost meanwhile
                continue
            failed = {failure.env_index for failure in failures}
            for row in np.flatnonzero(order.mask[first:last]).tolist():
                if first + row not in failed:
                    noted.setdefault(row, {})[order.name] = order.values[first + row]

    def forget_all(self) -> None:
        """Forgets every replay: until they begin another episode, no environments can be rebuilt."""
        self._forget(slice(None))

    def forget_environment(self, env_index: int) -> None:
        """Forgets the replay of one environment: it cannot be rebuilt until it begins another episode."""
        self._forget(env_index)

    def _forget(self, rows: int | slice) -> None:
        if self.replays is not None:
            self.replays.forget(rows)

    # -- a worker is lost -----------------------------------------------------------------------------

    def note_lost(self, lost: LostWorker) -> None:
        """Notes that a worker is gone, unless that is known: what was said of it first tells more."""
        self._gone.setdefault(lost.worker, lost.cause)

    def permit(self, lost: LostWorker, since: float = math.inf) -> None:
        """Counts that a lost worker is replaced; raises what became of it if it may not be.

        ``since`` is that of ``RestartBudget.spend``.
        """
        self._gone[lost.worker] = lost.cause
        if not self.policy.restart:
            raise self.error(lost) from None
        budget = self._budgets[lost.worker]
        if not budget.spend(since):
            raise self.error(lost, budget.exhausted_text) from None

    def replace(self, lost: LostWorker, start_once: StartOnce) -> None:
        """Starts a worker in place of a lost one, which ``permit`` has allowed.

        Its environments are rebuilt where that is possible.
        """
        self._start(lost.worker, start_once, self._replays_for(lost.worker))

    def revive(self, start_once: StartOnce) -> None:
        """Starts workers in place of all that are gone, whether or not restarts are wanted.

        Their environments are not rebuilt: the fleet is about to be reset.
        """
        for worker in list(self._gone):
            self._start(worker, start_once, {})
            self._forget(slice(*self.bounds[worker]))

    def _start(self, worker: int, start_once: StartOnce, replays: Mapping[int, Replay]) -> None:
        """Starts a worker in place of a lost one; one that is lost before it can work is replaced in turn."""
        begin = time.monotonic()
        while True:
            cause = f"worker {worker} {self._gone[worker]}"
            task = dataclasses.replace(
                self._tasks[worker],
                seeds=self._seeds[worker],
                cause=cause,
                replays=replays,
                attributes=self._attributes[worker],
            )
            try:
                start_once(worker, task)
                del self._gone[worker]
                return
            except LostWorker as lost:
                self.permit(lost, since=begin)
            except BaseException:
                self._end_one(worker)  # one that was not told where to work is no worker
                raise

    def _replays_for(self, worker: int) -> dict[int, Replay]:
        """Returns what the environments of a worker are rebuilt from, by row, for those of which it is known."""
        if self.replays is None:
            return {}
        first, last = self.bounds[worker]
        replays = {row - first: self.replays.of(row) for row in range(first, last)}
        return {row: replay for row, replay in replays.items() if replay is not None}

    # -- what is said of it ---------------------------------------------------------------------------

    def excuse(self, lost: LostWorker, order: Order) -> Report | None:
        """Returns what stands for a lost worker's answer to a call; None for an order that can be given again.

        A call is not made again: nobody knows how much of it was done.
        """
        if not isinstance(order, CallOrder | SetAttrOrder):
            return None
        first, last = self.bounds[lost.worker]
        if not order.mask[first:last].any():
            return Report()
        return Report(failures=[Failure(first, "call", "", self.error(lost, _NOT_ASKED_AGAIN), "")])

    def error(self, lost: LostWorker, note: str = "") -> WorkerError:
        """Returns the error to raise for a lost worker; ``note`` says more than the usual advice."""
        first, last = self.bounds[lost.worker]
        kind = WorkerStuckError if lost.is_stuck else WorkerDiedError
        place = f"{self._where(lost.worker)}, {in_words(range(first, last))}"
        return kind(
            f"Worker {lost.worker} ({place}) {lost.cause}. {note or _ADVICE}",
            worker=lost.worker,
            env_indices=range(first, last),
        )
