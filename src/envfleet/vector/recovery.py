"""How a fleet goes on after a failure: who may be made again, how often, with which seeds, and from which tasks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

import numpy as np

from envfleet.errors import WorkerError
from envfleet.vector.engine import Order, ResetOrder, StepOrder
from envfleet.vector.failures import FailurePolicy, LostWorker
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.replay import Replay, Replays


@dataclass(frozen=True)
class ShardTask:
    """What a shard is to run.

    Attributes:
        env_fns: One function an environment.
        first_index: The number of the first one in the fleet.
        policy: What is done about those that fail.
        seeds: Those they were last reset with, one each, if this shard takes another's place.
        cause: Why it has to, or nothing.
        replays: By row, how to bring those back to where they were that need not be restarted then.
        notes_digests: Whether what its environments show is noted, so that they can be rebuilt elsewhere.
    """

    env_fns: Sequence[EnvFn]
    first_index: int
    policy: FailurePolicy
    seeds: Sequence[int | None] = ()
    cause: str = ""
    replays: Mapping[int, Replay] = field(default_factory=dict)
    notes_digests: bool = False


def restart_seed(seed: int | None, number: int) -> int | None:
    """The seed of an environment that was made again for the ``number``-th time since ``reset(seed=seed)``.

    Fixed by both, and different from all before; where no seed was ever given, there is none either.
    """
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])


@final
class RestartBudget:
    """So many restarts in so many seconds: one that is broken for good must not be made again for ever."""

    def __init__(self, policy: FailurePolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def spend(self, since: float = math.inf) -> bool:
        """Whether it may be made again now; if so, that is counted.

        What was spent after ``since`` counts however long ago it is: attempts may take longer than the window.
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
        """Why it may not."""
        endless = self._policy.window == math.inf or not self._times
        seconds = 0.0 if endless else max(self._policy.window, math.ceil(time.monotonic() - self._times[0]))
        within = f" within {seconds:g} s" if seconds else ""
        return (
            f"It had been restarted {len(self._times)} time{'s' * (len(self._times) != 1)}{within}, which is all that "
            "max_restarts allows. "
            "Mend the environment, or allow more."
        )


AsError: TypeAlias = Callable[[LostWorker, str], WorkerError]
"""What to raise of a lost worker, given what else is to be said of it."""


@final
class Replacements:
    """Those of one fleet. Each worker has a budget of its own."""

    def __init__(self, policy: FailurePolicy, num_workers: int) -> None:
        self._policy = policy
        self._budgets = [RestartBudget(policy) for _ in range(num_workers)]

    def allow(self, lost: LostWorker, error: AsError, since: float = math.inf) -> None:
        """Raises what became of a lost worker, unless it may be replaced; counts that it is.

        ``since`` as for ``RestartBudget.spend``.
        """
        if not self._policy.restart:
            raise error(lost, "") from None
        budget = self._budgets[lost.worker]
        if not budget.spend(since):
            raise error(lost, budget.exhausted_text) from None

    def start(self, lost: LostWorker, start_once: Callable[[LostWorker], None], error: AsError) -> None:
        """Starts a worker in place of a lost one; one that is lost before it can work is replaced in turn."""
        begin = time.monotonic()
        while True:
            try:
                start_once(lost)
                return
            except LostWorker as again:
                lost = again
                self.allow(lost, error, begin)


@final
class Legacy:
    """Tasks, seeds and, where environments can be rebuilt, ``replays``."""

    def __init__(self, tasks: Sequence[ShardTask]) -> None:
        self._tasks = list(tasks)
        self.bounds = [(task.first_index, task.first_index + len(task.env_fns)) for task in tasks]
        self._seeds: list[list[int | None]] = [[None] * len(task.env_fns) for task in tasks]
        self.replays: Replays | None = None

    def note_resets(self, order: ResetOrder) -> None:
        """To be called before resets are sent."""
        if self.replays is not None:
            self.replays.expect_resets({row: order.options[row] for row in np.flatnonzero(order.mask).tolist()})
        for seeds, (first, _) in zip(self._seeds, self.bounds, strict=True):
            for row in range(len(seeds)):
                if order.mask[first + row] and order.seeds[first + row] is not None:
                    seeds[row] = order.seeds[first + row]

    def note_turn(self, order: Order) -> None:
        """To be called when all environments have done what an order asked for."""
        if self.replays is not None and isinstance(order, StepOrder):
            self.replays.note()
        elif self.replays is not None and isinstance(order, ResetOrder):
            self.replays.note(np.flatnonzero(order.mask))

    def task(self, worker: int, cause: str, replays: Mapping[int, Replay]) -> ShardTask:
        """For the one that takes a lost worker's place."""
        return replace(self._tasks[worker], seeds=self._seeds[worker], cause=cause, replays=replays)

    def replays_for(self, worker: int) -> dict[int, Replay]:
        """What brings the environments of a lost worker back, by row: all that are known."""
        if self.replays is None:
            return {}
        first, last = self.bounds[worker]
        replays = {row - first: self.replays.of(row) for row in range(first, last)}
        return {row: replay for row, replay in replays.items() if replay is not None}

    def forget(self, worker: int) -> None:
        """None of a worker's environments can be rebuilt, until they begin another episode."""
        if self.replays is not None:
            self.replays.forget(slice(*self.bounds[worker]))

    def forget_all(self) -> None:
        """None at all can."""
        if self.replays is not None:
            self.replays.forget(slice(None))

    def forget_environment(self, env_index: int) -> None:
        """This one cannot, until it begins another episode."""
        if self.replays is not None:
            self.replays.forget(env_index)
