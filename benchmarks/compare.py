"""Before and after: an older revision of envfleet against the one at hand, in one run.

python benchmarks/compare.py main~5                      time and instructions
python benchmarks/compare.py main~5 --no-time            instructions only, under two minutes
python benchmarks/compare.py v0.1.0 --workloads CartPole-v1:64 --engines envfleet-process

Of the time, two ratios are shown. The median of the turns' ratios is worth something on a quiet machine only. The
"best turns" are the mean of the best quarter of turns after, divided by that before: other programs can make a turn
slower, never faster, so the best turns are those that the code alone decided.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import parse_workload, progress
from harness.engines import ENGINES
from harness.environments import DICT_IMAGE, MEGABYTE
from harness.instructions import HOT_PATHS, NoCallgrindError, count_instructions
from harness.report import table
from harness.revisions import RevisionError, commit_of, revision_python
from harness.throughput import Entrant, Plan, WorkloadResult, compare
from harness.workloads import CARTPOLE, LANDER, Workload

OURS = [name for name in ENGINES if name.startswith("envfleet-")]
COMPARED = ("envfleet-sync", "envfleet-process", "envfleet-process-caller", "envfleet-native")
WORKLOADS = (
    Workload(CARTPOLE, 8),
    Workload(CARTPOLE, 64),
    Workload(LANDER, 64),
    Workload(DICT_IMAGE, 64),
    Workload(MEGABYTE, 8),
)
TOLERATED = 0.05


@dataclass(frozen=True)
class Change:
    """What became of a figure: after / before, and over the single turns; more than 1 is faster, or more to do.

    `best` is after / before of the best quarter of each side's turns, `low` and `high` are the single turns' extremes.
    """

    what: str
    before: float
    after: float
    best: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """After as a multiple of before."""
        return self.after / self.before


def main() -> None:
    """Measure, print the tables; exit code 1 if a hot path takes 5 % more instructions than before."""
    options = parse_arguments()
    try:
        base = revision_python(commit_of(options.base), progress)
    except RevisionError as error:
        sys.exit(f"{options.base}: {error}")
    with tempfile.TemporaryDirectory() as scratch:
        counts = [] if options.no_instructions else compare_instructions(base, Path(scratch))
        speeds = [] if options.no_time else compare_speeds(base, options, Path(scratch))
    print("\n\n".join(part for part in (instructions_text(counts), speeds_text(speeds)) if part))
    if options.json:
        found = {"base": options.base, "instructions": counts, "steps_per_second": speeds}
        options.json.write_text(json.dumps(found, default=asdict, indent=2) + "\n")
    if slower := [change.what for change in counts if change.ratio > 1 + TOLERATED]:
        sys.exit(f"More than {TOLERATED:.0%} more instructions than at {options.base}: {', '.join(slower)}")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("base", help="the revision to compare with")
    add("--workloads", nargs="+", type=parse_workload, default=WORKLOADS, metavar="ID:NUM_ENVS")
    add("--engines", nargs="+", choices=OURS, default=COMPARED, metavar="ENGINE", help=", ".join(OURS))
    add("--slice", type=float, default=0.1, metavar="SECONDS", help="length of a turn, default 0.1")
    add("--repeats", type=int, default=40, metavar="N", help="turns each, default 40")
    add("--no-time", action="store_true", help="count instructions only")
    add("--no-instructions", action="store_true", help="take the time only")
    add("--json", type=Path, metavar="PATH", help="write every figure to this file")
    return parser.parse_args()


def compare_instructions(base: str, scratch: Path) -> list[Change]:
    """Instructions a call; nothing if callgrind cannot be had, which is told."""
    try:
        progress("counting instructions before")
        before = count_instructions(base, scratch / "before")
        progress("counting instructions after")
        after = count_instructions(sys.executable, scratch / "after")
    except NoCallgrindError as error:
        progress(f"No instructions are counted: {error}")
        return []
    return [_counted(what, before[name], after[name]) for name, what in HOT_PATHS.items()]


def _counted(what: str, before: float, after: float) -> Change:
    ratio = after / before
    return Change(what, before, after, best=ratio, low=ratio, high=ratio)


def compare_speeds(base: str, options: argparse.Namespace, scratch: Path) -> list[Change]:
    """Steps per second, before and after taking turns."""
    sides = {"before": base, "after": sys.executable}
    entrants = [
        Entrant(replace(ENGINES[name], name=f"{name} {side}"), python)
        for name in options.engines
        for side, python in sides.items()
    ]
    plan = Plan(options.slice, options.repeats)
    results = [compare(workload, entrants, plan, scratch, progress) for workload in options.workloads]
    return [change for result in results for name in options.engines if (change := _timed(result, name))]


def _timed(result: WorkloadResult, name: str) -> Change | None:
    before, after = result.of(f"{name} before"), result.of(f"{name} after")
    for found in result.engines:
        if found.engine.startswith(f"{name} ") and found.error:
            progress(f"{result.workload.name}, {found.engine}: {found.error}")
    if before is None or after is None:
        return None
    ratios = [new / old for old, new in zip(before.steps_per_second, after.steps_per_second, strict=True)]
    middle = statistics.median(ratios)
    what = f"{result.workload.name}, {ENGINES[name].label}"
    best = best_turns(after.steps_per_second) / best_turns(before.steps_per_second)
    return Change(what, before.median, before.median * middle, best, min(ratios), max(ratios))


def best_turns(figures: Sequence[float]) -> float:
    """The mean of the best quarter of the turns: of one at least."""
    return statistics.fmean(sorted(figures)[-max(1, len(figures) // 4) :])


def instructions_text(changes: list[Change]) -> str:
    """Instructions a call of step."""
    rows = [
        [change.what, f"{change.before:,.0f}", f"{change.after:,.0f}", f"{change.ratio - 1:+.1%}"] for change in changes
    ]
    return f"## Instructions a call\n\n{table(['hot path', 'before', 'after', 'change'], rows)}" if rows else ""


def speeds_text(changes: list[Change]) -> str:
    """Steps per second: the median of the turns' ratios, and the ratio of the best turns (see the top of this file)."""
    rows = [
        [
            change.what,
            f"{change.before:,.0f}",
            f"{change.after:,.0f}",
            f"{change.ratio:.3f}",
            f"{change.best:.3f}",
            f"{change.low:.3f} to {change.high:.3f}",
        ]
        for change in changes
    ]
    header = ["workload, engine", "before", "after", "after / before", "best turns", "single turns"]
    return f"## Steps/s\n\n{table(header, rows)}" if rows else ""


if __name__ == "__main__":
    main()
