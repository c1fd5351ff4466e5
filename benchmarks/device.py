"""Environments written in JAX by their own library's means and in a fleet, turn about; and compiled ones inside JAX.

python benchmarks/device.py              all parts, each in a virtual environment of its own: eight minutes
python benchmarks/device.py gymnax       one part or some
python benchmarks/device.py --publish    all, into benchmarks/results and docs/jax.md

A library's own loop is that of its documentation: one jitted function that steps all environments, with the library's
own autoreset. A fleet resets in the same step, as they do. At the end a line says of each goal whether it was met.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cases import ratio_of
from harness.contestant import NOT_INHERITED
from harness.installation import InstallationError, interop_python, jax_peers
from harness.machine import this_machine
from harness.publishing import Conditions, publish
from harness.report import table

HERE = Path(__file__).parent
PUBLISHED = HERE / "results" / "device.json"
PAGE = HERE.parent / "docs" / "jax.md"
SOURCE = "Measured by `python benchmarks/device.py --publish`"
PARTS = {
    "gymnax": "gymnax",
    "brax": "brax",
    "playground": "playground",
    "native": "envpool_xla",
    "costs": "gymnax",
    "training": "gymnax",
}
"""Each part, and whose environment it is measured in: those of `make interop`, and one with EnvPool."""

GOALS = {
    "1,024 x CartPole-v1 (gymnax), one step a call: arrays of JAX": ("gymnax", 1.0),
    "4,096 x CartPole-v1 (gymnax), one step a call: arrays of JAX": ("gymnax", 1.0),
    "1,024 x CartPole-v1 (gymnax), scanned: fleet": ("gymnax", 0.95),
    "4,096 x CartPole-v1 (gymnax), scanned: fleet": ("gymnax", 0.95),
    "256 x ant (Brax), one step a call: fleet": ("brax", 0.95),
    "256 x ant (Brax), scanned: fleet": ("brax", 0.95),
    "1,024 x CartPole-v1: in `lax.scan`": ("native", 0.9),
}
"""A case and one of its contestants; the part, and what that should make at least of the first one's rate."""

MOST_SECONDS, GOAL_RETURN = 20.0, 475.0
"""What a training run should take at most, and reach at least."""

TRAINED = {"seconds": ".1f", "processor_seconds": ".1f", "steps": ",.0f", "eval_return": ".0f"}
"""What is noted of a training run, and how it is written."""


