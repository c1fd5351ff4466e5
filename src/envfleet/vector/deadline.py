"""How long a wait may take altogether, though it is done in slices."""

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


NEVER = Deadline(None)


def deadline_after(seconds: float | None) -> Deadline:
    """So many seconds from now, or never."""
    return NEVER if seconds is None else Deadline(seconds)
