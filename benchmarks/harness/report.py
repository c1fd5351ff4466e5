"""Results as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .creation import CreationResult
from .engines import BARE, GYMNASIUM_ASYNC, GYMNASIUM_SYNC
from .machine import Machine
from .requirements import Verdict, judge, judge_creation
from .throughput import Plan, WorkloadResult
from .workloads import Workload

BASELINES = (BARE, GYMNASIUM_SYNC, GYMNASIUM_ASYNC)
MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Report:
    """Everything one run found out."""

    machine: Machine
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    plan: Plan
    throughput: tuple[WorkloadResult, ...]
    creation_workload: Workload
    creation: tuple[CreationResult, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """What the figures say about the requirements."""
        return judge(self.throughput) + judge_creation(self.creation_workload, self.creation)

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists; `all_met` is None if no requirement was measured."""
        verdicts = self.verdicts
        return {
            **asdict(self),
            "throughput": [{**asdict(result), "ratios": ratios(result)} for result in self.throughput],
            "requirements": [asdict(verdict) for verdict in verdicts],
            "all_met": all(verdict.met for verdict in verdicts) if verdicts else None,
        }


def ratios(result: WorkloadResult) -> dict[str, dict[str, float]]:
    """For each engine, its median as a multiple of each measured baseline's."""
    baselines = {name: found.median for name in BASELINES if (found := result.of(name))}
    return {
        found.engine: {name: found.median / median for name, median in baselines.items()} for found in result.engines
    }


def machine_text(machine: Machine, load: tuple[float, float, float]) -> str:
    """Two lines on where this runs."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    loads = " ".join(f"{value:.2f}" for value in load)
    return f"{machine.platform}, {machine.usable_cores} of {machine.cores} cores, load {loads}\n{versions}"


def throughput_text(result: WorkloadResult) -> str:
    """One workload: every engine's median and how it compares."""
    multiples = ratios(result)
    baselines = list(next(iter(multiples.values())))
    header = ["engine", "processes", "steps/s", "spread", *(f"x {name}" for name in baselines), "idle CPU"]
    rows = [
        [
            found.engine,
            str(found.processes),
            f"{found.median:,.0f}",
            f"{found.spread:.0%}",
            *(f"{multiples[found.engine][name]:.2f}" for name in baselines),
            f"{found.idle_cpu:.1%}",
        ]
        for found in result.engines
    ]
    return f"## {result.workload.name}\n\n{table(header, rows)}"


def creation_text(workload: Workload, results: Sequence[CreationResult]) -> str:
    """Creation: medians with their lowest and highest sample."""
    rows = []
    for result in results:
        seconds = [sample.seconds for sample in result.samples]
        memory = [sample.pss_bytes / MEGABYTE for sample in result.samples]
        rows.append(
            [
                result.engine,
                f"{result.median_seconds:.3f}",
                f"{min(seconds):.3f} to {max(seconds):.3f}",
                f"{result.median_pss_bytes / MEGABYTE:,.0f}",
                f"{min(memory):,.0f} to {max(memory):,.0f}",
            ]
        )
    header = ["engine", "seconds", "lowest to highest", "PSS in MB", "lowest to highest"]
    return f"## Creating {workload.name} and the first reset\n\n{table(header, rows)}"


def verdicts_text(verdicts: Sequence[Verdict]) -> str:
    """Every requirement with each engine that was held against it."""
    rows = [
        [
            verdict.claim if outcome is verdict.outcomes[0] else "",
            outcome.engine,
            f"{outcome.ratio:.2f} against {verdict.baseline}",
            f"{outcome.low:.2f} to {outcome.high:.2f}",
            f"{verdict.at_least:.1f}",
            "yes" if outcome.met else "NO",
        ]
        for verdict in verdicts
        for outcome in verdict.outcomes
    ]
    met = sum(verdict.met for verdict in verdicts)
    header = ["requirement", "engine", "measured", "single repeats", "needed", "met"]
    return f"## Requirements: {met} of {len(verdicts)} met\n\n{table(header, rows)}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table that is aligned as plain text too: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (header, rule, *rows))


def _line(cells: list[str], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    return f"| {' | '.join([first, *map(str.rjust, cells[1:], widths[1:])])} |"
