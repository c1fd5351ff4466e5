"""Everything one run found out, as JSON; and what all tables share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .creation import CreationResult
from .engines import BARE, GYMNASIUM_ASYNC, GYMNASIUM_SYNC
from .machine import Machine
from .requirements import Verdict, judge, judge_creation
from .scaling import Scaling, call_costs
from .throughput import Plan, WorkloadResult
from .workloads import Workload

BASELINES = (BARE, GYMNASIUM_SYNC, GYMNASIUM_ASYNC)
Load = tuple[float, float, float]


@dataclass(frozen=True)
class Report:
    """Everything one run found out.

    Attributes:
        peers: What each peer is, or why it could not be had.
        training: The result of training_speed.py, if there is one.
    """

    date: str
    command: str
    seconds: float
    machine: Machine
    load_before: Load
    load_after: Load
    plan: Plan
    creation_workload: Workload
    throughput: tuple[WorkloadResult, ...] = ()
    creation: tuple[CreationResult, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    peers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    training: tuple[Mapping[str, Any], ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """What the figures say about the requirements."""
        return judge(self.throughput, self.machine.usable_cores) + judge_creation(self.creation_workload, self.creation)

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists; `all_met` is None if no requirement was measured."""
        verdicts = self.verdicts
        return {
            **asdict(self),
            "throughput": [_workload_json(result) for result in self.throughput],
            "call_costs": [asdict(cost) for cost in call_costs(self.throughput)],
            "versions": self._versions(),
            "requirements": [asdict(verdict) for verdict in verdicts],
            "all_met": all(verdict.met for verdict in verdicts) if verdicts else None,
        }

    def _versions(self) -> dict[str, dict[str, str]]:
        """Of the libraries that each engine ran with."""
        cells = [found for result in self.throughput for found in result.engines if found.versions]
        return {found.engine: found.versions for found in cells}


def _workload_json(result: WorkloadResult) -> dict[str, Any]:
    engines = [{name: value for name, value in asdict(found).items() if name != "versions"} for found in result.engines]
    return {**asdict(result), "engines": engines, "ratios": ratios(result)}


def ratios(result: WorkloadResult) -> dict[str, dict[str, float]]:
    """For each engine, its median as a multiple of each measured baseline's."""
    baselines = {name: found.median for name in BASELINES if (found := result.of(name))}
    return {
        found.engine: {name: found.median / median for name, median in baselines.items()}
        for found in result.engines
        if found.error is None
    }


def machine_text(machine: Machine, load: Load) -> str:
    """Two lines on where this runs."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    loads = " ".join(f"{value:.2f}" for value in load)
    where = f"{machine.platform}, {machine.processor}, {machine.usable_cores} of {machine.cores} cores"
    return f"{where}, load {loads}\n{versions}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table that is aligned as plain text too: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (header, rule, *rows))


def _line(cells: list[str], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    return f"| {' | '.join([first, *map(str.rjust, cells[1:], widths[1:])])} |"
