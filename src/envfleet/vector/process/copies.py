"""Tells of environments that fork and whose copies come back to their worker's work."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np
import numpy.typing as npt

COPY_CAME_BACK = (
    "forked, and the copy of the worker came back from there to go on with the worker's work: that copy was ended. A "
    "process that an environment forks must end by itself, by os._exit()."
)


@final
class ForkedCopies:
    """Looks at what ``_core.end_forked_copies`` counts.

    Args:
        counts: (num_envs,), in the block.
    """

    def __init__(self, counts: npt.NDArray[np.uint64]) -> None:
        self._counts, self._told = counts, counts.copy()

    def warn(self) -> None:
        """Names the environments, each time there were more."""
        now = self._counts.copy()
        concerned, self._told = np.flatnonzero(now != self._told).tolist(), now
        if concerned:
            which = f"Environment{'s' if len(concerned) > 1 else ''} {', '.join(map(str, concerned))}"
            warnings.warn(f"{which} {COPY_CAME_BACK}", RuntimeWarning, stacklevel=2)
