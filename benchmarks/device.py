"""Environments written in JAX by their own library's means and in a fleet, turn about; and compiled ones inside JAX.

python benchmarks/device.py              all parts, each in a virtual environment of its own: ten minutes
python benchmarks/device.py gymnax       one part or some
python benchmarks/device.py --publish    all, into benchmarks/results and docs/jax.md

A library's own loop is that of its documentation: one jitted function that steps all environments, with the library's
own autoreset. A fleet resets in the same step, as they do.
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
        runs = parts["training"]["runs"]
        rows = [[seed, *(f"{run[name]:{form}}" for name, form in TRAINED.items())] for seed, run in runs.items()]
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
