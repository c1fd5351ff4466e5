"""Old defaults against new ones, on environments that neither were chosen for: five seeds of each.

python benchmarks/defaults/run.py                                   everything, one run after the other: about an hour
python benchmarks/defaults/run.py --envs FrozenLake-v1 --algos ppo --seeds 0 1
python benchmarks/defaults/run.py --report                          only write the table again

Runs that are done already are not run again (--fresh runs them again), whatever part of them an earlier call made.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from learning.jobs import machine_with_torch

from defaults import environments, report
from defaults.results import Outcome, ResultFile
from defaults.trials import CASES, EPISODES, SEEDS, SETTINGS, Case, Settings
from envfleet.train import evaluate, train

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run what is missing, write the results, print them."""
    options = parse_arguments()
    environments.register()
    file = ResultFile(options.results / "defaults.json")
    about = {"command": "python benchmarks/defaults/run.py", "machine": asdict(machine_with_torch())}
    for seed, case, settings in () if options.report else product(options.seeds, options.cases, SETTINGS):
        known = {(run.settings, run.seed) for run in file.read(case)}
        if options.fresh or (settings, seed) not in known:
            outcome = one_run(case, settings, seed)
            file.add(case, outcome, about)
            progress(f"{case.name}, {settings}, seed {seed}: {outcome.mean_return:.2f} in {outcome.seconds:.0f} s")
    found = {case: file.read(case) for case in CASES}
    (options.results / "README.md").write_text(report.page_text(found))
    print(report.comparisons_text(found))
    return 0


def one_run(case: Case, settings: Settings, seed: int) -> Outcome:
    """Train and evaluate; of the run itself nothing is kept."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(case.config(settings, seed), run_dir=Path(folder) / "run", progress=False, loggers=())
        played = evaluate(result.agent, episodes=EPISODES, backend=case.backend)
    return Outcome(settings, seed, played.mean_return, result.mean_return, result.step, round(result.seconds, 1))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    envs, algos = (list(dict.fromkeys(getattr(case, name) for case in CASES)) for name in ("env_id", "algo"))
    parser.add_argument("--envs", nargs="+", choices=envs, default=envs, metavar="ENV", help=", ".join(envs))
    parser.add_argument("--algos", nargs="+", choices=algos, default=algos, metavar="ALGO", help=", ".join(algos))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED", help="default 0 to 4")
    parser.add_argument("--fresh", action="store_true", help="run again what is done already")
    parser.add_argument("--report", action="store_true", help="run nothing, write the table from what is there")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the results go")
    options = parser.parse_args()
    options.cases = [case for case in CASES if case.env_id in options.envs and case.algo in options.algos]
    return options


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # as in training: on a busy machine two would mostly wait for each other
    sys.exit(main())
