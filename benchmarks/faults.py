"""The kill matrix: what becomes of a vector environment, ours or a peer's, when one of its environments fails.

`python benchmarks/faults.py` runs every fault in every contestant, each in a process of its own, and writes
results/faults.json and results/faults.md. Runs of a part replace that part and leave the rest as it is.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_matrix import tables, verdicts
from fault_matrix.contestants import ALL, FAULTS, NO_FAULT, QUICK, Contestant
from fault_matrix.measuring import Cell
from fault_matrix.verdicts import FAILED, NOT_APPLICABLE, RAISED, Facts, left
from harness.installation import PEERS_DIRECTORY, InstallationError, peer_python
from harness.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "faults.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run cells and write the tables."""
    chosen = _parse(arguments)
    contestants = [each for each in ALL if any(each.name.startswith(name) for name in chosen.only)]
    if not contestants:
        raise SystemExit(f"--only {' '.join(chosen.only)}: choose from {', '.join(each.name for each in ALL)}")
    faults = QUICK if chosen.quick else tuple(chosen.faults)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(lambda each: run(each, faults, chosen.output), contestants))
    print(f"\nwritten: {chosen.output} and {chosen.output.with_suffix('.md')}")


def run(contestant: Contestant, faults: Sequence[str], output: Path) -> None:
    """One contestant's cells, each saved as soon as it is known."""
    try:
        peer = contestant.peer
        python = peer_python(peer, PEERS_DIRECTORY / peer.name, _say) if peer else sys.executable
    except InstallationError as error:
        for fault in faults:
            save(output, contestant.name, fault, {"outcome": FAILED, "reason": str(error)})
        return
    for fault, facts in _cells(contestant, faults, python):
        _say(f"{contestant.label:27} {FAULTS[fault]:42} {tables.verdict(facts)}")
        save(output, contestant.name, fault, facts)


def save(path: Path, contestant: str, fault: str, facts: Facts) -> None:
    """Put a cell into the JSON, beside whatever else it holds, and make the tables from it; one at a time."""
    machine = this_machine()
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = json.loads(file.read() or '{"cells": {}}')
        found["machine"] = {"platform": machine.platform, "cores": machine.usable_cores, "processor": machine.processor}
        found["cells"].setdefault(contestant, {})[fault] = facts
        file.truncate(0)
        file.write(json.dumps(found, indent=1, sort_keys=True) + "\n")
        file.flush()
        path.with_suffix(".md").write_text(tables.page(found["cells"], found["machine"]))


def _cells(contestant: Contestant, faults: Sequence[str], python: str) -> Iterator[tuple[str, Facts]]:
    """First an undisturbed run, which says what rows there should be, then the faults."""
    reference = Cell(contestant, NO_FAULT, python).run()
    yield NO_FAULT, verdicts.compare(reference, reference) if "answers" in reference else reference
    for fault in faults:
        if fault in contestant.cannot:
            yield fault, {"outcome": NOT_APPLICABLE, "reason": contestant.cannot[fault]}
        elif reference["outcome"] == FAILED:
            yield fault, {"outcome": FAILED, "reason": "it failed to run without a fault"}
        elif fault != NO_FAULT:
            facts = _measured(contestant, fault, python)
            facts.pop("versions", None)
            yield fault, verdicts.compare(facts, reference) if "answers" in facts else facts


def _measured(contestant: Contestant, fault: str, python: str) -> Facts:
    """One cell. After an error the fleet tries to go on; if that did not end well, a second run closes it at once."""
    facts = Cell(contestant, fault, python, go_on=True).run()
    if facts["outcome"] == RAISED and (facts["ended_by"] != "itself" or facts["close"] != "ok" or left(facts)):
        again = Cell(contestant, fault, python).run()
        facts |= {
            name: again[name] for name in ("close", "close_limit", "ended_by", "exit_code", "left") if name in again
        }
    return facts


def _say(line: str) -> None:
    print(line, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="contestants whose names begin so")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=FAULTS, metavar="FAULT")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--jobs", type=int, default=2, help="contestants at once; figures get less exact")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
