"""How long a wait may take altogether, though it is done in slices; and how long whoever waits was awake."""

from __future__ import annotations

import math
import multiprocessing
import time
from typing import final


@final
class Deadline:
    """So many seconds from now; never for None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._at = math.inf if seconds is None else time.monotonic() + seconds

    def slice(self, longest: float) -> float:
        """Seconds to wait before workers are looked at again: ``longest``, or what is left."""
        if self._seconds is None:
            return longest
        return min(longest, max(0.0, self._at - time.monotonic()))

    def check(self, workers: list[int]) -> None:
        """Raises TimeoutError when the time is over."""
        if time.monotonic() >= self._at:
            raise multiprocessing.TimeoutError(
                f"Workers {workers} did not finish within {self._seconds:g} s. Nothing is lost: wait again to collect "
                "what they do."
            )


@final
class AwakeClock:
    """Seconds in which whoever looks at it ran, to judge others by.

    A program that was stopped (Ctrl-Z, a paused container) or had other things to do comes back to find much time
    gone, in which others may have been stopped too. So a gap far longer than the ``interval`` at which it is looked at
    counts as one interval.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = time.monotonic()
        self._seconds = 0.0

    def now(self) -> float:
        """Seconds since it was made, as far as they count."""
        now = time.monotonic()
        gap, self._last = now - self._last, now
        self._seconds += gap if gap < _FAR_LONGER * self._interval else self._interval
        return self._seconds


_FAR_LONGER = 4.0
NEVER = Deadline(None)


def deadline_after(seconds: float | None) -> Deadline:
    """So many seconds from now, or never."""
    return NEVER if seconds is None else Deadline(seconds)
