"""Noticing actors that hang, by what they leave unanswered."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from envfleet.vector import lost
from envfleet.vector.runtime import AwakeClock
from envfleet.vector.lost import LostWorker
from envfleet.vector.ray.actors import Actors, Ref

INTERVAL = 0.5
"""Seconds after which a waiting caller looks around."""


@dataclass(frozen=True)
class Call:
    """What an actor was told, so that another can be told the same.

    Attributes:
        worker: The actor's number.
        env_indices: The environments concerned.
        method: Of the actor.
        args: See there.
    """

    worker: int
    env_indices: range
    method: str
    args: tuple[Any, ...]


@final
class Watch:
    """An actor works on the oldest call it has not answered: that is the one whose time is taken.

    Time counts from when it was first seen to be the oldest, so a caller that looks seldom finds nobody stuck. What
    goes on inside an actor cannot be seen from here: a call about several environments may take as long as all of them.
    """

    def __init__(self, actors: Actors, step_timeout: float | None) -> None:
        self._actors, self._step_timeout = actors, step_timeout
        self._seen: dict[int, tuple[Ref, float]] = {}
        self._warned: Ref = None
        self._last_look = 0.0
        self._clock = AwakeClock(INTERVAL)

    def is_due(self) -> bool:
        """Whether it is time to look at those that others keep the caller from waiting for."""
        return time.monotonic() - self._last_look > INTERVAL

    def look(self, unanswered: Iterable[tuple[Ref, Call]]) -> None:
        """Given all calls without an answer, the oldest first: a LostWorker tells of one that was ended for it."""
        self._last_look = time.monotonic()
        now = self._clock.now()
        oldest: dict[int, tuple[Ref, Call]] = {}
        for ref, call in unanswered:
            oldest.setdefault(call.worker, (ref, call))
        for worker, (ref, call) in oldest.items():
            seen, since = self._seen.get(worker, (None, now))
            if seen != ref:
                self._seen[worker] = ref, now
                continue
            self._judge(ref, call, now - since)

    def _judge(self, ref: Ref, call: Call, seconds: float) -> None:
        first, last = call.env_indices[0], call.env_indices[-1]
        who = f"environment {first}" if first == last else f"environments {first}..{last}"
        if self._step_timeout is None:
            if seconds > lost.STUCK_WARNING_AFTER and self._warned != ref:
                self._warned = ref
                warnings.warn(
                    f"Worker {call.worker} ({self._actors.where(call.worker)}, {who}) has not finished for "
                    f"{seconds:.0f} s. Pass step_timeout=seconds to have stuck actors ended.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        limit = self._step_timeout * len(call.env_indices)
        if seconds > limit:
            self._actors.end_one(call.worker)
            del self._seen[call.worker]
            each = "" if first == last else f", {self._step_timeout:g} s each"
            raise LostWorker(
                call.worker, f"was ended: {who} had not finished after {limit:g} s (step_timeout{each})", is_stuck=True
            )
