"""Trainers of other libraries on their own vector environments and on fleets.

python benchmarks/adapters.py                              LunarLander-v3, 16 environments, about ten minutes
python benchmarks/adapters.py --libraries sb3 --turns 3    a first look at one of them
python benchmarks/adapters.py --publish                    into results/coming_from.json and docs/coming_from

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

from harness.gains import Result, publish
from harness.installation import interop_python, peers
from harness.machine import this_machine
from harness.report import machine_text
from trainers.measuring import ENV_ID, measure

LIBRARIES = ("sb3", "tianshou", "torchrl")


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), metavar="NAME")
    parser.add_argument("--num-envs", type=int, default=16, metavar="N")
    parser.add_argument("--turns", type=int, default=11, metavar="N", help="per side and loop, default 11")
    parser.add_argument("--publish", action="store_true", help="keep every figure, and write the pages' tables")
    parser.add_argument("--here", choices=LIBRARIES, metavar="NAME", help="only this one, in this process; prints JSON")
    options = parser.parse_args()
    if options.here:
        for result in measured_here(options.here, options.num_envs, options.turns):
            print(json.dumps(asdict(result)))
        return
    print(
        f"{machine_text(this_machine(), os.getloadavg())}\n{options.num_envs} x {ENV_ID}, torch on one thread\n",
        flush=True,
    )
    for library in options.libraries:
        load = os.getloadavg()
        results = measured_elsewhere(library, options.num_envs, options.turns)
        print("\n\n".join(result.text() for result in results), end="\n\n", flush=True)
        if options.publish:
            command = f"adapters.py --libraries {library} --turns {options.turns}"
            publish(results, command, f"{options.num_envs} x {ENV_ID}", load)


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
