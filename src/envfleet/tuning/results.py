"""The results of ``tune``: what was measured, and which candidate is best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from envfleet.tuning import setups
from envfleet.tuning.setups import Setup

_AS_GOOD = 0.97
"""Speeds within this ratio count as equal, because a minute cannot distinguish them; the simplest wins."""

_RESTLESS = 0.25


@dataclass(frozen=True)
class Candidate:
    """One way to run the environment.

    Attributes:
        setup: The arguments of ``make_vec``.
        speeds: Steps per second in each of its turns; rows that only hold a reset do not count.
        ready_seconds: The time to make and reset all environments, in each turn.
        skipped: Why it was not measured, or less often than the others; usually empty.
    """

    setup: Setup
    speeds: tuple[float, ...]
    ready_seconds: tuple[float, ...]
    skipped: str = ""

    @property
    def steps_per_second(self) -> float | None:
        """The median speed of its turns; None if it had no turn."""
        return median(self.speeds) if self.speeds else None

    @property
    def seconds_to_make(self) -> float | None:
        """The median time until all environments were made and reset."""
        return median(self.ready_seconds) if self.ready_seconds else None


@dataclass(frozen=True)
class TuningResult:
    """The result of ``tune``.

    Attributes:
        env: The environment, as written in code.
        env_kwargs: The arguments of the environment.
        cores: The number of cores this process may use.
        waits: Whether a step mostly waits rather than computes.
        bare_speeds: Steps per second of one environment alone in a plain loop, in each turn.
        candidates: All candidates, the simplest first.
        seconds: How long the tuning took.
    """

    env: str
    env_kwargs: Mapping[str, Any]
    cores: int
    waits: bool
    bare_speeds: tuple[float, ...]
    candidates: tuple[Candidate, ...]
    seconds: float

    @property
    def best(self) -> Candidate:
        """The fastest candidate; among those within 3 % of it, the simplest."""
        return _best(self.candidates)

    @property
    def best_to_step(self) -> Candidate:
        """The best candidate for a ``step()`` loop, without ``send`` and ``recv``."""
        lockstep = tuple(candidate for candidate in self.candidates if candidate.setup.first_ready is None)
        return _best(lockstep) if any(candidate.speeds for candidate in lockstep) else self.best

    @property
    def code(self) -> str:
        """Python code that makes the best fleet, to paste."""
        return self.code_of(self.best)

    def code_of(self, candidate: Candidate) -> str:
        """Returns Python code that makes a candidate's fleet."""
        return setups.code(self.env, candidate.setup, self.env_kwargs)

    def ideal(self, num_envs: int) -> float:
        """Returns the steps per second if parallel work cost nothing: on every core, or all waiting at once."""
        return median(self.bare_speeds) * (num_envs if self.waits else min(self.cores, num_envs))

    def of_ideal(self, candidate: Candidate) -> float | None:
        """Returns the share of the ideal that a candidate reaches."""
        speed = candidate.steps_per_second
        return None if speed is None else speed / self.ideal(candidate.setup.num_envs)

    def times_sync(self, candidate: Candidate) -> float | None:
        """Returns how many times faster a candidate is than ``sync`` with the same number of environments."""
        row = next(c for c in self.candidates if c.setup == Setup(candidate.setup.num_envs, "sync"))
        if candidate.steps_per_second is None or row.steps_per_second is None:
            return None
        return candidate.steps_per_second / row.steps_per_second

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the figures."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        for candidate in self.candidates:
            if candidate.skipped:
                setup = candidate.setup
                state = "not measured" if not candidate.speeds else "measured less often"
                yield f"{setup.num_envs} x {setup.name}: {state}: {candidate.skipped}"
        fewest = len(self.best.speeds)
        if fewest < 3:
            turns = "a single turn" if fewest == 1 else f"{fewest} turns"
            yield f"The best had {turns}, too few to tell small differences: give it more seconds."
        elif _spread(self.best.speeds) > _RESTLESS:
            yield (
                f"The best one's own turns differ by {_spread(self.best.speeds):.0%}: something else is running on "
                "this machine, or episodes differ much. Close other programs, or give it more seconds."
            )

    def to_json_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings, lists and dicts."""
        return {
            "env": self.env,
            "env_kwargs": {name: _plain(value) for name, value in self.env_kwargs.items()},
            "cores": self.cores,
            "waits": self.waits,
            "seconds": self.seconds,
            "bare_steps_per_second": median(self.bare_speeds),
            "candidates": [self._candidate_dict(candidate) for candidate in self.candidates],
            "best": self.candidates.index(self.best),
            "code": self.code,
            "best_to_step": self.candidates.index(self.best_to_step),
            "code_to_step": self.code_of(self.best_to_step),
            "notes": list(self.notes),
        }

    def _candidate_dict(self, candidate: Candidate) -> dict[str, Any]:
        setup = candidate.setup
        return {
            "name": setup.name,
            "num_envs": setup.num_envs,
            "backend": setup.backend,
            "vector_kwargs": dict(setup.vector_kwargs),
            "steps_per_second": candidate.steps_per_second,
            "speeds": list(candidate.speeds),
            "seconds_to_make": candidate.seconds_to_make,
            "times_sync": self.times_sync(candidate),
            "of_ideal": self.of_ideal(candidate),
            "skipped": candidate.skipped,
        }

    def __str__(self) -> str:
        from envfleet.tuning.report import report

        return report(self)


def _best(candidates: tuple[Candidate, ...]) -> Candidate:
    highest = max(candidate.steps_per_second or 0.0 for candidate in candidates)
    return next(c for c in candidates if c.speeds and (c.steps_per_second or 0.0) >= _AS_GOOD * highest)


def _spread(speeds: tuple[float, ...]) -> float:
    return (max(speeds) - min(speeds)) / median(speeds)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
