"""Training against other libraries on LunarLander-v3: the same steps, the same return, and where our time goes.

python benchmarks/training_speed.py                                     everything, about an hour
python benchmarks/training_speed.py --sections speed                    the same settings only, a quarter of an hour
python benchmarks/training_speed.py --sections learners                 our compiled learner against torch, two minutes
python benchmarks/training_speed.py --sections profile --no-peers       half a minute
python benchmarks/training_speed.py --json results.json                 every figure as well
python benchmarks/training_speed.py --algos ppo --publish               one algorithm anew, in results and docs
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
from pathlib import Path

from harness.installation import PEERS_DIRECTORY, peer_python
from harness.installation import peers as known_peers
from harness.pages import with_section
from harness.report import machine_text
from learning.jobs import machine_with_torch
from peers import contests, verdicts
from peers.matches import ALGOS, SPEED_ALGOS
from peers.training_page import SECTION, training_section

SECTIONS = ("speed", "learners", "return", "profile")
FULL = contests.Plan(
    steps=50_000,
    turns=3,
    heat_steps=20_000,
    heat_rollouts=3,
    heats=3,
    seeds=(0, 1, 2, 3, 4),
    goals=(200.0, 230.0),
    most_seconds=math.inf,
)
QUICK = contests.Plan(
    steps=1,
    turns=1,
    heat_steps=2_000,
    heat_rollouts=1,
    heats=1,
    seeds=(0,),
    goals=(200.0, 230.0),
    most_seconds=2.0,
)
FEWEST_SEEDS = 3
FLAGS = ("quick", "one_thread", "no_peers", "no_rivals")
VENV = PEERS_DIRECTORY / "sb3"
PUBLISHED = Path(__file__).parent / "results" / "training_speed.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "training.md"


def main() -> None:
    """Measure, print the tables, write the JSON."""
    options = parse_arguments()
    report = measure(options, plan_of(options))
    print(f"\n{verdicts.report_text(report)}")
    if options.publish:
        options.json, options.add = PUBLISHED, True
    if options.json:
        earlier = json.loads(options.json.read_text()) if options.add and options.json.exists() else {}
        options.json.write_text(json.dumps(verdicts.merged(earlier, report.as_json()), indent=2) + "\n")
    if options.publish:
        section = training_section(json.loads(PUBLISHED.read_text()))
        PAGE.write_text(with_section(PAGE.read_text(), SECTION, section))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    add("--algos", nargs="+", choices=SPEED_ALGOS, default=SPEED_ALGOS, metavar="ALGO", help=", ".join(SPEED_ALGOS))
    add("--steps", type=int, metavar="N", help=f"environment steps per turn, default {FULL.steps:,}")
    add("--turns", type=int, metavar="N", help=f"turns a contestant, default {FULL.turns}")
    add("--seeds", nargs="+", type=int, metavar="SEED", help="of the runs to a return, three or more, default 0 to 4")
    add("--goals", nargs="+", type=float, metavar="RETURN", help="to reach, the lowest first, default 200 230")
    add("--time-budget", type=float, metavar="SECONDS", help="to reach them in; by default each side's own steps")
    add("--quick", action="store_true", help="one rollout per turn, two seconds to reach a return")
    add("--one-thread", action="store_true", help="peers with one thread of torch only")
    add("--no-peers", action="store_true", help="leave everybody else out")
    add("--no-rivals", action="store_true", help="leave everybody but Stable-Baselines3 out")
    add("--peers-venv", type=Path, default=VENV, metavar="DIR", help="its virtual environment, default build/peers/sb3")
    add("--json", type=Path, metavar="PATH", help="write every figure to this file")
    add("--publish", action="store_true", help="add the figures to benchmarks/results and write docs/training.md")
    add("--add", action="store_true", help="keep what the file has of other sections and algorithms")
    options = parser.parse_args()
    for name, value in (("--steps", options.steps), ("--turns", options.turns)):
        if value is not None and value < 1:
            parser.error(f"{name} must be 1 or more, got {value}")
    if options.seeds and len(set(options.seeds)) < FEWEST_SEEDS and not options.quick:
        parser.error(f"--seeds must be {FEWEST_SEEDS} or more, of fewer a median says nothing; got {options.seeds}")
    if options.goals and sorted(set(options.goals)) != options.goals:
        parser.error(f"--goals must grow, got {' '.join(map(str, options.goals))}")
    return options


def plan_of(options: argparse.Namespace) -> contests.Plan:
    """How much was asked for."""
    preset = QUICK if options.quick else FULL
    return contests.Plan(
        steps=options.steps or preset.steps,
        turns=options.turns or preset.turns,
        heat_steps=preset.heat_steps,
        heat_rollouts=preset.heat_rollouts,
        heats=preset.heats,
        seeds=tuple(options.seeds or preset.seeds),
        goals=tuple(options.goals or preset.goals),
        most_seconds=options.time_budget or preset.most_seconds,
    )


def measure(options: argparse.Namespace, plan: contests.Plan) -> verdicts.Report:
    """Run what was asked for."""
    alone = options.no_peers or set(options.sections) <= {"learners", "profile"}
    python = None if alone else peer_python(known_peers()["sb3"], options.peers_venv, progress)
    here, load_before = machine_with_torch(), os.getloadavg()
    print(machine_text(here, load_before), flush=True)
    wanted = {section: options.algos if section in options.sections else () for section in SECTIONS}
    to_a_return = [algo for algo in options.algos if algo in ALGOS]
    return verdicts.Report(
        command=command_of(options),
        machine=here,
        load_before=load_before,
        profile=tuple(contests.profile(algo, plan) for algo in wanted["profile"] if algo in to_a_return),
        speed=tuple(
            contests.compare_speed(
                algo,
                plan,
                python,
                progress,
                one_thread=options.one_thread,
                python_of=None if options.no_rivals else rival_python,
            )
            for algo in wanted["speed"]
        ),
        time_to_return=tuple(
            contests.compare_time_to_return(algo, plan, python, progress)
            for algo in wanted["return"]
            if algo in to_a_return
        ),
        learners=tuple(contests.compare_learners(algo, plan, progress) for algo in wanted["learners"]),
        load_after=os.getloadavg(),
        plan=plan,
    )


def rival_python(name: str) -> str:
    """The interpreter of a peer's environment below build/peers, which is made first if there is none."""
    return peer_python(known_peers()[name], PEERS_DIRECTORY / name, progress)


def command_of(options: argparse.Namespace) -> str:
    """What to type to get the same figures, wherever the files lie."""
    words = ["python", "benchmarks/training_speed.py"]
    for name in ("sections", "algos", "seeds", "goals"):
        chosen = getattr(options, name)
        words += [f"--{name}", *map(str, chosen)] if chosen and isinstance(chosen, list) else []
    for name in ("steps", "turns", "time_budget"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", f"{value:g}"] if value else []
    words += [f"--{name.replace('_', '-')}" for name in FLAGS if getattr(options, name)]
    return shlex.join(words)


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
