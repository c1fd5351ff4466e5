"""What is logged: the figures of several updates and the episodes that ended meanwhile, as one row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from envfleet.train.episodes import Episode


@final
class Interval:
    """Gathers figures until they are logged."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._episodes: list[Episode] = []
        self.steps = 0
        self.seconds = 0.0

    def add(self, steps: int, seconds: float, figures: Mapping[str, float], episodes: Sequence[Episode]) -> None:
        """Count one update; figures that are not a number are named but not averaged."""
        for name, figure in figures.items():
            known = not math.isnan(figure)
            self._sums[name] = self._sums.get(name, 0.0) + (figure if known else 0.0)
            self._counts[name] = self._counts.get(name, 0) + known
        self._episodes.extend(episodes)
        self.steps += steps
        self.seconds += seconds

    def row(self) -> dict[str, float | None]:
        """Means of all that was gathered; None where there is nothing to average."""
        returns = [episode.episode_return for episode in self._episodes]
        lengths = [episode.length for episode in self._episodes]
        return {
            "steps_per_second": self.steps / self.seconds if self.seconds > 0 else None,
            "episode_return": _mean(sum(returns), len(returns)),
            "episode_length": _mean(sum(lengths), len(lengths)),
            **{name: _mean(total, self._counts[name]) for name, total in self._sums.items()},
        }

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as JSON holds it."""
        return {
            "sums": self._sums,
            "counts": self._counts,
            "episodes": [[episode.episode_return, episode.length] for episode in self._episodes],
            "steps": self.steps,
            "seconds": self.seconds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Interval:
        """An interval that goes on from what `state()` gave."""
        interval = cls()
        interval._sums = dict(state["sums"])
        interval._counts = dict(state["counts"])
        interval._episodes = [Episode(*pair) for pair in state["episodes"]]
        interval.steps, interval.seconds = state["steps"], state["seconds"]
        return interval


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
