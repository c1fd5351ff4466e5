"""A place where environments ran and that is gone: noted by whoever waits for it, told to the user."""

from __future__ import annotations

from typing import final

from envfleet.errors import WorkerDiedError, WorkerError, WorkerStuckError

STUCK_WARNING_AFTER = 60.0
"""Seconds without a sign of life after which the user is told, where no timeout says what to do."""


@final
class LostWorker(Exception):  # noqa: N818  not an error to be shown: whoever catches it decides what it means
    """A worker is gone, or was ended because it was stuck.

    Attributes:
        worker: Its number.
        cause: What happened to it, as the rest of a sentence that begins with its name.
        is_stuck: Whether it was ended for that.
    """

    def __init__(self, worker: int, cause: str, *, is_stuck: bool = False) -> None:
        super().__init__(cause)
        self.worker, self.cause, self.is_stuck = worker, cause, is_stuck


def lost_error(lost: LostWorker, bounds: tuple[int, int], where: str, advice: str) -> WorkerError:
    """What to raise of it. ``bounds`` are its environments ``(first, last + 1)``, ``where`` says where it ran."""
    first, last = bounds
    kind = WorkerStuckError if lost.is_stuck else WorkerDiedError
    return kind(
        f"Worker {lost.worker} ({where}, environments {first}..{last - 1}) {lost.cause}. {advice}",
        worker=lost.worker,
        env_indices=range(first, last),
    )
