"""The measurements: speed with the same settings, time to a return, and where our time goes."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .matches import Match, Peer, learner_settings, recommended_settings, same_settings, whole_rollouts
from .sides import (
    OUR_SCRIPT,
    Limits,
    Ours,
    Outcome,
    ScriptError,
    Side,
    Theirs,
    our_request,
    plain_loop,
    rivals,
    run_script,
    variants,
)

OURS = "envfleet"
OUR_TORCH = "envfleet, learner='torch'"
Progress = Callable[[str], None]
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        steps: environment steps per turn, rounded to whole rollouts.
        turns: turns a contestant.
        heat_steps: environment steps of the runs that find the fastest way to run Stable-Baselines3, at least.
        heat_rollouts: rollouts of these runs, at least: one alone says little.
        heats: such runs of each way, in turns; the best median wins.
        seeds: of the runs to a return.
        goals: mean returns of the last 100 training episodes, the lowest first.
        most_seconds: after which a run has not reached a goal; infinite leaves every side to finish its own steps.
    """

    steps: int
    turns: int
    heat_steps: int
    heat_rollouts: int
    heats: int
    seeds: tuple[int, ...]
    goals: tuple[float, ...]
    most_seconds: float


@dataclass(frozen=True)
class Runs:
    """One contestant's runs."""

    name: str
    outcomes: tuple[Outcome, ...]

    @property
    def steps_per_second(self) -> float:
        """The median."""
        return statistics.median(outcome.steps_per_second for outcome in self.outcomes)

    def all_seconds_to(self, goal: float) -> list[float]:
        """Of every seed, the quickest first; infinite where it was not reached."""
        return sorted(outcome.seconds_to(goal) for outcome in self.outcomes)

    def seconds_to(self, goal: float) -> float:
        """The median over the seeds; infinite if most did not reach it."""
        return statistics.median_high(outcome.seconds_to(goal) for outcome in self.outcomes)

    @property
    def seconds_spent(self) -> float:
        """The median over the seeds, whatever was reached."""
        return statistics.median(outcome.seconds for outcome in self.outcomes)


