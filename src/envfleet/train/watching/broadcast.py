"""What a training tells those who watch it, and what they tell it. While nobody watches, it looks for a file only."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from typing import Any, Protocol, final

import numpy as np

from envfleet._optional import require
from envfleet.errors import FleetError
from envfleet.rendering import check_frame
from envfleet.train.folders.folder import RunFolder
from envfleet.train.watching.signals import LiveFolder, Order

_LOOK_SECONDS = 0.25
_STATE_SECONDS = 1.0
_SHARE = 0.003
"""Of the training's time, for what is written as for the pictures: both together stay below a hundredth."""

_WIDTH = 240
"""Pixels of a picture."""

_MOST_SHOWN = 64
"""Environments: more than a page can show at once."""


class Watched(Protocol):
    """What is watched: a training."""

    def live(self) -> dict[str, Any]:
        """What it does now, as JSON holds it."""
        ...

    def picture_of(self, env: int) -> Any:
        """What an environment looks like now."""
        ...

    def measure_policy(self, wanted: bool) -> None:
        """Whether to measure what the policy takes of the time."""
        ...


@final
class Broadcast:
    """Looks now and then whether somebody watches; if so, writes what the training does, within a share of its time.

    Args:
        folder: the run's.
        training: what is watched.
        pictures: whether its environments can be drawn.
        clock: the seconds since some moment.
    """

    def __init__(
        self, folder: RunFolder, training: Watched, *, pictures: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live, self._training, self._clock = LiveFolder(folder.path), training, clock
        self._why_no_pictures = "" if pictures else "The training was not started with --watch."
        self._next_look = self._next_state = self._next_frame = -math.inf
        self._env = self._num_envs = 0
        self._drawn: dict[int, int] = {}
        """How many pictures there have been of each environment."""
        self._live.forget()

    def look(self) -> set[Order]:
        """Called after every update; returns what the training was told to do."""
        now = self._clock()
        if now < self._next_look:
            return set()
        self._next_look = now + _LOOK_SECONDS
        watched = self._live.is_asked()
        self._training.measure_policy(watched)
        if not watched:
            return set()
        try:
            if now >= self._next_state:
                self._write_state()
                self._next_state = max(now + _STATE_SECONDS, self._after(now))
            began = self._clock()
            if began >= self._next_frame and not self._why_no_pictures:
                self._draw()
                # With the first picture comes what draws all of them, which is made once and not counted.
                is_first = sum(self._drawn.values()) == 1
                self._next_frame = now + _STATE_SECONDS if is_first else self._after(began)
        except OSError:  # a full disk, a folder that is gone: nothing that should end a training
            self._next_state = self._next_frame = now + 60
        return self._live.take_orders()

    def end(self) -> None:
        """The last state, for whoever watches."""
        if self._live.is_asked():
            try:
                self._write_state()
            except OSError:
                return

    def _after(self, began: float) -> float:
        """When the next may come after one that began then, so that all of them take no more than their share."""
        now = self._clock()
        return now + (now - began) / _SHARE

    def _write_state(self) -> None:
        state = self._training.live()
        shown = state["envs"][:_MOST_SHOWN]
        self._num_envs = len(state["envs"])
        for env, entry in enumerate(shown):
            entry["picture"] = self._drawn.get(env, 0)
        told = {"time": time.time(), "pictures": self._why_no_pictures or "live"}
        self._live.write_state({**state, **told, "envs": shown, "num_envs": self._num_envs})

    def _draw(self) -> None:
        """One environment's picture, in turn."""
        try:
            frame = self._training.picture_of(self._env)
            check_frame("what render() returns", frame)
            content = _jpeg(frame)
        except (FleetError, TypeError, ValueError, RuntimeError, AttributeError, ImportError) as error:
            self._why_no_pictures = f"The environments cannot be drawn: {' '.join(str(error).split())[:300]}"
            return
        self._live.write(self._live.frame(self._env), content)
        self._drawn[self._env] = self._drawn.get(self._env, 0) + 1
        self._env = (self._env + 1) % min(_MOST_SHOWN, self._num_envs)


def _jpeg(frame: Any) -> bytes:
    image = require("PIL.Image", "train").fromarray(np.ascontiguousarray(frame))
    times = max(1, image.width // _WIDTH)
    small = image.reduce(times) if times > 1 else image
    written = io.BytesIO()
    small.save(written, "JPEG", quality=80)
    return written.getvalue()
