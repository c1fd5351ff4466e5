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
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import machine, plot, report, tables
from harness.creation import compare_creation
from harness.engines import ENGINES
from harness.environments import BUSY
from harness.installation import PEERS_DIRECTORY, InstallationError, peer_python, peers
from harness.scaling import compare_workers
from harness.throughput import Entrant, Plan, compare
from harness.workloads import CHEETAH, CREATION_WORKLOAD, QUICK_WORKLOADS, WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
SECTIONS = ("throughput", "creation", "scaling", "training")
FULL, FULL_REPEATS = 0.06, 11
QUICK, QUICK_REPEATS = 0.06, 7
CREATIONS = 3
SCALING_WORKLOADS = (Workload(BUSY, 8), Workload(CHEETAH, 64))
TRAINING = ("--sections", "speed", "--steps", "10000", "--turns", "1", "--one-thread")
MOST_TRAINING_SECONDS = 300.0


def main() -> None:
    """Measure, write the result, its tables and its plot."""
    options = parse_arguments()
    if options.again:
        write(json.loads(options.again.read_text()), options.again)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{options.name or default_name(machine.this_machine())}.json"
    with tempfile.TemporaryDirectory() as scratch:
        for found in measure(options, Path(scratch)):
            # After every part: a run that is stopped loses only what it has not measured yet.
            path.write_text(json.dumps(found.as_json(), indent=1) + "\n")
    print(write(json.loads(path.read_text()), path))
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
    add("--quick", action="store_true", help="three workloads, fewer turns, throughput only")
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
    add("--repeats", type=int, metavar="N", help=f"turns an engine, default {FULL_REPEATS}")
    add("--peers", type=Path, default=PEERS_DIRECTORY, metavar="DIR", help="peers' environments, default build/peers")
    add("--output", type=Path, default=HERE / "results", metavar="DIR", help="default benchmarks/results")
    add("--name", help="of the files, default DATE-MACHINE")
    add("--again", type=Path, metavar="JSON", help="measure nothing, write tables and plot of an earlier result")
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {options.repeats}")
    options.sections = options.sections or (SECTIONS[:1] if options.quick else SECTIONS)
    options.workloads = options.workloads or (QUICK_WORKLOADS if options.quick else WORKLOADS)
    return options


def parse_workload(text: str) -> Workload:
    """The argparse type of ID:NUM_ENVS."""
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def measure(options: argparse.Namespace, scratch: Path) -> Iterator[report.Report]:
    """Run what was asked for; yields all that is known after every part.

    Engines run in `scratch`: MuJoCo writes its warnings to where it is started.
    """
    preset = Plan(QUICK, QUICK_REPEATS) if options.quick else Plan(FULL, FULL_REPEATS)
    plan = Plan(options.slice or preset.slice_seconds, options.repeats or preset.repeats)
    installed = install(options.engines, options.peers)
    entrants = [entrant(name, installed) for name in options.engines]
    begin = time.monotonic()
    found = report.Report(
        date=today(),
        command=command_of(options),
        seconds=0.0,
        machine=machine.this_machine(),
        load_before=os.getloadavg(),
        load_after=os.getloadavg(),
        plan=plan,
        creation_workload=options.creation,
        peers={name: {key: peer[key] for key in peer if key != "python"} for name, peer in installed.items()},
    )
    progress(report.machine_text(found.machine, found.load_before))
    for part in parts(options, entrants, found, scratch):
        news: dict[str, Any] = {name: (*getattr(found, name), *more) for name, more in part.items()}
        found = replace(found, **news, seconds=time.monotonic() - begin, load_after=os.getloadavg())
        yield found


Part = dict[str, Sequence[Any]]


def parts(
    options: argparse.Namespace, entrants: Sequence[Entrant], found: report.Report, scratch: Path
) -> Iterator[Part]:
    """What each measurement adds to the report, by the name of its field."""
    plan, cores = found.plan, found.machine.usable_cores
    if "throughput" in options.sections:
        for workload in options.workloads:
            yield {"throughput": [compare(workload, entrants, plan, scratch, progress)]}
    if "creation" in options.sections:
        yield {"creation": compare_creation(options.creation, entrants, CREATIONS, scratch, progress)}
    if "scaling" in options.sections:
        for workload in SCALING_WORKLOADS:
            yield {"scaling": compare_workers(workload, entrants, cores, plan, scratch, progress)}
    if "training" in options.sections:
        yield {"training": train(options.peers, scratch)}


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


def train(directory: Path, scratch: Path) -> list[dict[str, Any]]:
    """Training from beginning to end, against Stable-Baselines3: one result, or none if that failed, which is told."""
    path = scratch / "training.json"
    command = [sys.executable, str(HERE / "training_speed.py"), *TRAINING, "--peers-venv", str(directory / "sb3")]
    progress("training")
    # In a session of its own: out of time, the run that it has just started has to end with it.
    with subprocess.Popen(
        [*command, "--json", str(path)], stdout=subprocess.DEVNULL, cwd=scratch, start_new_session=True
    ) as process:
        try:
            code: int | None = process.wait(MOST_TRAINING_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if code != 0:
        progress("training took too long" if code is None else f"training ended with {code}")
        return []
    return [json.loads(path.read_text())]


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


def default_name(here: machine.Machine) -> str:
    """Date and machine, fit for a file: 2026-01-31-2-cores-some-processor."""
    processor = re.sub(r"\(\w+\)|\bCPU\b|@.*", "", here.processor)
    slug = re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")
    return f"{today()}-{here.usable_cores}-cores-{slug}"


def today() -> str:
    """In UTC: 2026-01-31."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
