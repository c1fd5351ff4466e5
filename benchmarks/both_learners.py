"""What LunarLander-v3 is learnt to with torch, beside what it is learnt to with the compiled learner.

python benchmarks/both_learners.py               A2C and PPO with their presets, five seeds each, with torch: 20 minutes
python benchmarks/both_learners.py --publish     the same, into benchmarks/results and docs/learner.md

The compiled learner's runs are those of `make bench-learning`, with the same presets and the same evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.publishing import publish
from harness.report import table
from learning.aggregates import stratified_interval
from learning.jobs import machine_with_torch
from learning.studies import EPISODES, SEEDS, SIDE_BY_SIDE, study_named

from envfleet.train import evaluate, train

HERE = Path(__file__).parent
PUBLISHED = HERE / "results" / "both_learners.json"
STUDIED = HERE / "learning" / "results"
PAGE = HERE.parent / "docs" / "learner.md"
SECTION = "learner returns"
SOURCE = "torch: `python benchmarks/both_learners.py --publish`; compiled code: `make bench-learning`"
STUDIES = ("lunarlander-a2c", "lunarlander-ppo")


def main() -> None:
    """Train, print the table, publish it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results and docs/learner.md")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one_run(options.one[0], int(options.one[1]))))
        return
    returns: dict[str, dict[str, float]] = {}
    for study in STUDIES:
        returns[study] = {str(seed): by_torch(study, seed) for seed in options.seeds}
    text = f"{text_of(returns)}\n\n{SOURCE}. Intervals are bootstrapped over the seeds."
    print(f"\n{text}")
    if options.publish:
        settings = {study: study_named(study).settings() for study in STUDIES}
        plain = {"machine": asdict(machine_with_torch()), "settings": settings, "episodes": EPISODES, "torch": returns}
        publish(plain, PUBLISHED, {SECTION: text}, PAGE)


def by_torch(study: str, seed: int) -> float:
    """The mean return of one seed, trained in a process of its own."""
    command = [sys.executable, __file__, "--one", study, str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = float(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(f"{study}, seed {seed}: {found:.1f}", flush=True)
    return found


def one_run(study: str, seed: int) -> float:
    """Train with torch, then play."""
    config: Any = replace(study_named(study).config(seed, SIDE_BY_SIDE), learner="torch")
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, run_dir=Path(folder) / "run", progress=False, loggers=())
        return evaluate(result.agent, episodes=EPISODES, backend=SIDE_BY_SIDE).mean_return


def text_of(returns: dict[str, dict[str, float]]) -> str:
    """Both learners' seeds: the interquartile mean of their returns, its interval, the worst."""
    rows = []
    for study in STUDIES:
        kept = json.loads((STUDIED / f"{study}.json").read_text())["seeds"]
        sides = {"torch": list(returns[study].values()), "compiled code": [seed["mean_return"] for seed in kept]}
        for name, found in sides.items():
            interval = stratified_interval([found])
            assert interval is not None
            spread = f"{interval.low:.1f} to {interval.high:.1f}"
            algo = study_named(study).algo.upper()
            rows.append([algo, name, str(len(found)), f"{interval.iqm:.1f}", spread, f"{min(found):.1f}"])
    return table(["LunarLander-v3", "learner", "seeds", "IQM", "95 %", "worst seed"], rows)


if __name__ == "__main__":
    main()
