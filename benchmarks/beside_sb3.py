"""Learning curves beside Stable-Baselines3's, with identical settings: PPO on CartPole-v1, SAC on Pendulum-v1.

python benchmarks/beside_sb3.py                             both, five seeds each
python benchmarks/beside_sb3.py --publish                   the same, into results, docs/ppo.md and docs/sac.md
python benchmarks/beside_sb3.py --only cartpole-ppo --seeds 0 1 2
python benchmarks/beside_sb3.py --quick                     a tiny form of both; nothing is learnt

The mean of our curve over the whole run may not be below the 95 % interval of theirs: the exit code is 1 if it is. The
tables show where on the way it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness.installation import PEERS_DIRECTORY, peer_python
from harness.installation import peers as known_peers
from harness.machine import Machine
from harness.pages import with_section
from harness.report import table
from learning.jobs import machine_with_torch
from peers.curves import COMPARISONS, CurveResult, compare, shortened

SEEDS = (0, 1, 2, 3, 4)
VENV = PEERS_DIRECTORY / "sb3"
PUBLISHED = Path(__file__).parent / "results" / "beside_sb3.json"
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"cartpole-ppo": DOCS / "ppo.md", "pendulum-sac": DOCS / "sac.md"}
SECTION = "beside Stable-Baselines3"
SOURCE = """\
Over the whole run envfleet must not be below the 95 % interval of Stable-Baselines3's mean: Student's t over the seeds.
In a single stretch it may be, by chance. Measured by `python benchmarks/beside_sb3.py --publish`
([every run](../benchmarks/results/beside_sb3.json))."""


def main() -> int:
    """Train both sides, print the curves, write the JSON."""
    options = parse_arguments()
    python = peer_python(known_peers()["sb3"], options.peers_venv, progress)
    chosen = [COMPARISONS[name] for name in options.only]
    chosen = [shortened(comparison) for comparison in chosen] if options.quick else chosen
    results = [compare(comparison, options.seeds, python, progress, steps=options.steps) for comparison in chosen]
    for result in results:
        print(f"\n{text_of(result)}")
    if options.publish:
        publish(results, machine_with_torch())
    return 0 if all(result.holds for result in results) else 1


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, add = list(COMPARISONS), parser.add_argument
    add("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    add("--seeds", nargs="+", type=int, metavar="SEED", help="two to ten, default 0 to 4, with --quick 0 and 1")
    add("--steps", type=int, default=0, metavar="N", help="environment steps of each run, default the comparison's own")
    add("--quick", action="store_true", help="runs of a second or two; nothing is learnt")
    add("--peers-venv", type=Path, default=VENV, metavar="DIR", help="its virtual environment, default build/peers/sb3")
    add("--publish", action="store_true", help="write benchmarks/results and the pages of PPO and SAC")
    options = parser.parse_args()
    if options.publish and (options.quick or len(options.only) < len(names)):
        parser.error("--publish is for all comparisons at their full length: leave out --only and --quick")
    options.seeds = options.seeds or (SEEDS[:2] if options.quick else SEEDS)
    if not 2 <= len(options.seeds) <= 10:
        parser.error(f"--seeds must be two to ten, got {len(options.seeds)}")
    return options


def text_of(result: CurveResult) -> str:
    """The two curves as a table, and what they say."""
    named = [*((f"{point.step:,.0f}", point) for point in result.points), ("all of it", result.whole)]
    rows = [
        [name, f"{point.ours:.1f}", f"{point.theirs:.1f}", f"{point.low:.1f}", "yes" if point.holds else "NO"]
        for name, point in named
    ]
    header = ["steps", "envfleet", "Stable-Baselines3", "its interval begins at", "not below"]
    verdict = "not below" if result.holds else "BELOW"
    seeds = f"{len(result.ours)} seeds, means of the training episodes that ended in each stretch"
    return f"## {result.name}: {verdict}\n\n{seeds}\n\n{table(header, rows)}"


def publish(results: Sequence[CurveResult], machine: Machine) -> None:
    """Keep every run in benchmarks/results, and show the tables on the pages of the algorithms."""
    plain = [{**asdict(result), "holds": result.holds} for result in results]
    PUBLISHED.write_text(json.dumps({"machine": asdict(machine), "comparisons": plain}, indent=1) + "\n")
    for result in results:
        page = PAGES[result.name]
        page.write_text(with_section(page.read_text(), SECTION, section_for(result)))


def section_for(result: CurveResult) -> str:
    """What the page of the algorithm shows: the table without its heading, and where it comes from."""
    _, tables = text_of(result).split("\n\n", 1)
    return f"{tables}\n\n{SOURCE}"


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
