"""What does the live page cost the training that it shows?

python benchmarks/watching.py              PPO on LunarLander-v3, watched and alone in turns: three minutes
python benchmarks/watching.py --publish    the same, into benchmarks/results/watching.json and docs/watch.md

Each run is `envfleet train` in a process of its own. A watched one has `--watch`, and this program asks its server for
what the page asks for, once a second.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from harness.publishing import Conditions, publish
from harness.report import table
from learning.jobs import machine_with_torch

from envfleet.cli import main as envfleet_main
from envfleet.train.watching.broadcast import Broadcast

PUBLISHED = Path(__file__).parent / "results" / "watching.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "watch.md"
SECTION = "watching"
SOURCE = "Measured by `python benchmarks/watching.py --publish`"
STEPS, TURNS = 600_000, 9
ALONE, WATCHED = "alone", "watched, with pictures"


def main() -> None:
    """Measure, print the table, publish it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"of each run, default {STEPS:,}")
    parser.add_argument("--turns", type=int, default=TURNS, metavar="N", help=f"of each side, default {TURNS}")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results and docs/watch.md")
    parser.add_argument("--one", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        sys.exit(timed_training(options.one))
    here = Conditions.announced(machine_with_torch())
    runs = measured(options.steps, options.turns)
    text = f"{text_of(runs)}\n\n{SOURCE} on {here.cores}: medians of {options.turns} turns, PPO with its preset."
    print(f"\n{text}")
    if options.publish:
        publish({**here.as_json(), "steps": options.steps, "runs": runs}, PUBLISHED, {SECTION: text}, PAGE)


def measured(steps: int, turns: int) -> dict[str, list[dict[str, float]]]:
    """Steps per second of every run, and the share of its time that went into being watched."""
    runs: dict[str, list[dict[str, float]]] = {ALONE: [], WATCHED: []}
    for turn in range(turns):
        for side in sorted(runs, reverse=bool(turn % 2)):
            runs[side].append(one_run(steps, watched=side == WATCHED))
            print(f"turn {turn + 1}, {side}: {runs[side][-1]}", flush=True)
    return runs


def one_run(steps: int, *, watched: bool) -> dict[str, float]:
    """A training from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        argv = (
            f"LunarLander-v3 --algo ppo --total-steps {steps} --eval-episodes 0 --no-showcase --run-dir {run}".split()
        )
        command = [sys.executable, __file__, "--one", *argv, *(["--watch"] if watched else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
            assert training.stdout is not None
            share = 0.0
            for line in training.stdout:
                if found := re.search(r"http://127\.0\.0\.1:\S+", line):
                    threading.Thread(target=look_at, args=(found[0],), daemon=True).start()
                elif line.startswith("share "):
                    share = float(line.split()[1])
        assert training.returncode == 0
        with (run / "metrics.csv").open() as file:
            last = list(csv.DictReader(file))[-1]
    return {"steps_per_second": float(last["step"]) / float(last["seconds"]), "share": share}


def look_at(address: str) -> None:
    """What the page does, until the server is gone."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    base = address.partition("/?")[0]
    try:
        opener.open(address).read()
        while True:
            (listed, *_) = json.loads(opener.open(f"{base}/api/runs").read()) or [None]
            if listed is not None:
                here = f"{base}/api/runs/{listed['key']}"
                opener.open(f"{here}/metrics").read()
                live: Any = json.loads(opener.open(f"{here}/live").read())
                for env, entry in enumerate(live.get("envs", ())):
                    if entry.get("picture"):
                        opener.open(f"{here}/frames/{env}").read()
            time.sleep(1)
    except OSError:
        return


def timed_training(argv: list[str]) -> int:
    """`envfleet train`, which says at its end what share of its time went into being watched."""
    look, spent = Broadcast.look, [0.0]

    def timed(self: Broadcast) -> Any:
        began = time.perf_counter()
        try:
            return look(self)
        finally:
            spent[0] += time.perf_counter() - began

    Broadcast.look = timed  # type: ignore[method-assign]
    code = envfleet_main(["train", *argv])
    with (Path(argv[argv.index("--run-dir") + 1]) / "metrics.csv").open() as file:
        seconds = float(list(csv.DictReader(file))[-1]["seconds"])
    print(f"share {spent[0] / seconds}", flush=True)
    return code


def text_of(runs: dict[str, list[dict[str, float]]]) -> str:
    """The table."""
    speeds = {side: [run["steps_per_second"] for run in found] for side, found in runs.items()}
    ratios = [ours / alone for ours, alone in zip(speeds[WATCHED], speeds[ALONE], strict=True)]
    low, *_, high = sorted(ratios)
    rows = []
    for side, found in runs.items():
        share = statistics.median(run["share"] for run in found)
        ratio = f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})" if side == WATCHED else "1"
        rows.append([side, f"{statistics.median(speeds[side]):,.0f}", ratio, f"{100 * share:.2f} %"])
    return table(["training", "steps/s", "of alone, in the same turn", "of its time for the page"], rows)


if __name__ == "__main__":
    main()
