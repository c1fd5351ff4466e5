"""Results as text and as JSON, held against what training must show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.machine import Machine
from harness.report import table

from .contests import OUR_TORCH, GoalResult, LearnerResult, Plan, ProfileResult, Runs, SpeedResult
from .matches import ENV_ID, learner_settings, recommended_settings, same_settings

SECTIONS = ("speed", "learners", "time_to_return", "profile")
"""Of a report, those with a result for each algorithm."""
SAME_STEPS = {"a2c": 2.0, "ppo": 12.0, "sac": 2.0}
"""Times Stable-Baselines3's fastest way, by algorithm."""
THAN_TORCH = {"a2c": 1.7, "ppo": 4.5, "sac": 3.0}
"""Times our own loop with torch for a learner, in the section of that name."""
SAME_RETURN = 3.0
MOST_SECONDS = 6.0
"""To the lowest of the returns, with our quickest algorithm."""


@dataclass(frozen=True)
class Verdict:
    """How many times faster we were; `at_least` if theirs gave up before, so that it is a lower bound.

    With `at_most`, seconds that were needed at most.
    """

    claim: str
    needed: float
    measured: float | None
    at_least: bool
    met: bool
    at_most: bool = False


@dataclass(frozen=True)
class Report:
    """Everything one run found out."""

    command: str
    machine: Machine
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    plan: Plan
    speed: tuple[SpeedResult, ...]
    time_to_return: tuple[GoalResult, ...]
    profile: tuple[ProfileResult, ...]
    learners: tuple[LearnerResult, ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """What the figures say, for what was measured with peers."""
        speed = [result for result in self.speed if result.theirs]
        to_goal = [result for result in self.time_to_return if result.theirs]
        found = [_speed_verdict(result) for result in speed]
        found += [verdict for result in speed for verdict in _rival_verdicts(result)]
        found += [_learner_verdict(result) for result in self.learners]
        found += [_goal_verdict(result, self.plan.goals[0]) for result in to_goal]
        return [*found, _seconds_verdict(to_goal, self.plan.goals[0])] if to_goal else found

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists; infinite times are null; `all_met` is null if nothing was held against a peer."""
        verdicts = self.verdicts
        plain = {
            **asdict(self),
            "env_id": ENV_ID,
            "settings": {
                "same": [asdict(same_settings(result.algo)) for result in self.speed],
                "learners": {result.algo: asdict(learner_settings(result.algo)) for result in self.learners},
                "recommended": [asdict(recommended_settings(result.algo)) for result in self.time_to_return],
            },
            "speed": [_speed_json(result) for result in self.speed],
            "learners": [
                {
                    "algo": result.algo,
                    "steps": result.steps,
                    "contestants": [_runs_json(result.compiled), _runs_json(result.torch)],
                    "ratio": result.ratio,
                }
                for result in self.learners
            ],
            "time_to_return": [_goal_json(result, self.plan.goals) for result in self.time_to_return],
            "profile": [
                {**asdict(result), "shares": result.shares, "steps_per_second": result.steps_per_second}
                for result in self.profile
            ],
            "requirements": [asdict(verdict) for verdict in verdicts],
            "all_met": all(verdict.met for verdict in verdicts) if verdicts else None,
        }
        return {name: _finite(value) for name, value in plain.items()}


def merged(earlier: dict[str, Any], today: dict[str, Any]) -> dict[str, Any]:
    """Today's report as JSON, with what an earlier one has of other sections and algorithms, and with its command.

    Contestants that are compared were measured in one run all the same: a section of an algorithm is never mixed, and
    each says on which machine it was measured.
    """
    if not earlier:
        return {**today, **{section: _located(today, section) for section in SECTIONS}, "commands": [today["command"]]}
    found = {**today, "commands": [*earlier.get("commands", [earlier["command"]]), today["command"]]}
    for section in SECTIONS:
        measured = {result["algo"] for result in today[section]}
        kept = [result for result in _located(earlier, section) if result["algo"] not in measured]
        found[section] = sorted([*kept, *_located(today, section)], key=lambda result: str(result["algo"]))
    claims = {verdict["claim"] for verdict in today["requirements"]}
    kept = [verdict for verdict in earlier["requirements"] if verdict["claim"] not in claims]
    found["requirements"] = [*kept, *today["requirements"]]
    found["all_met"] = all(verdict["met"] for verdict in found["requirements"])
    return found


def _located(found: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    """The results of a section, each with its machine."""
    return [{"machine": found["machine"], **result} for result in found.get(section, [])]


def report_text(report: Report) -> str:
    """Every table that has rows, in Markdown."""
    tables = [
        ("Every contestant with the same settings, median steps/s", _contestants_text(report)),
        ("Who could not take part", _missing_text(report)),
        ("Summary", _summary_text(report)),
        ("Where our time goes, default settings", _profile_text(report)),
        ("Requirements", _verdicts_text(report)),
    ]
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in tables if text)


def _contestants_text(report: Report) -> str:
    rows = [
        [f"{result.algo}: {runs.name}", f"{runs.steps_per_second:,.0f}", f"{runs.seconds_spent:.1f}", _set_up(runs)]
        for result in report.speed
        for runs in result.all_runs
    ]
    return table(["contestant", "steps/s", "seconds", "and to set up"], rows) if rows else ""


def _missing_text(report: Report) -> str:
    return "\n".join(f"- {result.algo}: {name}: {why}" for result in report.speed for name, why in result.missing)


def _summary_text(report: Report) -> str:
    rows = [_speed_row(result) for result in report.speed]
    rows += [_learner_row(result) for result in report.learners]
    rows += [_goal_row(result, goal) for result in report.time_to_return for goal in report.plan.goals]
    return table([ENV_ID, "envfleet", "Stable-Baselines3", "times faster"], rows) if rows else ""


def _speed_row(result: SpeedResult) -> list[str]:
    theirs = f"{result.best.steps_per_second:,.0f} ({result.best.name})" if result.best else "not run"
    spread = f" ({min(result.ratios):.2f} to {max(result.ratios):.2f})" if result.ratios else ""
    return [
        f"{result.algo.upper()}, same settings, {result.steps:,} steps: steps/s",
        f"{result.ours.steps_per_second:,.0f}",
        theirs,
        f"{result.ratio:.2f}{spread}" if result.ratio else "",
    ]


def _learner_row(result: LearnerResult) -> list[str]:
    return [
        f"{result.algo.upper()}, our learners, {result.steps:,} steps: steps/s",
        f"{result.compiled.steps_per_second:,.0f}",
        f"{result.torch.steps_per_second:,.0f} (envfleet with torch)",
        f"{result.ratio:.2f}",
    ]


def _goal_row(result: GoalResult, goal: float) -> list[str]:
    theirs, ratio = result.quickest(goal), result.ratio(goal)
    return [
        f"{result.algo.upper()} to a return of {goal:g}: seconds",
        _seconds(result.ours, goal),
        f"{_seconds(theirs, goal)} ({theirs.name})" if theirs else "not run",
        f"{'> ' if ratio[1] else ''}{ratio[0]:.1f}" if ratio else "",
    ]


def _seconds(runs: Runs, goal: float) -> str:
    """The median and every seed's, or that it was not reached."""
    seconds, every = runs.seconds_to(goal), runs.all_seconds_to(goal)
    if math.isinf(seconds):
        return f"not reached in {runs.seconds_spent:.0f}"
    seeds = ", ".join("never" if math.isinf(found) else f"{found:.0f}" for found in every)
    return f"{seconds:.0f} (seeds: {seeds})" if len(every) > 1 else f"{seconds:.0f}"


def _set_up(runs: Runs) -> str:
    return f"{sum(outcome.set_up_seconds for outcome in runs.outcomes) / len(runs.outcomes):.1f}"


def _profile_text(report: Report) -> str:
    if not report.profile:
        return ""
    parts = list(dict.fromkeys(part for result in report.profile for part in result.seconds))
    rows = [
        [
            result.algo,
            *(f"{result.shares[part]:.0%}" if part in result.shares else "" for part in parts),
            f"{result.steps_per_second:,.0f}",
            result.plan.split(",")[0],
        ]
        for result in report.profile
    ]
    return table(["algorithm", *parts, "steps/s", "backend"], rows)


def _verdicts_text(report: Report) -> str:
    rows = [
        [
            verdict.claim,
            "not reached" if verdict.measured is None else f"{'> ' if verdict.at_least else ''}{verdict.measured:.2f}",
            f"{'at most ' if verdict.at_most else ''}{verdict.needed:.1f}",
            "yes" if verdict.met else "NO",
        ]
        for verdict in report.verdicts
    ]
    return table(["requirement", "measured", "needed", "met"], rows) if rows else ""


def _speed_verdict(result: SpeedResult) -> Verdict:
    needed = SAME_STEPS[result.algo]
    met = result.ratio is not None and result.ratio >= needed
    return Verdict(f"{result.algo}: times faster to the same steps", needed, result.ratio, False, met)


def _rival_verdicts(result: SpeedResult) -> list[Verdict]:
    """Every other library, which we have to be ahead of."""
    found = []
    for runs in result.others:
        if runs.name == OUR_TORCH:
            continue
        ratio = result.times_faster_than(runs.name)
        met = ratio is not None and ratio >= 1.0
        found.append(Verdict(f"{result.algo}: times the steps/s of {runs.name}", 1.0, ratio, False, met))
    return found


def _learner_verdict(result: LearnerResult) -> Verdict:
    needed = THAN_TORCH[result.algo]
    claim = f"{result.algo}: times the steps/s of {OUR_TORCH}"
    return Verdict(claim, needed, result.ratio, False, result.ratio >= needed)


def _seconds_verdict(results: list[GoalResult], goal: float) -> Verdict:
    seconds = min(result.ours.seconds_to(goal) for result in results)
    claim = f"seconds to a return of {goal:g}, our quickest algorithm"
    return Verdict(
        claim, MOST_SECONDS, seconds if math.isfinite(seconds) else None, False, seconds <= MOST_SECONDS, True
    )


def _goal_verdict(result: GoalResult, goal: float) -> Verdict:
    ratio, at_least = result.ratio(goal) or (None, False)
    met = ratio is not None and ratio >= SAME_RETURN
    return Verdict(f"{result.algo}: times faster to a return of {goal:g}", SAME_RETURN, ratio, at_least, met)


def _speed_json(result: SpeedResult) -> dict[str, Any]:
    return {
        "algo": result.algo,
        "steps": result.steps,
        "contestants": [_runs_json(runs) for runs in result.all_runs],
        "missing": dict(result.missing),
        "best_peer": result.best.name if result.best else None,
        "ratio": result.ratio,
        "ratios": result.ratios,
    }


def _goal_json(result: GoalResult, goals: tuple[float, ...]) -> dict[str, Any]:
    return {
        "algo": result.algo,
        "contestants": [
            {**_runs_json(runs), "seconds_to": {f"{goal:g}": runs.seconds_to(goal) for goal in goals}}
            for runs in (result.ours, *result.theirs)
        ],
        "heats": [_runs_json(runs) for runs in result.heats],
        "ratios": {f"{goal:g}": _ratio_json(result, goal) for goal in goals},
    }


def _ratio_json(result: GoalResult, goal: float) -> dict[str, Any] | None:
    found, theirs = result.ratio(goal), result.quickest(goal)
    return {"ratio": found[0], "at_least": found[1], "peer": theirs.name} if found and theirs else None


def _runs_json(runs: Runs) -> dict[str, Any]:
    return {**asdict(runs), "steps_per_second": runs.steps_per_second}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
