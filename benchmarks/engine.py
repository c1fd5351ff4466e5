"""Measure the engines side by side: Gymnasium's vector environments, envfleet's, and one environment alone.

python benchmarks/engine.py                                    everything, about five minutes
python benchmarks/engine.py --quick --workloads CartPole-v1:64 a first look
python benchmarks/engine.py --json results.json                the figures of every repeat as well
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import creation, engines, machine, report, throughput
from harness.workloads import CREATION_WORKLOAD, WORKLOADS, Workload

FULL = throughput.Plan(slice_seconds=1.0, repeats=5)
QUICK = throughput.Plan(slice_seconds=0.2, repeats=3)


def main() -> None:
    """Measure, print tables as they become ready, write the JSON."""
    options = parse_arguments()
    json_path = options.json.resolve() if options.json else None
    with scratch_directory():
        result = measure(options)
    if result.verdicts:
        print(f"\n{report.verdicts_text(result.verdicts)}")
    if json_path:
        json_path.write_text(json.dumps(result.as_json(), indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(f"{workload.env_id}:{workload.num_envs}" for workload in WORKLOADS)
    parser.add_argument(
        "--workloads",
        nargs="*",
        type=parse_workload,
        default=WORKLOADS,
        metavar="ID:NUM_ENVS",
        help=f"default: {known}",
    )
    parser.add_argument(
        "--engines",
        nargs="+",
        choices=engines.ENGINES,
        default=engines.ENGINES,
        metavar="ENGINE",
        help=f"default: {', '.join(engines.ENGINES)}",
    )
    parser.add_argument("--slice", type=float, metavar="SECONDS", help="length of one turn, default 1.0")
    parser.add_argument("--repeats", type=int, metavar="N", help="turns an engine and creations, default 5")
    parser.add_argument("--quick", action="store_true", help="turns of 0.2 s, three repeats")
    parser.add_argument(
        "--creation",
        type=parse_workload,
        default=CREATION_WORKLOAD,
        metavar="ID:NUM_ENVS",
        help="the fleet to create, default LunarLander-v3:64",
    )
    parser.add_argument("--no-creation", action="store_true", help="leave out the creation benchmark")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file")
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {options.repeats}")
    return options


def parse_workload(text: str) -> Workload:
    """The argparse type of ID:NUM_ENVS."""
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def measure(options: argparse.Namespace) -> report.Report:
    """Run what was asked for."""
    preset = QUICK if options.quick else FULL
    plan = throughput.Plan(
        slice_seconds=preset.slice_seconds if options.slice is None else options.slice,
        repeats=preset.repeats if options.repeats is None else options.repeats,
    )
    here, load_before = machine.this_machine(), os.getloadavg()
    print(report.machine_text(here, load_before))
    results = []
    for chosen in options.workloads:
        results.append(throughput.compare(chosen, options.engines, plan, progress))
        print(f"\n{report.throughput_text(results[-1])}", flush=True)
    created: tuple[creation.CreationResult, ...] = ()
    if not options.no_creation:
        created = creation.compare_creation(options.creation, plan.repeats, progress)
        print(f"\n{report.creation_text(options.creation, created)}")
    return report.Report(here, load_before, os.getloadavg(), plan, tuple(results), options.creation, created)


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def scratch_directory() -> Iterator[None]:
    """Run somewhere else for a while: MuJoCo writes its warnings to a log in the current directory."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(home)


if __name__ == "__main__":
    main()