@dataclass(frozen=True)
class SpeedResult:
    """The same settings and steps: ours, every way to run Stable-Baselines3, and all others.

    Attributes:
        missing: who could not take part, and why.
    """

    algo: str
    steps: int
    ours: Runs
    theirs: tuple[Runs, ...]
    others: tuple[Runs, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def all_runs(self) -> tuple[Runs, ...]:
        """Ours first."""
        return (self.ours, *self.theirs, *self.others)

    def times_faster_than(self, name: str) -> float | None:
        """Our speed as a multiple of somebody's; None if there is no such contestant."""
        return next(
            (self.ours.steps_per_second / runs.steps_per_second for runs in self.others if runs.name == name), None
        )

    @property
    def best(self) -> Runs | None:
        """Their fastest way."""
        return max(self.theirs, key=lambda runs: runs.steps_per_second, default=None)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Our speed as a multiple of their best way's, turn by turn."""
        if self.best is None:
            return ()
        pairs = zip(self.ours.outcomes, self.best.outcomes, strict=True)
        return tuple(mine.steps_per_second / other.steps_per_second for mine, other in pairs)

    @property
    def ratio(self) -> float | None:
        """The same of the medians."""
        return self.ours.steps_per_second / self.best.steps_per_second if self.best else None


@dataclass(frozen=True)
class LearnerResult:
    """Our two learners with the same settings and steps."""

    algo: str
    steps: int
    compiled: Runs
    torch: Runs

    @property
    def ratio(self) -> float:
        """The compiled learner's speed as a multiple of torch's, of the medians."""
        return self.compiled.steps_per_second / self.torch.steps_per_second


@dataclass(frozen=True)
class GoalResult:
    """Each side's recommended settings: the time until the policy is good."""

    algo: str
    ours: Runs
    theirs: tuple[Runs, ...]
    heats: tuple[Runs, ...]

    def quickest(self, goal: float) -> Runs | None:
        """Of theirs: who reached the goal first, else who tried for longest."""
        return min(self.theirs, key=lambda runs: (runs.seconds_to(goal), -runs.seconds_spent), default=None)

    def ratio(self, goal: float) -> tuple[float, bool] | None:
        """How many times faster we reached it, and whether that is only a lower bound, theirs having given up."""
        theirs, mine = self.quickest(goal), self.ours.seconds_to(goal)
        if theirs is None or math.isinf(mine):
            return None
        reached = theirs.seconds_to(goal)
        return (theirs.seconds_spent / mine, True) if math.isinf(reached) else (reached / mine, False)


@dataclass(frozen=True)
class ProfileResult:
    """Seconds of our training loop by what it does."""

    algo: str
    steps: int
    plan: str
    seconds: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """The same as shares of the whole."""
        total = sum(self.seconds.values())
        return {name: seconds / total for name, seconds in self.seconds.items()}

    @property
    def steps_per_second(self) -> float:
        """Of the loop alone."""
        return self.steps / sum(self.seconds.values())


def compare_speed(
    algo: str,
    plan: Plan,
    peer_python: str | None,
    progress: Progress,
    *,
    one_thread: bool = False,
    python_of: Callable[[str], str] | None = None,
) -> SpeedResult:
    """Train with the same settings for the same number of steps, in turns.

    Args:
        algo: the algorithm.
        plan: how much.
        peer_python: an interpreter that has Stable-Baselines3; None leaves it and all others out.
        progress: told what is going on.
        one_thread: leave out other ways to run Stable-Baselines3.
        python_of: the interpreters of other peers; None leaves them out.
    """
    match = same_settings(algo)
    ours = Ours(OURS, match.ours)
    others: list[Side] = [Ours(OUR_TORCH, replace(match.ours, learner="torch"))]
    ways: list[Theirs] = []
    missing: dict[str, str] = {}
    if peer_python is not None:
        peer = match.theirs[0].side(algo, peer_python)
        ways = [way for way in variants(peer) if way.threads == 1 or not one_thread]
        others += [plain_loop(peer)] if algo != "sac" else []
        for name, found in rivals(peer, python_of) if python_of is not None else ():
            if isinstance(found, str):
                missing[name] = found
            else:
                others.append(found)
    outcomes = _in_turns(
        [ours, *ways, *others], Limits(match.whole_rollouts(plan.steps)), plan, missing, progress, algo
    )
    runs = {name: Runs(name, tuple(found)) for name, found in outcomes.items()}
    return SpeedResult(
        algo,
        match.whole_rollouts(plan.steps),
        runs[OURS],
        tuple(runs[way.name] for way in ways),
        tuple(runs[side.name] for side in others if side.name in runs),
        tuple(missing.items()),
    )


def _in_turns(
    sides: list[Side], limits: Limits, plan: Plan, missing: dict[str, str], progress: Progress, algo: str
) -> dict[str, list[Outcome]]:
    """Everybody's outcomes, turn by turn; a rival that fails is noted among the missing and not asked again."""
    outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
    for turn in range(plan.turns):
        for side in _rotated(sides, turn):
            if side.name not in outcomes:
                continue
            try:
                outcomes[side.name].append(side.train(turn, limits))
            except ScriptError as error:
                if not (isinstance(side, Theirs) and side.is_rival):
                    raise
                missing[side.name] = error.line
                del outcomes[side.name]
                progress(f"{algo}, same settings: {side.name} cannot: {error.line}")
                continue
            speed = outcomes[side.name][-1].steps_per_second
            progress(f"{algo}, same settings, turn {turn + 1} of {plan.turns}: {side.name}: {speed:,.0f} steps/s")
    return outcomes


def compare_learners(algo: str, plan: Plan, progress: Progress) -> LearnerResult:
    """Train with the compiled learner and with torch's, in turns."""
    config = learner_settings(algo)
    sides: list[Side] = [
        Ours(OURS, replace(config, learner="compiled")),
        Ours(OUR_TORCH, replace(config, learner="torch")),
    ]
    steps = whole_rollouts(config, plan.steps)
    outcomes = _in_turns(sides, Limits(steps), plan, {}, progress, algo)
    compiled, torch = (Runs(name, tuple(found)) for name, found in outcomes.items())
    return LearnerResult(algo, steps, compiled, torch)


def compare_time_to_return(algo: str, plan: Plan, peer_python: str | None, progress: Progress) -> GoalResult:
    """Train with each side's recommended settings until the goals are reached, seed by seed."""
    match = recommended_settings(algo)
    heats: list[Runs] = []
    entries: list[tuple[Side, Limits]] = [(Ours(OURS, match.ours), _limits(match.ours.total_steps, plan))]
    if peer_python:
        fastest = _fastest_way(match, peer_python, plan, heats, progress)
        entries += [(_like(fastest, peer), _limits(peer.total_steps, plan)) for peer in match.theirs]
    outcomes: dict[str, list[Outcome]] = {side.name: [] for side, _ in entries}
    for turn, seed in enumerate(plan.seeds):
        for side, limits in _rotated(entries, turn):
            outcomes[side.name].append(side.train(seed, limits))
            progress(f"{algo}, to a return, seed {seed}: {side.name}: {_told(outcomes[side.name][-1])}")
    runs = [Runs(name, tuple(found)) for name, found in outcomes.items()]
    return GoalResult(algo, runs[0], tuple(runs[1:]), tuple(heats))


def profile(algo: str, plan: Plan) -> ProfileResult:
    """Where the time of training with our defaults goes."""
    match = recommended_settings(algo)
    rollouts = match.whole_rollouts(plan.steps) // match.rollout
    request = our_request("profile", match.ours, Limits(match.ours.total_steps)) | {"rollouts": rollouts}
    return ProfileResult(algo, **run_script(sys.executable, OUR_SCRIPT, request))


def _fastest_way(match: Match, python: str, plan: Plan, heats: list[Runs], progress: Progress) -> Theirs:
    peer = match.theirs[0]
    ways = variants(peer.side(match.algo, python))
    limits = Limits(max(plan.heat_steps, plan.heat_rollouts * peer.rollout))
    outcomes: dict[str, list[Outcome]] = {way.name: [] for way in ways}
    for turn in range(plan.heats):
        for way in _rotated(ways, turn):
            outcomes[way.name].append(way.train(turn, limits))
            speed = outcomes[way.name][-1].steps_per_second
            progress(f"{match.algo}, heat {turn + 1} of {plan.heats}: {way.name}: {speed:,.0f} steps/s")
    heats += [Runs(name, tuple(found)) for name, found in outcomes.items()]
    fastest = max(heats, key=lambda runs: runs.steps_per_second).name
    return next(way for way in ways if way.name == fastest)


def _like(way: Theirs, peer: Peer) -> Theirs:
    return replace(peer.side(way.algo, way.python), vec_env=way.vec_env, threads=way.threads)


def _limits(total_steps: int, plan: Plan) -> Limits:
    return Limits(total_steps, plan.goals, plan.most_seconds)


def _rotated(things: Sequence[Thing], by: int) -> list[Thing]:
    """Each turn begins with another one, so none always follows the same neighbour."""
    start = by % len(things)
    return [*things[start:], *things[:start]]


def _told(outcome: Outcome) -> str:
    reached = ", ".join(f"{found.goal:g} after {found.seconds:.0f} s" for found in outcome.reached)
    return f"{reached or 'nothing reached'}, ended after {outcome.seconds:.0f} s and {outcome.steps:,} steps"
