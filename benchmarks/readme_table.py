"""Write the README's section on speed from a result of bench.py: python benchmarks/readme_table.py RESULT.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.engines import BARE, ENGINES, LIMIT
from harness.pages import with_section
from harness.tables import number

ROOT = Path(__file__).resolve().parents[1]
SECTION = "benchmark"
COLUMNS = {
    "Gymnasium": ("Gymnasium",),
    "SB3": ("SB3",),
    "Tianshou": ("Tianshou",),
    "TorchRL": ("TorchRL",),
    "EnvPool": ("EnvPool",),
    "others": ("ale-py", "gymnax", "PufferLib"),
    "envfleet, Python environments": ("envfleet",),
    "envfleet, compiled": ("envfleet native",),
}
OURS = ("envfleet", "envfleet native")


def readme_section(result: dict[str, Any], name: str) -> str:
    """The headline table, the plot, and where both are from; `name` is the result's file name without its ending."""
    columns = _measured_columns(result)
    header = ["steps/s", "*ideal*", *columns, "envfleet / best other"]
    lines = [
        f"| {' | '.join(header)} |",
        f"|---|{'---:|' * (len(header) - 1)}",
        *(_row(workload, columns, result["machine"]["usable_cores"]) for workload in result["throughput"]),
    ]
    return "\n".join(
        [
            *lines,
            "",
            *_sentences(result),
            "",
            f"![Steps per second of every engine](benchmarks/results/{name}.png)",
            "",
            *_source(result, name),
        ]
    )


def update_readme(readme: str, section: str) -> str:
    """The README with the section in the place of the one before."""
    return with_section(readme, SECTION, section)


def _measured_columns(result: dict[str, Any]) -> list[str]:
    cells = [found for workload in result["throughput"] for found in workload["engines"]]
    families = {ENGINES[found["engine"]].family for found in cells if not found["error"]}
    return [column for column, wanted in COLUMNS.items() if families.intersection(wanted)]


def _row(workload: dict[str, Any], columns: list[str], cores: int) -> str:
    medians = {found["engine"]: found["median"] for found in workload["engines"] if not found["error"]}
    bests = {column: _best(medians, COLUMNS[column]) for column in columns}
    ours = _best(medians, OURS)
    theirs = _best(medians, {ENGINES[name].family for name in medians} - {*OURS, LIMIT})
    ideal = number(medians[BARE] * cores) if BARE in medians else ""
    ratio = f"{medians[ours] / medians[theirs]:.2f}" if ours and theirs else ""
    cells = [_cell(column, best, medians) for column, best in bests.items()]
    return f"| {_fleet(workload['workload'])} | {' | '.join([ideal, *cells, ratio])} |"


def _best(medians: dict[str, float], families: Any) -> str | None:
    able = [name for name in medians if ENGINES[name].family in families]
    return max(able, key=medians.__getitem__, default=None)


def _cell(column: str, best: str | None, medians: dict[str, float]) -> str:
    if best is None:
        return ""
    who = f" ({ENGINES[best].family})" if column == "others" else ""
    return f"{number(medians[best])}{who}"


def _fleet(workload: dict[str, Any]) -> str:
    return f"{workload['num_envs']} x {workload['env_id']}{' + policy' if workload['policy'] else ''}"


def _sentences(result: dict[str, Any]) -> list[str]:
    """What else was measured, one line each."""
    created = {found["engine"]: found for found in result["creation"]}
    lines = []
    if {"envfleet-process", "gymnasium-async"} <= created.keys():
        ours, theirs = created["envfleet-process"], created["gymnasium-async"]
        lines.append(
            f"Creating {_fleet(result['creation_workload'])} with the first reset: {_creation(ours)} in envfleet's "
            f"worker processes against {_creation(theirs)} in Gymnasium's."
        )
    lines += [
        _training(training["env_id"], speed)
        for training in result["training"]
        for speed in training["speed"]
        if speed["best_peer"]
    ]
    return lines


def _training(env_id: str, speed: dict[str, Any]) -> str:
    speeds = {runs["name"]: number(runs["steps_per_second"]) for runs in speed["contestants"]}
    plain = next(runs for name, runs in speeds.items() if name.startswith("plain"))
    return (
        f"Training {speed['algo'].upper()} on {env_id}, the same settings on all sides: {speeds['envfleet']} steps/s "
        f"against {speeds[speed['best_peer']]} of Stable-Baselines3 and {plain} of a plain loop in one file."
    )


def _creation(found: dict[str, Any]) -> str:
    return f"{found['median_seconds']:.2f} s and {found['median_pss_bytes'] / 2**20:,.0f} MB"


def _source(result: dict[str, Any], name: str) -> list[str]:
    machine = result["machine"]
    missing = [f"{peer} ({found['error']})" for peer, found in result["peers"].items() if "error" in found]
    lines = [
        f"Measured by `{result['command']}` on {machine['usable_cores']} cores ({machine['processor']}), "
        f"{result['date']}: medians of {result['plan']['repeats']} interleaved turns, real steps only, of every "
        "library its fastest way. *Ideal* is a plain Python loop on every core; compiled environments may exceed it, "
        "and so may engines that do the work of Gymnasium's wrappers at less cost. Every engine, spread, "
        f"memory, scaling and what was left out: [benchmarks/results/{name}.md](benchmarks/results/{name}.md)."
    ]
    return lines + ([f"Could not be installed: {'; '.join(missing)}."] if missing else [])


if __name__ == "__main__":
    path = Path(sys.argv[1])
    readme_path = ROOT / "README.md"
    section = readme_section(json.loads(path.read_text()), path.stem)
    readme_path.write_text(update_readme(readme_path.read_text(), section))
