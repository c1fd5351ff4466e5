"""Trainers of other libraries on their own vector environments and on fleets.

python benchmarks/adapters.py                              LunarLander-v3, 16 environments, about ten minutes
python benchmarks/adapters.py --libraries sb3 --turns 3    a first look at one of them
python benchmarks/adapters.py --json FILE                  every figure as well

The sides of a library take turns in one process, so that what else the machine does hits all alike. Ratios are taken
within a turn. Libraries are installed first, each in a virtual environment of its own: those of `make interop`.
Stable-Baselines3 is in ours.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from harness.installation import interop_python, peers
from harness.machine import this_machine
from harness.report import machine_text
from trainers.measuring import ENV_ID, Result, measure

LIBRARIES = ("sb3", "tianshou", "torchrl")


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), metavar="NAME")
    parser.add_argument("--num-envs", type=int, default=16, metavar="N")
    parser.add_argument("--turns", type=int, default=11, metavar="N", help="per side and loop, default 11")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--here", choices=LIBRARIES, metavar="NAME", help="only this one, in this process; prints JSON")
    options = parser.parse_args()
    if options.here:
        for result in measured_here(options.here, options.num_envs, options.turns):
            print(json.dumps(asdict(result)))
        return
    here, load = this_machine(), os.getloadavg()
    print(f"{machine_text(here, load)}\n{options.num_envs} x {ENV_ID}, torch on one thread\n", flush=True)
    results = []
    for library in options.libraries:
        for result in measured_elsewhere(library, options.num_envs, options.turns):
            print(f"{result.text()}\n", flush=True)
            results.append(result)
    if options.json:
        figures = {"machine": asdict(here), "load_before": load, "load_after": os.getloadavg()}
        figures["results"] = [asdict(result) for result in results]
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def measured_elsewhere(library: str, num_envs: int, turns: int) -> list[Result]:
    """All loops of a library, measured by the Python that has it."""
    python = sys.executable if library == "sb3" else interop_python(peers()[library], progress=_say)
    command = [python, "-W", "ignore", __file__, "--here", library, "--num-envs", str(num_envs), "--turns", str(turns)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Result(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def measured_here(library: str, num_envs: int, turns: int) -> list[Result]:
    """All loops of a library that is installed here."""
    import torch

    torch.set_num_threads(1)  # networks this small lose time on more
    module = importlib.import_module(f"trainers.{library}")
    results = []
    for what, prepare in module.LOOPS.items():
        results.append(Result(library, what, module.BASELINE))
        measure(results[-1], module.SIDES, prepare, num_envs, turns)
    return results


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
