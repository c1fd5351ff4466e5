"""Kill, crash, hang and raise at random in a fleet that restarts, and compare every transition with an oracle's.

python benchmarks/soak.py                        two minutes
python benchmarks/soak.py --minutes 240          hours, if asked
python benchmarks/soak.py --kills 10000          until so many processes were killed from outside
python benchmarks/soak.py --faults 10000         until so many things went wrong, of all kinds
python benchmarks/soak.py --json results.json    the figures as well

Ends with exit code 1 if a transition was lost or wrong, or if memory, open files, processes or threads grew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from harness.machine import this_machine
from harness.report import machine_text, table
from soaking.trial import STEP_TIMEOUT, Findings, Plan, Trial
from soaking.vitals import Vitals

CONSTANT = ("processes", "threads", "descriptors", "shared_files")
LOOKS_WRITTEN = 31
WARM_UP = 30.0
ENOUGH_LOOKS = 8
MEMORY_SLACK = 4 * 2**20
COLD_MEMORY_SLACK = 16 * 2**20


def main() -> None:
    """Soak, print the tables, write the JSON."""
    options = parse_arguments()
    print(machine_text(this_machine(), os.getloadavg()), end="\n\n", flush=True)
    plan = plan_of(options)
    trial = Trial(plan)
    # Told of every copy that comes back, which is what some environments here are for.
    warnings.filterwarnings("ignore", "Environment .* forked", RuntimeWarning)
    with suppress(KeyboardInterrupt):  # then it was long enough
        trial.run()
    found = trial.findings
    troubles = [*found.wrong, *grown(found.vitals)]
    print(report_text(found, troubles))
    if options.json:
        options.json.write_text(json.dumps(as_json(plan, found, troubles), indent=2) + "\n")
    sys.exit(bool(troubles))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--minutes", type=float, metavar="M", help="to go on for, default 2, or until --kills or --faults is reached")
    add("--kills", type=int, default=0, metavar="N", help="processes to kill from outside, at least")
    add("--faults", type=int, default=0, metavar="N", help="of all kinds, at least")
    add("--threads", type=int, default=2, metavar="N", help="of the caller, busy all the while, default 2")
    add("--no-step-timeout", action="store_true", help="nothing may hang then, but stopped workers are waited for")
    add("--num-envs", type=int, default=8, metavar="N", help="default 8")
    add("--num-workers", type=int, default=4, metavar="N", help="default 4")
    add("--start-method", choices=("fork", "spawn", "forkserver"), default="fork", help="default fork")
    add("--seed", type=int, default=0, help="of the mishaps, default 0")
    add("--json", type=Path, metavar="PATH", help="write every figure to this file")
    options = parser.parse_args()
    if not 0 < options.num_workers <= options.num_envs:
        parser.error(f"--num-workers must lie in 1..{options.num_envs}, got {options.num_workers}")
    return options


def plan_of(options: argparse.Namespace) -> Plan:
    """How much was asked for."""
    minutes = options.minutes if options.minutes is not None else 0.0 if options.kills or options.faults else 2.0
    return Plan(
        minutes * 60,
        options.kills,
        options.num_envs,
        options.num_workers,
        options.start_method,
        options.seed,
        hangs=not options.kills and not options.no_step_timeout,
        faults=options.faults,
        threads=options.threads,
        step_timeout=None if options.no_step_timeout else STEP_TIMEOUT,
    )


def grown(vitals: list[Vitals]) -> list[str]:
    """What there is more of, and stays."""
    first, last = vitals[0], vitals[-(len(vitals) // 4 or 1) :]
    found = [
        f"{name}: {getattr(first, name)} at the beginning, at least {least} in the last looks"
        for name in CONSTANT
        if (least := min(getattr(look, name) for look in last)) > getattr(first, name)
    ]
    return found + memory_growth(vitals)


def memory_growth(vitals: list[Vitals]) -> list[str]:
    """Whether memory grew after processes have imported and allocated what they need: from one half to the other."""
    warm = [look for look in vitals if look.seconds >= WARM_UP]
    looks, slack = (warm, MEMORY_SLACK) if len(warm) >= ENOUGH_LOOKS else (vitals, COLD_MEMORY_SLACK)
    half = len(looks) // 2
    before, after = (median(look.memory_bytes for look in some) for some in (looks[:half], looks[half:]))
    if after <= before + slack:
        return []
    return [f"memory: {_mib(before)} in the first half, {_mib(after)} in the second"]


def report_text(found: Findings, troubles: list[str]) -> str:
    """What was done, what the system held, and the verdict."""
    done = [[name, f"{count:,}"] for name, count in sorted(found.mishaps.items())]
    names = (*CONSTANT, "memory")
    looks = [[name, *(_shown(look, name) for look in _some(found.vitals))] for name in names]
    header = ["held", *(f"{look.seconds:,.0f} s" for look in _some(found.vitals))]
    verdict = "\n".join(troubles[:10]) or "Nothing was lost, nothing was wrong, nothing grew."
    compared = (
        f"{found.faults:,} faults, {found.transitions:,} transitions compared; environments restarted "
        f"{found.restarts:,} times, and rebuilt without a trace {found.rebuilt:,} times."
    )
    return f"{table(['mishap', 'times'], done)}\n\n{table(header, looks)}\n\n{compared}\n{verdict}"


def _some(vitals: list[Vitals], count: int = 5) -> list[Vitals]:
    """The first, the last, and some between."""
    places = sorted({round(i * (len(vitals) - 1) / (count - 1)) for i in range(count)})
    return [vitals[place] for place in places]


def _shown(vitals: Vitals, name: str) -> str:
    return _mib(vitals.memory_bytes) if name == "memory" else str(getattr(vitals, name))


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def as_json(plan: Plan, found: Findings, troubles: list[str]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "machine": asdict(this_machine()),
        "plan": asdict(plan),
        "faults": found.faults,
        "transitions": found.transitions,
        "restarts": found.restarts,
        "rebuilt": found.rebuilt,
        "mishaps": dict(found.mishaps),
        "vitals": [asdict(vitals) for vitals in _some(found.vitals, LOOKS_WRITTEN)],
        "troubles": troubles,
    }


if __name__ == "__main__":
    main()
