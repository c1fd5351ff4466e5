"""The section on training speed in docs/training.md, from the results of training_speed.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.report import table

SECTION = "training-speed"
COLUMNS = {
    "envfleet": "envfleet",
    "envfleet, learner='torch'": "with torch",
    "plain torch loop, as CleanRL's": "plain torch loop",
    "SBX (JAX)": "SBX (JAX)",
    "PufferLib's workers, plain torch loop": "PufferLib's workers",
    "rlox": "rlox",
}
"""Contestants in the order of the columns; Stable-Baselines3's fastest way stands after ours."""

Result = Mapping[str, Any]


def training_section(found: Result) -> str:
    """Every table, and where it is from."""
    commands = "\n".join(f"- `{command}`" for command in dict.fromkeys(found["commands"]))
    tables = {"speed": _speeds, "learners": _learners, "time_to_return": _returns, "profile": _shares}
    parts = [
        "Medians of turns taken in turn ([every figure](../benchmarks/results/training_speed.json)), measured by\n\n"
        f"{commands}",
        *(f"{_where(found[name])}\n\n{text(found[name])}" for name, text in tables.items() if found[name]),
    ]
    return "\n\n".join(parts)


def _where(results: list[Result]) -> str:
    """The machine of each algorithm's results: comparing figures of different tables may mean comparing machines."""
    machines: dict[str, list[str]] = {}
    for result in results:
        machine = result["machine"]
        machines.setdefault(f"{machine['usable_cores']} cores ({machine['processor']})", []).append(
            result["algo"].upper()
        )
    if len(machines) == 1:
        return f"On {next(iter(machines))}:"
    return f"On {', '.join(f'{where} for ' + ' and '.join(algos) for where, algos in machines.items())}:"


def _speeds(results: list[Result]) -> str:
    rows = []
    for result in results:
        speeds = {runs["name"]: runs["steps_per_second"] for runs in result["contestants"]}
        cells = [_count(speeds.get(name)) for name in COLUMNS]
        theirs = speeds.get(result["best_peer"])
        low, high = min(result["ratios"]), max(result["ratios"])
        rows.append(
            [
                f"{result['algo'].upper()}, {result['steps']:,} steps",
                *cells[:2],
                _count(theirs),
                *cells[2:],
                f"{result['ratio']:.1f} ({low:.1f} to {high:.1f})",
            ]
        )
    names = list(COLUMNS.values())
    header = ["steps/s, the same settings", *names[:2], "Stable-Baselines3", *names[2:], "times Stable-Baselines3"]
    return f"{table(header, rows)}\n\n{_missing(results)}".rstrip()


def _missing(results: Iterable[Result]) -> str:
    """Who could not take part though it has the algorithm."""
    found = [
        f"{name} ({result['algo'].upper()}): {why}"
        for result in results
        for name, why in result["missing"].items()
        if not why.startswith("has no")
    ]
    return f"Could not take part: {'; '.join(found)}." if found else ""


def _learners(results: list[Result]) -> str:
    rows = [
        [
            f"{result['algo'].upper()}, {result['steps']:,} steps",
            *(_count(runs["steps_per_second"]) for runs in result["contestants"]),
            f"{result['ratio']:.1f}",
        ]
        for result in results
    ]
    return table(["steps/s, PPO as above, A2C and SAC as preset", "compiled learner", "torch", "times"], rows)


def _returns(results: list[Result]) -> str:
    rows = []
    for result in results:
        for goal in result["contestants"][0]["seconds_to"]:
            for runs in result["contestants"]:
                seconds = sorted(_seconds_to(outcome, float(goal)) or float("inf") for outcome in runs["outcomes"])
                name = "envfleet" if runs is result["contestants"][0] else f"Stable-Baselines3, {runs['name']}"
                middle = seconds[len(seconds) // 2]
                each = ", ".join("never" if found == float("inf") else f"{found:.0f}" for found in seconds)
                rows.append(
                    [
                        f"{result['algo'].upper()} to {goal}",
                        name,
                        "not reached" if middle == float("inf") else f"{middle:.1f}",
                        each,
                    ]
                )
    return table(["seconds to a mean return", "who", "median", "every seed"], rows)


def _seconds_to(outcome: Result, goal: float) -> float | None:
    return next((reached["seconds"] for reached in outcome["reached"] if reached["goal"] == goal), None)


def _shares(results: list[Result]) -> str:
    parts = list(dict.fromkeys(part for result in results for part in result["shares"]))
    rows = [
        [
            result["algo"].upper(),
            *(f"{result['shares'][part]:.0%}" if part in result["shares"] else "" for part in parts),
            _count(result["steps_per_second"]),
        ]
        for result in results
    ]
    return f"Where the time goes, with the presets of LunarLander-v3:\n\n{table(['', *parts, 'steps/s'], rows)}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
