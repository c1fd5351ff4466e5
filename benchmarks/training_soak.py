"""Kill tiny training runs at random moments, go on with them, and compare each with the run that nobody disturbed.

python benchmarks/training_soak.py                        60 kills
python benchmarks/training_soak.py --kills 300            a few minutes
python benchmarks/training_soak.py --json results.json    the figures as well

Every run is a process of its own, killed with SIGKILL, SIGTERM or SIGINT: before its folder is there, while it begins,
learns, saves or resumes. Ends with exit code 1 if a run does not end with the very weights and rows of the undisturbed
one, or if processes or half-written files are left.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from harness.machine import this_machine
from harness.report import table

from envfleet.errors import FleetError
from envfleet.train import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, TrainConfig, resume, train
from envfleet.train.folders.weights import load_tensors
from envfleet.train.running import run as training_run

SMALL: dict[str, Any] = {"num_envs": 2, "hidden_sizes": (8,), "backend": "sync", "device": "cpu"}
OFF_POLICY: dict[str, Any] = {
    "learning_starts": 100,
    "batch_size": 16,
    "updates_per_step": 0.5,
    "total_steps": 600,
}
CONFIGS: tuple[TrainConfig, ...] = (
    A2CConfig("CartPole-v1", **SMALL, rollout_steps=32, critic_updates=2, total_steps=3_200),
    PPOConfig("CartPole-v1", **SMALL, rollout_steps=32, minibatch_size=32, epochs=2, total_steps=2_560),
    SACConfig("Pendulum-v1", **SMALL, **OFF_POLICY),
    TD3Config("Pendulum-v1", **SMALL, **OFF_POLICY),
    DQNConfig("CartPole-v1", **SMALL, **OFF_POLICY, priority_exponent=0.6),
)
SIGNALS = (signal.SIGKILL,) * 4 + (signal.SIGTERM, signal.SIGINT)
KILLS_A_RUN = 8
CHECKPOINT_SECONDS = 0.05
PATIENCE = 60.0
MOST_TROUBLES = 10
TIMES = ("seconds", "steps_per_second")
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Findings:
    """What was done, and what was wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)


def main() -> None:
    """Soak, print the tables, write the JSON."""
    options = parse_arguments()
    # Workers whose trainer was killed become our children, so that none can be overlooked.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    found, generator, started = Findings(), random.Random(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):  # then it was long enough
        warm_up(Path(folder))
        while found.kills.total() < options.kills and len(found.troubles) < MOST_TROUBLES:
            number = found.runs.total()
            soak_one(CONFIGS[number % len(CONFIGS)], number, Path(folder), generator, found)
            print(f"{found.kills.total()} kills, {found.runs.total()} runs", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    print(table(["signal", "times"], [[name, f"{count:,}"] for name, count in sorted(found.kills.items())]))
    print(table(["moment", "times"], [[name, f"{count:,}"] for name, count in sorted(found.moments.items())]))
    ended = ", ".join(f"{count} of {algo}" for algo, count in sorted(found.runs.items()))
    print(f"\n{found.runs.total()} runs compared ({ended}) in {seconds:.0f} s.")
    print("\n".join(found.troubles) or "Every run ended as the undisturbed one; nothing was left behind.")
    if options.json:
        content = {"machine": asdict(this_machine()), "seed": options.seed, "seconds": seconds, **vars(found)}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    sys.exit(bool(found.troubles))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60, metavar="N", help="at least, default 60")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, default 0")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file")
    return parser.parse_args()


def warm_up(folder: Path) -> None:
    """Import all that training imports, once: the runs are forked from here, and kills are to hit their work."""
    for config in CONFIGS:
        train(config, run_dir=folder / f"warm-{config.algo}", progress=False)


