"""``tune``: candidates take turns, in rounds, until the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from gymnasium.envs.registration import EnvSpec

from envfleet import backends
from envfleet._single import EnvMaker, spec_of
from envfleet.errors import EnvRaisedError, InvalidOutputError
from envfleet.tuning.laboratory import Laboratory, TooSlow, Turn
from envfleet.tuning.results import Candidate, TuningResult
from envfleet.tuning.setups import EnvCost, Expectation, Setup, expect, name_in_code, setups
from envfleet.vector.arguments import positive_integer
from envfleet.vector.runtime import usable_cores

Progress: TypeAlias = Callable[[str], None]

_SIZES = (8, 16, 64)
_MOST_ROUNDS = 5
_GOOD_SLICE = 0.3
_LONGEST_SLICE = 1.0
_SHORTEST_SLICE = 0.02
"""The length of a turn in seconds, after everything is ready."""

_LEAD_IN = 0.2
"""The share of a turn that is not counted."""

_RESERVE = 0.03
"""The share of the time that is reserved for closing."""

_PATIENCE = 4.0
_LEAST_PATIENCE = 5.0
"""A turn is stopped after this many times its expected time, plus this many seconds."""


def tune(
    env: str | EnvSpec | EnvMaker,
    num_envs: int | Sequence[int] | None = None,
    *,
    seconds: float = 45.0,
    first_ready: bool = True,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> TuningResult:
    """Measures what runs an environment fastest on this machine. ``print`` the result to see a table.

    In each round every candidate is made, stepped with random actions and closed again, so that other load on the
    machine affects all of them alike. Everything runs in a separate process, so an environment that crashes or hangs
    does no harm.

    Args:
        env: A registered id, an EnvSpec, or a function that makes one environment, as for ``make_vec``.
        num_envs: The number of environments; several numbers are compared. By default 8, 16 and 64.
        seconds: The longest time it may take. Candidates that do not fit are left out; ``result.notes`` names them.
        first_ready: Also try ``send`` and ``recv``, with batches of a half and a quarter of the environments.
        progress: Called with a text before each measurement.
        **env_kwargs: Passed to the environment's constructor, as by ``make_vec``.
    """
    start = time.monotonic()
    sizes = _checked_sizes(num_envs)
    _check_seconds(seconds)
    suitable = [backend.name for backend in backends.suitable(spec_of(env))]  # an unknown id is refused here and now
    say = progress or (lambda _: None)
    laboratory = Laboratory(env, env_kwargs, seconds)
    try:
        say("one environment alone")
        cost = _measure_cost(laboratory, seconds * (1 - _RESERVE))
        cores = usable_cores()
        chosen = [
            setup for size in sizes for setup in setups(size, cores, cost, first_ready=first_ready, suitable=suitable)
        ]
        entries = [_Entry(None, _expect_alone(cost)), *(_Entry(setup, expect(setup, cores, cost)) for setup in chosen)]
        _Race(laboratory, entries, start + seconds * (1 - _RESERVE), say).run()
    finally:
        laboratory.close()
    alone, *fleets = entries
    _check_measured(fleets, seconds)
    return TuningResult(
        env=name_in_code(env),
        env_kwargs=env_kwargs,
        cores=cores,
        waits=cost.waits(max(sizes), cores),
        bare_speeds=alone.speeds or (1 / cost.step.wall,),
        candidates=tuple(entry.candidate() for entry in fleets),
        seconds=time.monotonic() - start,
    )


@dataclass(eq=False)
class _Entry:
    """A candidate. Without a setup, it is one environment alone."""

    setup: Setup | None
    expected: Expectation
    turns: list[Turn] = field(default_factory=list)
    skipped: str = ""
    error: Exception | None = None
    preparation: float = 0.0

    def __post_init__(self) -> None:
        self.preparation = self.expected.preparation

    @property
    def speeds(self) -> tuple[float, ...]:
        return tuple(turn.steps / turn.seconds for turn in self.turns)

    @property
    def least(self) -> float:
        """The shortest useful turn, in seconds."""
        return self.preparation + max(self.expected.step, _SHORTEST_SLICE)

    @property
    def name(self) -> str:
        return "one environment alone" if self.setup is None else f"{self.setup.num_envs} x {self.setup.name}"

    def candidate(self) -> Candidate:
        assert self.setup is not None
        return Candidate(self.setup, self.speeds, tuple(turn.ready for turn in self.turns), self.skipped)


@final
class _Race:
    def __init__(self, laboratory: Laboratory, entries: Sequence[_Entry], deadline: float, say: Progress) -> None:
        self._laboratory, self._entries, self._deadline, self._say = laboratory, entries, deadline, say

    def run(self) -> None:
        """Gives every candidate as many turns as there is time for."""
        order = list(self._entries)
        if sum(entry.least for entry in order) > self._left():
            # Not all can have a turn: as many as possible will, if those that need least come first.
            order.sort(key=lambda entry: entry.least)
        number = 0
        while (rounds := self._affordable_rounds(number)) > 0:
            self._run_round(number, rounds, order)
            number += 1
            order = [entry for entry in order[1:] + order[:1] if not entry.skipped]  # no one always goes first
        self._try_at_least_one()

    def _run_round(self, number: int, rounds_left: int, order: Sequence[_Entry]) -> None:
        for index, entry in enumerate(order):
            left = self._left()
            if entry.least > left:
                if not entry.turns:
                    entry.skipped = f"a turn would take about {entry.least:.2g} s, and {max(0, left):.2g} s were left."
                continue
            self._say(f"round {number + 1} of {number + rounds_left}: {entry.name}")
            # The first round is short: only after it is known how many more there will be.
            longest = _LONGEST_SLICE if number else _GOOD_SLICE
            share = left / (len(order) * rounds_left - index)
            self._take_turn(entry, min(longest, max(_SHORTEST_SLICE, share - entry.preparation)))

    def _try_at_least_one(self) -> None:
        """If nothing was measured, tries the quickest candidate anyway; it is stopped if it takes too long."""
        fleets = [entry for entry in self._entries if entry.setup is not None]
        if any(entry.turns or entry.error for entry in fleets) or self._left() < _SHORTEST_SLICE:
            return
        quickest = min(fleets, key=lambda entry: entry.least)
        quickest.skipped = ""
        self._say(quickest.name)
        self._take_turn(quickest, _SHORTEST_SLICE)

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _affordable_rounds(self, done: int) -> int:
        racing = [entry for entry in self._entries if not entry.skipped]
        one = sum(entry.preparation + max(entry.expected.step, _GOOD_SLICE) for entry in racing)
        affordable = min(_MOST_ROUNDS - done, int(self._left() / one)) if racing else 0
        return affordable if done else max(1, affordable)

    def _take_turn(self, entry: _Entry, seconds: float) -> None:
        lead_in = _LEAD_IN * seconds if entry.expected.step < _LEAD_IN * seconds else 0.0
        patience = _LEAST_PATIENCE + _PATIENCE * (entry.preparation + seconds + entry.expected.step)
        begin = time.monotonic()
        turn = self._measure(entry, lead_in, seconds - lead_in, min(self._left(), patience))
        if turn is not None:
            entry.turns.append(turn)
            entry.preparation = time.monotonic() - begin - turn.seconds

    def _measure(self, entry: _Entry, lead_in: float, seconds: float, timeout: float) -> Turn | None:
        what = ("bare",) if entry.setup is None else ("fleet", entry.setup)
        try:
            turn: Turn = self._laboratory.ask(*what, lead_in, seconds, timeout=timeout)
        except (EnvRaisedError, InvalidOutputError):  # the environment itself is broken, whatever runs it
            raise
        except TooSlow:
            entry.skipped = f"its turn was stopped after {timeout:.2g} s."
        except Exception as error:
            entry.error = error
            entry.skipped = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        else:
            return turn
        return None


def _measure_cost(laboratory: Laboratory, seconds: float) -> EnvCost:
    try:
        cost: EnvCost = laboratory.ask("cost", timeout=seconds)
    except TooSlow:
        raise TimeoutError(
            f"After {seconds:.3g} s one environment alone was not yet made, reset and stepped twice. If it does not "
            "hang but is that slow, give more seconds."
        ) from None
    return cost


def _expect_alone(cost: EnvCost) -> Expectation:
    return Expectation(cost.make + cost.reset, cost.step.wall)


def _check_measured(fleets: Sequence[_Entry], seconds: float) -> None:
    if any(entry.turns for entry in fleets):
        return
    for entry in fleets:
        if entry.error is not None:
            raise entry.error
    quickest = min(fleets, key=lambda entry: entry.least)
    raise TimeoutError(
        f"Nothing could be measured within {seconds:g} s. The quickest candidate was {quickest.name}: "
        f"{quickest.skipped} Give more seconds, or fewer environments."
    )


def _checked_sizes(num_envs: Any) -> tuple[int, ...]:
    if num_envs is None:
        return _SIZES
    sizes = tuple(num_envs) if isinstance(num_envs, Sequence) else (num_envs,)
    if not sizes:
        raise ValueError("num_envs must be a positive integer or some of them, got none.")
    return tuple(sorted({positive_integer("num_envs", size) for size in sizes}))


def _check_seconds(seconds: Any) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be a positive number, got {seconds!r}.")
