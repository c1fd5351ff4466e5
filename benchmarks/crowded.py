"""What is left of the speed while other programs use the cores too?

python benchmarks/crowded.py                                       two workloads, two minutes
python benchmarks/crowded.py --json benchmarks/results/crowded.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from bench import entrant, install, progress
from harness import machine, report
from harness.engines import ENGINES
from harness.installation import PEERS_DIRECTORY
from harness.report import table
from harness.throughput import Plan, WorkloadResult, compare
from harness.workloads import CARTPOLE, LANDER, Workload

WORKLOADS = (Workload(CARTPOLE, 8), Workload(LANDER, 64))
COMPARED = (
    "gymnasium-sync",
    "gymnasium-async",
    "sb3-subproc",
    "envpool",
    "envfleet-sync",
    "envfleet-process",
    "envfleet-process-caller",
    "envfleet-first-ready",
    "envfleet-native",
)
# Longer than elsewhere: other programs take a core for milliseconds at a time, and a turn has to see many of them.
PLAN = Plan(slice_seconds=0.3, repeats=7)
STRANGERS_A_CORE = 2
BUSY = "while True: pass"


def main() -> None:
    """Measure without other programs and with two per core; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=COMPARED, metavar="ENGINE")
    parser.add_argument("--peers", type=Path, default=PEERS_DIRECTORY, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    installed = install(options.engines, options.peers)
    entrants = [entrant(name, installed) for name in options.engines]
    here = machine.this_machine()
    progress(report.machine_text(here, os.getloadavg()))
    crowd = STRANGERS_A_CORE * here.usable_cores
    found: dict[int, list[WorkloadResult]] = {0: [], crowd: []}
    with tempfile.TemporaryDirectory() as scratch:
        for workload in WORKLOADS:
            for number, results in found.items():
                with busy_programs(number):
                    results.append(compare(workload, entrants, PLAN, Path(scratch), progress))
    for alone, crowded in zip(*found.values(), strict=True):
        print(text(alone, crowded, crowd), end="\n\n")
    if options.json:
        plain = {str(number): [asdict(result) for result in results] for number, results in found.items()}
        options.json.write_text(json.dumps({"machine": asdict(here), "strangers": plain}, indent=1) + "\n")


@contextmanager
def busy_programs(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many programs that always have something to do; each in a session of its own, or Linux has them share."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(number)]
    try:
        yield running
    finally:
        for program in running:
            program.kill()
            program.wait()


def text(alone: WorkloadResult, crowded: WorkloadResult, number: int) -> str:
    """One row per engine: steps/s alone, steps/s beside other programs, and the share that is left."""
    rows = []
    for name in [each.engine for each in alone.engines]:
        before, after = alone.of(name), crowded.of(name)
        if before and after:
            share = after.median / before.median
            rows.append([ENGINES[name].label, f"{before.median:,.0f}", f"{after.median:,.0f}", f"{share:.2f}"])
    header = [alone.workload.name, "steps/s alone", f"with {number} busy programs", "left"]
    return table(header, rows)


if __name__ == "__main__":
    main()