def soak_one(config: TrainConfig, number: int, folder: Path, generator: random.Random, found: Findings) -> None:
    """One run, disturbed until it has had enough, and compared."""
    backend: Literal["process", "sync"] = "process" if number % 4 == 3 else "sync"
    config = replace(config, seed=number, backend=backend)
    whole, run = folder / f"whole-{number}", folder / f"run-{number}"
    began = time.monotonic()
    ended(begin(config, whole, frequent=True))
    duration = time.monotonic() - began
    # Every third run saves as seldom as usual: killed, it has nothing but the checkpoint of its start.
    frequent = bool(number % 3)
    kills = 0
    while True:
        child = begin(config, run, frequent=frequent)
        last = kills >= KILLS_A_RUN
        code = ended(child) if last else disturbed(child, duration, run, generator, found)
        kills += not last
        if code not in (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            found.troubles.append(f"run {number} ({config.algo}): a process ended with {code}")
            break
        found.troubles += [f"run {number}: {left}" for left in left_processes()]
        if last:
            break
    found.runs[config.algo] += 1
    found.troubles += [f"run {number} ({config.algo}, {backend}): {what}" for what in differences(whole, run)]


def begin(config: TrainConfig, run: Path, *, frequent: bool) -> int:
    """A new process that starts the run, or goes on with it; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if frequent:
            training_run._CHECKPOINT_SECONDS, training_run._CHECKPOINT_SHARE = CHECKPOINT_SECONDS, 0.5
        if (run / "config.json").exists():
            resume(run, progress=False)
        else:
            train(config, run_dir=run, progress=False)
        code = 0
    except KeyboardInterrupt:  # before the run takes care of it, as after a second Ctrl-C
        code = 0
    except FleetError as error:
        print(f"{run.name}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def disturbed(child: int, duration: float, run: Path, generator: random.Random, found: Findings) -> int:
    """Kill the process at some moment, and return what it ended with; 0 if it had come to its end before."""
    kind = generator.choice(SIGNALS)
    time.sleep(generator.uniform(0, duration) * generator.choice((0.1, 1.0)))
    found.moments[moment(run)] += 1
    with suppress(ProcessLookupError):
        os.kill(child, kind)
    code = ended(child)
    if code or kind != signal.SIGKILL:  # or else it had come to its end before
        found.kills[kind.name] += 1
    return code


def moment(run: Path) -> str:
    """Where a run stood, as its folder tells."""
    if not (run / "config.json").exists():
        return "before it had begun"
    # Not rglob: it raises where a folder vanishes while it looks.
    if any(name.endswith(".partial") for _, folders, _ in os.walk(run) for name in folders):
        return "while it was writing a file"
    return "before its first row" if not (run / "metrics.csv").exists() else "while it was learning or resuming"


def ended(child: int) -> int:
    """Wait for a process; returns its exit code, negative for a signal."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise SystemExit(f"process {child} did not end within {PATIENCE:.0f} seconds")


def left_processes() -> list[str]:
    """Processes that outlive their trainer by more than ten seconds; all of them are children of ours by now."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if not pid:
            time.sleep(0.005)
    return ["processes are left"]


def differences(whole: Path, run: Path) -> list[str]:
    """What tells a disturbed run from the other, and what it has left behind."""
    found = [] if rows(whole) == rows(run) else ["other rows in metrics.csv"]
    for name, kind in (("actor", "actor weights"), ("critic", "critic weights"), ("checkpoint/latest", "checkpoint")):
        files = [path / f"{name}.safetensors" for path in (whole, run)]
        if name == "critic" and not any(file.exists() for file in files):  # DQN has none
            continue
        (one, _), (other, _) = (load_tensors(file, kind) for file in files)
        if one.keys() != other.keys() or any(not one[key].equal(other[key]) for key in one):
            found.append(f"other tensors in {name}")
    partial = [path.name for path in run.rglob("*") if path.name.startswith(".") or path.suffix == ".partial"]
    return found + ([f"left behind: {partial}"] if partial else [])


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics without those about time."""
    with (run / "metrics.csv").open() as file:
        return [{name: cell for name, cell in row.items() if name not in TIMES} for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
