"""A result as Markdown: every table, made from the JSON alone, so that an old result can be shown again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .engines import BARE, ENGINES, LIMIT
from .machine import Machine
from .report import machine_text, table

Result = dict[str, Any]
MEGABYTE = 1024 * 1024
FAILED = "failed"
NOTES = """Steps are real steps of environments: rows that are autoresets do not count, the time of resets does. The
percentage is the width of the middle half of the turns / their median. *Ideal* is one environment in a plain loop times
the cores; compiled environments may exceed it, and so may engines that spare Gymnasium's wrappers. *A plain loop on
every core at once* is what the machine gives of that: each process steps its share of the environments one after
another, and nothing is brought together. Idle CPU includes what it takes to measure it, as the plain loop shows. `-`:
has no place here, for the reasons listed at the end."""


def markdown(result: Result) -> str:
    """The whole result."""
    parts = [
        f"# Benchmark of {result['date']}",
        _where(result),
        NOTES,
        *(_throughput(result, env_id) for env_id in _env_ids(result)),
        _policies(result),
        _creation(result),
        _call_costs(result),
        _scaling(result),
        _training(result),
        requirements(result),
        _reasons(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def engine_label(name: str) -> str:
    """As tables show it: ours stand out."""
    engine = ENGINES[name]
    return f"**{engine.label}**" if engine.family.startswith("envfleet") else engine.label


def number(value: float) -> str:
    """Three digits or so: 1.23M, 45.6k, 789."""
    for limit, divisor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / divisor:,.3g}{unit}" if value < 1e3 * divisor else f"{value / divisor:,.0f}{unit}"
    return f"{value:,.0f}"


def _where(result: Result) -> str:
    machine = Machine(**result["machine"])
    after = " ".join(f"{value:.2f}" for value in result["load_after"])
    minutes = f", {result['seconds'] / 60:.0f} minutes" if result["seconds"] else ""
    return (
        f"`{result['command']}`{minutes}, medians of {result['plan']['repeats']} "
        f"interleaved turns of {result['plan']['slice_seconds']:g} s.\n\n"
        f"{machine_text(machine, result['load_before'])}; load afterwards {after}"
    )


def _env_ids(result: Result) -> list[str]:
    return list(dict.fromkeys(each["workload"]["env_id"] for each in result["throughput"] if _plain(each)))


def _plain(workload: Result) -> bool:
    return not workload["workload"]["policy"]


def _throughput(result: Result, env_id: str) -> str:
    chosen = [each for each in result["throughput"] if each["workload"]["env_id"] == env_id and _plain(each)]
    return f"## {env_id}: steps/s\n\n{_speeds(chosen, result['machine']['usable_cores'])}"


def _policies(result: Result) -> str:
    chosen = [each for each in result["throughput"] if not _plain(each)]
    if not chosen:
        return ""
    title = "## With a policy of 64 x 64 units in torch between the steps: steps/s, and the engine's share of the time"
    return f"{title}\n\n{_speeds(chosen, None)}"


def _speeds(workloads: list[Result], cores: int | None) -> str:
    names = list(dict.fromkeys(found["engine"] for each in workloads for found in each["engines"]))
    rows = [[engine_label(name), *(_cell(each, name) for each in workloads)] for name in names]
    if cores and BARE in names:
        bare = [{found["engine"]: found for found in each["engines"]}[BARE] for each in workloads]
        rows.insert(0, ["*ideal*", *(number(found["median"] * cores) for found in bare)])
    header = [f"{each['workload']['num_envs']} x {each['workload']['env_id']}" for each in workloads]
    text = table(["engine", *header], rows)
    errors = {
        f"- {ENGINES[found['engine']].label}: {found['error']}"
        for each in workloads
        for found in each["engines"]
        if found["error"]
    }
    return "\n\n".join(part for part in (text, "\n".join(sorted(errors))) if part)


def _cell(workload: Result, name: str) -> str:
    found = next((found for found in workload["engines"] if found["engine"] == name), None)
    if found is None:
        return "-"
    if found["error"]:
        return FAILED
    share = "" if _plain(workload) else f", engine {found['engine_share']:.0%}"
    return f"{number(found['median'])} ({found['spread']:.0%}){share}"


def _creation(result: Result) -> str:
    workload, samples = result["creation_workload"], result["creation"]
    if not samples:
        return ""
    measured = next((each for each in result["throughput"] if each["workload"] == workload), None)
    idle = {found["engine"]: f"{found['idle_cpu']:.1%}" for found in measured["engines"]} if measured else {}
    rows = [
        [
            engine_label(found["engine"]),
            f"{found['median_seconds']:.3f}",
            _range(sample["seconds"] for sample in found["samples"]),
            f"{found['median_pss_bytes'] / MEGABYTE:,.0f}",
            idle.get(found["engine"], ""),
        ]
        for found in samples
    ]
    header = ["engine", "seconds", "lowest to highest", "PSS in MB", "idle CPU"]
    title = f"## Creating {workload['num_envs']} x {workload['env_id']} and the first reset; its cost at rest"
    return f"{title}\n\n{table(header, rows)}"


def _range(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.3f} to {max(values):.3f}"


def _call_costs(result: Result) -> str:
    rows = [
        [
            f"{cost['env_id']}: {engine_label(cost['engine'])}",
            f"{cost['base_seconds'] * 1e6:,.1f}",
            f"{cost['each_seconds'] * 1e6:,.3f}",
            " ".join(map(str, cost["sizes"])),
        ]
        for cost in result["call_costs"]
    ]
    header = ["engine", "µs per call", "and µs per environment", "fitted over"]
    return f"## What a call of step costs as environments are added\n\n{table(header, rows)}" if rows else ""


def _scaling(result: Result) -> str:
    if not result["scaling"]:
        return ""
    counts = sorted({int(count) for each in result["scaling"] for count in each["steps_per_second"]})
    rows = []
    for each in result["scaling"]:
        speeds = {int(count): speed for count, speed in each["steps_per_second"].items()}
        gain = f"{speeds[max(speeds)] / speeds[min(speeds)]:.2f}"
        name = f"{each['workload']['num_envs']} x {each['workload']['env_id']}: {engine_label(each['engine'])}"
        rows.append([name, *(number(speeds[count]) if count in speeds else FAILED for count in counts), gain])
    header = ["engine", *(f"{count} worker{'s' if count > 1 else ''}" for count in counts), "times faster"]
    return f"## More workers: steps/s\n\n{table(header, rows)}"


def _training(result: Result) -> str:
    parts = []
    for training in result["training"]:
        rows = [
            [f"{each['algo'].upper()}: {runs['name']}", f"{runs['steps_per_second']:,.0f}"]
            for each in training["speed"]
            for runs in each["contestants"]
        ]
        title = f"## Training on {training['env_id']}, the same settings: steps/s from the first reset to the end"
        parts.append(f"{title}\n\n{table(['contestant', 'steps/s'], rows)}")
    return "\n\n".join(parts)


def requirements(result: Result) -> str:
    """Every requirement with each engine that was held against it."""
    verdicts = result["requirements"]
    if not verdicts:
        return ""
    rows = [
        [
            verdict["claim"] if number_of == 0 else "",
            outcome["engine"],
            f"{outcome['ratio']:.2f} x {verdict['baseline']}",
            f"{outcome['low']:.2f} to {outcome['high']:.2f}",
            f"{verdict['at_least']:g}",
            "yes" if outcome["met"] else "NO",
        ]
        for verdict in verdicts
        for number_of, outcome in enumerate(verdict["outcomes"])
    ]
    met = sum(verdict["met"] for verdict in verdicts)
    header = ["requirement", "engine", "measured", "middle half of the turns", "needed", "met"]
    return f"## Requirements: {met} of {len(verdicts)} met\n\n{table(header, rows)}"


def _reasons(result: Result) -> str:
    """Why engines are missing, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in result["throughput"]:
        for name, why in each["left_out"].items():
            if ENGINES[name].family != LIMIT:
                where = f"{each['workload']['num_envs']} x {each['workload']['env_id']}"
                reasons.setdefault((ENGINES[name].label, why), []).append(where)
    lines = [f"- {label}: {why} ({', '.join(dict.fromkeys(where))})" for (label, why), where in reasons.items()]
    return "## What was left out\n\n" + "\n".join(lines) if lines else ""
