"""Workers that take the places of lost ones: whether, how often, and until one can work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeAlias, final

from envfleet.errors import WorkerError
from envfleet.vector.lost import LostWorker
from envfleet.vector.recovery import Care, RestartBudget

AsError: TypeAlias = Callable[[LostWorker, str], WorkerError]
"""What to raise of a lost worker, given what else is to be said of it."""


@final
class Replacements:
    """Those of one fleet. Each worker has a budget of its own."""

    def __init__(self, care: Care, num_workers: int) -> None:
        self._care = care
        self._budgets = [RestartBudget(care) for _ in range(num_workers)]

    def allow(self, lost: LostWorker, error: AsError, since: float = math.inf) -> None:
        """Raises what became of a lost worker, unless it may be replaced; counts that it is.

        ``since`` as for ``RestartBudget.spend``.
        """
        if not self._care.restart:
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
