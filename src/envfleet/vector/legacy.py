"""What the caller keeps of its workers' environments, so that other workers can take their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from envfleet.vector.engine import Order, ResetOrder, StepOrder
from envfleet.vector.replay import Replay
from envfleet.vector.replays import Replays
from envfleet.vector.share import ShardTask


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
