"""Every engine, the same work, one run: envfleet against everyone else on this machine.

python benchmarks/bench.py                                       everything, under half an hour
python benchmarks/bench.py --quick                               a first look, under three minutes
python benchmarks/bench.py --workloads CartPole-v1:64 --engines envfleet-native envpool
python benchmarks/bench.py --again benchmarks/results/NAME.json  tables and plot of an earlier result
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import machine, plot, report, tables
from harness.creation import CreationResult, compare_creation
from harness.engines import ENGINES
from harness.environments import BUSY
from harness.installation import PEERS_DIRECTORY, InstallationError, peer_python, peers
from harness.scaling import compare_workers
from harness.throughput import Entrant, Plan, compare
from harness.workloads import CHEETAH, CREATION_WORKLOAD, QUICK_WORKLOADS, WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
SECTIONS = ("throughput", "creation", "scaling", "training")
FULL, FULL_REPEATS = 0.4, 3
QUICK, QUICK_REPEATS = 0.2, 3
SCALING_WORKLOADS = (Workload(BUSY, 8), Workload(CHEETAH, 64))
TRAINING = ("--sections", "speed", "--steps", "10000", "--turns", "2")


def main() -> None:
    """Measure, write the result, its tables and its plot."""
    options = parse_arguments()
    if options.again:
        result = json.loads(options.again.read_text())
        write(result, options.again)
        return
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(options, Path(scratch))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{options.name or default_name(found)}.json"
    result = json.loads(json.dumps(found.as_json()))
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(write(result, path))
    progress(f"written: {path}, and .md and .png beside it")


def write(result: dict[str, Any], path: Path) -> str:
    """Writes the tables and the plot beside a result; returns the tables."""
    text = tables.markdown(result)
    path.with_suffix(".md").write_text(text)
    if result["throughput"]:
        plot.save_plot(result, path.with_suffix(".png"))
    return text


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="three workloads, turns of 0.2 s, no scaling and no training")
    add("--sections", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    add("--workloads", nargs="+", type=parse_workload, metavar="ID:NUM_ENVS[+policy]", help="default: all")
    add(
        "--engines",
        nargs="+",
        choices=ENGINES,
        default=list(ENGINES),
        metavar="ENGINE",
        help=f"default: {', '.join(ENGINES)}",
    )
    add("--creation", type=parse_workload, default=CREATION_WORKLOAD, metavar="ID:NUM_ENVS", help="the fleet to create")
    add("--slice", type=float, metavar="SECONDS", help=f"length of one turn, default {FULL:g}")
    add("--repeats", type=int, metavar="N", help=f"turns an engine and creations, default {FULL_REPEATS}")
    add("--peers", type=Path, default=PEERS_DIRECTORY, metavar="DIR", help="peers' environments, default build/peers")
    add("--output", type=Path, default=HERE / "results", metavar="DIR", help="default benchmarks/results")
    add("--name", help="of the files, default DATE-MACHINE")
    add("--again", type=Path, metavar="JSON", help="measure nothing, write tables and plot of an earlier result")
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {options.repeats}")
    options.sections = options.sections or (SECTIONS[:2] if options.quick else SECTIONS)
    options.workloads = options.workloads or (QUICK_WORKLOADS if options.quick else WORKLOADS)
    return options


def parse_workload(text: str) -> Workload:
    """The argparse type of ID:NUM_ENVS."""
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def measure(options: argparse.Namespace, scratch: Path) -> report.Report:
    """Run what was asked for. Engines run in `scratch`: MuJoCo writes its warnings to where it is started."""
    preset = Plan(QUICK, QUICK_REPEATS) if options.quick else Plan(FULL, FULL_REPEATS)
    plan = Plan(options.slice or preset.slice_seconds, options.repeats or preset.repeats)
    installed = install(options.engines, options.peers)
    entrants = [entrant(name, installed) for name in options.engines]
    here, load_before, begin = machine.this_machine(), os.getloadavg(), time.monotonic()
    progress(report.machine_text(here, load_before))
    wanted = {section: section in options.sections for section in SECTIONS}
    throughput = [
        compare(each, entrants, plan, scratch, progress) for each in options.workloads if wanted["throughput"]
    ]
    creation: tuple[CreationResult, ...] = ()
    if wanted["creation"]:
        creation = compare_creation(options.creation, entrants, plan.repeats, scratch, progress)
    scaling = [
        found
        for workload in SCALING_WORKLOADS
        if wanted["scaling"]
        for found in compare_workers(workload, entrants, here.usable_cores, plan, scratch, progress)
    ]
    training = train(options.peers, scratch) if wanted["training"] else None
    return report.Report(
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        command=command_of(options),
        seconds=time.monotonic() - begin,
        machine=here,
        load_before=load_before,
        load_after=os.getloadavg(),
        plan=plan,
        throughput=tuple(throughput),
        creation_workload=options.creation,
        creation=creation,
        scaling=tuple(scaling),
        peers={name: {key: peer[key] for key in peer if key != "python"} for name, peer in installed.items()},
        training=training,
    )


def install(names: Sequence[str], directory: Path) -> dict[str, dict[str, str]]:
    """Install the peers of these engines; for each its `package` and its `python`, or its `error`."""
    known = peers()
    found: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(peer for engine in names if (peer := ENGINES[engine].peer)):
        found[name] = {"package": known[name].package}
        try:
            found[name]["python"] = peer_python(known[name], directory / name, progress)
        except InstallationError as error:
            progress(f"{name}: {error}")
            found[name]["error"] = str(error)
    return found


def entrant(name: str, installed: Mapping[str, Mapping[str, str]]) -> Entrant:
    """An engine with the Python that has it."""
    engine = ENGINES[name]
    if engine.peer is None:
        return Entrant(engine, sys.executable)
    peer = installed[engine.peer]
    return Entrant(engine, peer.get("python", ""), peer.get("error"))


def train(directory: Path, scratch: Path) -> dict[str, Any] | None:
    """Training from beginning to end, against Stable-Baselines3; None if that failed, which is told."""
    path = scratch / "training.json"
    command = [sys.executable, str(HERE / "training_speed.py"), *TRAINING, "--peers-venv", str(directory / "sb3")]
    progress("training")
    done = subprocess.run([*command, "--json", str(path)], stdout=subprocess.DEVNULL, cwd=scratch, check=False)
    if done.returncode:
        progress("training failed")
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def command_of(options: argparse.Namespace) -> str:
    """What to type to get the same figures, wherever the files lie."""
    words = ["python", "benchmarks/bench.py"]
    words += ["--quick"] if options.quick else []
    if tuple(options.engines) != tuple(ENGINES):
        words += ["--engines", *options.engines]
    if options.workloads not in (QUICK_WORKLOADS, WORKLOADS):
        suffixes = {True: "+policy", False: ""}
        words += [
            "--workloads",
            *(f"{each.env_id}:{each.num_envs}{suffixes[each.policy]}" for each in options.workloads),
        ]
    for name in ("slice", "repeats"):
        value = getattr(options, name)
        words += [f"--{name}", f"{value:g}"] if value else []
    return shlex.join(words)


def default_name(found: report.Report) -> str:
    """Date and machine, fit for a file: 2026-01-31-2-cores-some-processor."""
    processor = re.sub(r"\(\w+\)|\bCPU\b|@.*", "", found.machine.processor)
    slug = re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")
    return f"{found.date}-{found.machine.usable_cores}-cores-{slug}"


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