def main() -> None:
    """Measure the parts asked for, print the tables, publish them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each contestant, default 9")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results and docs/jax.md")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        import device_cases

        (part,) = options.parts
        print(json.dumps(device_cases.result_of(part, options.rounds)))
        return
    here = Conditions.announced(this_machine())
    parts = {part: elsewhere(part, options.rounds) for part in options.parts or PARTS}
    for part in parts.values():
        part |= {**here.as_json(), "rounds": options.rounds}
    for text in sections_of(parts, here.cores, options.rounds).values():
        print(f"\n{text}")
    print("\n" + "\n".join(verdicts(parts)))
    if options.publish:
        before = json.loads(PUBLISHED.read_text())["parts"] if PUBLISHED.exists() else {}
        every = {**before, **parts}
        publish({"parts": every}, PUBLISHED, sections_of(every, here.cores, options.rounds), PAGE)


def elsewhere(part: str, rounds: int) -> dict[str, Any]:
    """The result of a part, from a process of its own in the environment that has what it needs."""
    try:
        python = interop_python(jax_peers()[PARTS[part]], lambda text: print(text, flush=True))
    except InstallationError as error:
        return {"error": str(error)}
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    command = [python, str(HERE / "device.py"), part, "--here", "--rounds", str(rounds)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def sections_of(parts: dict[str, Any], where: str, rounds: int) -> dict[str, str]:
    """The tables of the page, by section."""
    source = f"{SOURCE} on {where}: medians of {rounds} interleaved turns."
    sections = {}
    if beside := [part for part in ("gymnax", "brax", "playground") if part in parts]:
        rows = [line for part in beside for line in _beside_rows(parts[part])]
        heads = ["environment steps per second", "by its own library", "in a fleet", "times its library's"]
        sections["device beside"] = f"{table(heads, rows)}\n\n{source} {_versions(parts[part] for part in beside)}"
    if "native" in parts:
        rows = [line for row in parts["native"].get("rows", ()) for line in _all_rows(row)]
        heads = ["1,024 x CartPole-v1", "environment steps per second", "times the fleet from Python"]
        sections["device native"] = f"{table(heads, rows)}\n\n{source} {_versions([parts['native']])}"
    if "training" in parts:
        runs = parts["training"].get("runs", ())
        rows = [[str(run["seed"]), *(f"{run[name]:{form}}" for name, form in TRAINED.items())] for run in runs]
        heads = ["seed", "seconds", "seconds of processor", "environment steps", "evaluated return"]
        source = f"{SOURCE} on {where}. {_versions([parts['training']])}"
        sections["device training"] = f"{table(heads, rows)}\n\n{source}"
    if "costs" in parts:
        costs = parts["costs"]["costs"]
        heads = ["CartPole", *(f"{count:,}" for count in costs["num_envs"])]
        rows = [
            [name, *(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)]
            for name, values in costs["values"].items()
        ]
        sections["device costs"] = f"{table(heads, rows)}\n\n{SOURCE} on {where}. {_versions([parts['costs']])}"
    return sections


def verdicts(parts: dict[str, Any]) -> list[str]:
    """A line per goal that was measured: what was wanted, what came."""
    lines = []
    for name, (part, least) in GOALS.items():
        case, _, contestant = name.partition(": ")
        for row in (row for row in parts.get(part, {}).get("rows", ()) if case in row["case"]):
            ratio = ratio_of(row, contestant)
            lines.append(_verdict(name, ratio >= least, f"{ratio:.2f}, wanted {least}"))
    if runs := parts.get("training", {}).get("runs"):
        slowest = max(run["seconds"] for run in runs)
        lines.append(_verdict("475 from the start of the process", slowest <= MOST_SECONDS, f"{slowest:.1f} s at most"))
        least_return = min(run["eval_return"] for run in runs)
        lines.append(_verdict("475 reached by every seed", least_return >= GOAL_RETURN, f"{least_return:.0f} at least"))
        curves = [[run["curve"] for run in runs if run["seed"] == seed] for seed in {run["seed"] for run in runs}]
        same = all(curve == of_seed[0] for of_seed in curves for curve in of_seed)
        lines.append(_verdict("the same seed gives the same curve", same, "seed 0 twice"))
    return [*lines, *(f"NOT MEASURED  {part}: {told['error']}" for part, told in parts.items() if "error" in told)]


def _verdict(goal: str, is_met: bool, found: str) -> str:
    return f"{'met    ' if is_met else 'NOT MET'}  {goal}: {found}"


def _beside_rows(part: dict[str, Any]) -> list[list[str]]:
    lines = []
    for row in part.get("rows", ()):
        own, *ours = row["rates"]
        theirs = f"{statistics.median(row['rates'][own]):,.0f}"
        for name in ours:
            told = f"{row['case']}{'' if len(ours) == 1 else f', {name}'}"
            lines.append([told, theirs, f"{statistics.median(row['rates'][name]):,.0f}", f"{ratio_of(row, name):.2f}"])
    return lines


def _all_rows(row: dict[str, Any]) -> list[list[str]]:
    return [
        [name, f"{statistics.median(rates):,.0f}", f"{ratio_of(row, name):.2f}"] for name, rates in row["rates"].items()
    ]


def _versions(parts: Iterable[dict[str, Any]]) -> str:
    found: dict[str, str] = {}
    for part in parts:
        found |= part.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in found.items()) + "."


if __name__ == "__main__":
    main()
