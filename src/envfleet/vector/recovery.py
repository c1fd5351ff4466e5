"""Environments made again after a failure: whether, how often, and with which seeds."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np

from envfleet.vector.arguments import check_timeout

OnFailure: TypeAlias = Literal["raise", "restart"]


@final
@dataclass(frozen=True)
class Care:
    """What is done about environments that fail.

    Attributes:
        restart: Make them again in place and go on, instead of raising.
        max_restarts: How often one may be made again within ``window`` seconds; None sets no limit.
        window: In seconds.
        step_timeout: Seconds that one environment's step, reset or call may take; None sets no limit.
        start_timeout: Seconds that making one environment may take; None sets no limit.
        check_nan: Whether NaN in an observation or a reward is a failure.
    """

    restart: bool = False
    max_restarts: int | None = None
    window: float = math.inf
    step_timeout: float | None = None
    start_timeout: float | None = None
    check_nan: bool = False


def checked_care(
    on_failure: Any,
    max_restarts: Any,
    restart_window: Any,
    *,
    step_timeout: Any = None,
    start_timeout: Any = None,
    check_nan: Any = False,
) -> Care:
    """The user's arguments, checked."""
    if on_failure not in get_args(OnFailure):
        raise ValueError(f'`on_failure` must be "raise" or "restart", got {on_failure!r}.')
    if max_restarts is not None and (not isinstance(max_restarts, int | np.integer) or max_restarts < 0):
        raise ValueError(f"`max_restarts` must be a number of restarts or None for no limit, got {max_restarts!r}.")
    check_timeout(restart_window, "restart_window")
    check_timeout(step_timeout, "step_timeout")
    check_timeout(start_timeout, "start_timeout")
    if 0 in (restart_window, step_timeout, start_timeout) or restart_window is None:
        raise ValueError("`restart_window`, `step_timeout` and `start_timeout` must be more than 0 seconds.")
    limit = None if max_restarts is None else int(max_restarts)
    return Care(on_failure == "restart", limit, float(restart_window), step_timeout, start_timeout, bool(check_nan))


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

    def __init__(self, care: Care) -> None:
        self._care = care
        self._times: deque[float] = deque()

    def spend(self, since: float = math.inf) -> bool:
        """Whether it may be made again now; if so, that is counted.

        What was spent after ``since`` counts however long ago it is: attempts may take longer than the window.
        """
        oldest = min(time.monotonic() - self._care.window, since)
        while self._times and self._times[0] < oldest:
            self._times.popleft()
        if self._care.max_restarts is not None and len(self._times) >= self._care.max_restarts:
            return False
        self._times.append(time.monotonic())
        return True

    @property
    def exhausted_text(self) -> str:
        """Why it may not."""
        endless = self._care.window == math.inf or not self._times
        seconds = 0.0 if endless else max(self._care.window, math.ceil(time.monotonic() - self._times[0]))
        within = f" within {seconds:g} s" if seconds else ""
        return (
            f"It had been restarted {len(self._times)} time{'s' * (len(self._times) != 1)}{within}, which is all that "
            "max_restarts allows. "
            "Mend the environment, or allow more."
        )
