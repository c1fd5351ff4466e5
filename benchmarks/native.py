"""Measure native environments side by side with Gymnasium's own and, where installed, with EnvPool.

python benchmarks/native.py                                      CartPole, 8, 64 and 1024 environments, under a minute
python benchmarks/native.py --workloads Pendulum-v1:64           any id that exists in C++
python benchmarks/native.py --peers-venv PATH --json native.json EnvPool from a virtual environment of its own
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
from harness import machine
from harness.workloads import Workload

from envfleet import make_vec

PEER_SCRIPT = Path(__file__).with_name("envpool_turns.py")
WORKLOADS = [Workload.parse(f"CartPole-v1:{count}") for count in (8, 64, 1024)]

Turn = Callable[[float], float]
"""Steps for so many seconds; returns environment steps a second."""


def main() -> None:
    """Measure, print a table a workload, write the JSON."""
    options = parse_arguments()
    result: dict[str, Any] = {
        "machine": dataclasses.asdict(machine.this_machine()),
        "load_before": os.getloadavg(),
        "workloads": {},
    }
    for workload in options.workloads:
        figures = measure(workload, options)
        result["workloads"][f"{workload.env_id}:{workload.num_envs}"] = figures
        print(table(workload, figures), flush=True)
    result["load_after"] = os.getloadavg()
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", type=Workload.parse, default=WORKLOADS, metavar="ID:NUM_ENVS")
    parser.add_argument("--peers-venv", type=Path, metavar="PATH", help="a virtual environment with EnvPool")
    parser.add_argument("--slice", type=float, default=0.5, metavar="SECONDS", help="length of a turn, default 0.5")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns an engine, default 5")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file")
    return parser.parse_args()


def measure(workload: Workload, options: argparse.Namespace) -> dict[str, list[float]]:
    """Gives every engine its turns, one after another, so that whatever else runs hits all alike."""
    with ExitStack() as stack:
        turns = {name: make(stack, workload) for name, make in engines(workload).items()}
        if options.peers_venv:
            turns["envpool"] = envpool(stack, workload, options.peers_venv)
        figures: dict[str, list[float]] = {name: [] for name in turns}
        for turn in turns.values():
            turn(options.slice / 2)
        for _ in range(options.repeats):
            for name, turn in turns.items():
                figures[name].append(turn(options.slice))
        return figures


def engines(workload: Workload) -> dict[str, Callable[[ExitStack, Workload], Turn]]:
    """What runs in this process."""
    found: dict[str, Callable[[ExitStack, Workload], Turn]] = {
        "envfleet-native": lambda stack, work: native(stack, work, copy=True),
        "envfleet-native-live": lambda stack, work: native(stack, work, copy=False),
        "gymnasium-sync": lambda stack, work: gymnasiums(stack, work, "sync"),
    }
    if gymnasium.spec(workload.env_id).vector_entry_point is not None:
        found["gymnasium-vectorised"] = lambda stack, work: gymnasiums(stack, work, "vector_entry_point")
    return found


def native(stack: ExitStack, workload: Workload, *, copy: bool) -> Turn:
    """Our fleet."""
    envs = make_vec(workload.env_id, workload.num_envs, "native", {"copy": copy})
    return in_process(stack.enter_context(envs))


def gymnasiums(stack: ExitStack, workload: Workload, mode: str) -> Turn:
    """One of Gymnasium's."""
    envs = gymnasium.make_vec(workload.env_id, workload.num_envs, mode)
    stack.callback(envs.close)
    return in_process(envs)


def in_process(envs: Any) -> Turn:
    """Turns of a vector environment in this process."""
    envs.action_space.seed(0)
    envs.reset(seed=0)
    return stepper(envs.step, [envs.action_space.sample() for _ in range(64)], envs.num_envs)


def stepper(step: Callable[[Any], Any], actions: Sequence[Any], num_envs: int) -> Turn:
    """Steps through the actions again and again until the time is up. All rows count: resets are steps here."""

    def turn(seconds: float) -> float:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for action in actions:
                step(action)
            done += len(actions)
        return done * num_envs / (time.perf_counter() - begin)

    return turn


def envpool(stack: ExitStack, workload: Workload, venv: Path) -> Turn:
    """EnvPool in a process of its own: it wants other versions of what we use."""
    command = [str(venv / "bin" / "python"), str(PEER_SCRIPT), workload.env_id, str(workload.num_envs)]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdin is not None
    assert peer.stdout is not None
    stack.callback(peer.wait)
    stack.callback(peer.stdin.close)
    stdin, stdout = peer.stdin, peer.stdout

    def turn(seconds: float) -> float:
        stdin.write(f"{seconds}\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            sys.exit(f"EnvPool in {venv} gave no answer; it ended with {peer.wait()}.")
        return float(answer)

    return turn


def table(workload: Workload, figures: dict[str, list[float]]) -> str:
    """Medians, spread, and how many times faster ours is."""
    ours = statistics.median(figures["envfleet-native"])
    lines = [f"\n{workload.env_id}, {workload.num_envs} environments: steps/s, spread, µs a call, ours as a multiple"]
    for name, values in figures.items():
        median = statistics.median(values)
        spread = (max(values) - min(values)) / median
        call = 1e6 * workload.num_envs / median
        lines.append(f"  {name:22}{median:>14,.0f}{spread:>8.0%}{call:>12.2f}{ours / median:>10.1f}x")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
