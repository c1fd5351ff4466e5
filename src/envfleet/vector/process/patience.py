"""How long the two sides of a turn stay awake for each other before they sleep.

Staying awake saves a wake-up of tens of microseconds; it costs the core to whoever else needs it. So it depends
on who shares cores with whom. All budgets together stay below a millisecond: an idle fleet costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@dataclass(frozen=True)
class Patience:
    """Seconds to wait on the core, then seconds to wait while offering it to others; then sleep."""

    pause: float
    yield_: float


ASLEEP = Patience(0.0, 0.0)
_OWN_CORE = Patience(200e-6, 700e-6)
_SHARED_CORE = Patience(20e-6, 900e-6)
_SHORT_TURN = 150e-6


def worker_patience(num_workers: int, cores: int) -> Patience:
    """For a worker between turns: it waits for the caller, and for slower workers."""
    if num_workers < cores:
        return _OWN_CORE
    return _SHARED_CORE if num_workers == cores else ASLEEP


@final
class CallerPatience:
    """For the caller during a turn.

    Without a core to spare it takes time from the very workers it waits for, and sleeps unless their turn is
    over before a wake-up would be.
    """

    def __init__(self, num_workers: int, cores: int) -> None:
        self._spare_cores = cores - num_workers
        self._expected = 0.0

    def now(self) -> Patience:
        """What suits the next turn."""
        if self._spare_cores > 0:
            return _OWN_CORE
        short = self._spare_cores == 0 and self._expected < _SHORT_TURN
        return Patience(0.0, _SHORT_TURN) if short else ASLEEP

    def learn(self, seconds: float) -> None:
        """Takes note of how long the workers took this time."""
        self._expected += 0.1 * (seconds - self._expected)
