"""A hundred episodes of HalfCheetah-v5: how long an evaluation takes, and how long the environments alone need.

python benchmarks/evaluation.py              medians of five interleaved turns: a minute
python benchmarks/evaluation.py --publish    the same, into benchmarks/results and docs/learner.md

The agent's networks are those that training starts with: what they play takes as long as what a trained one plays, for
every episode has 1,000 steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch
from harness.publishing import Conditions, publish
from harness.report import table
from learning.jobs import machine_with_torch

from envfleet import make_vec
from envfleet.train import Agent, PPOConfig, evaluate, train

ENV, COPIES, EPISODE = "HalfCheetah-v5", 10, 1_000
PUBLISHED = Path(__file__).parent / "results" / "evaluation.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "learner.md"
SECTION = "learner evaluation"
SOURCE = "Measured by `python benchmarks/evaluation.py --publish`"


def main() -> None:
    """Measure, print the table, publish it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="of each turn, default 100")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each contestant, default 5")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results and docs/learner.md")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in training
    here = Conditions.announced(machine_with_torch())
    seconds = measured(options.episodes, options.turns)
    source = f"{SOURCE} on {here.cores}: medians of {options.turns} interleaved turns."
    text = f"{text_of(seconds, options.episodes)}\n\n{source}"
    print(f"\n{text}")
    if options.publish:
        result = {**here.as_json(), "episodes": options.episodes, "seconds": seconds}
        publish(result, PUBLISHED, {SECTION: text}, PAGE)


def measured(episodes: int, turns: int) -> dict[str, list[float]]:
    """The seconds of every turn, by contestant."""
    compiled = beginner()
    by_torch = dataclasses.replace(compiled.config, learner="torch")
    in_torch = Agent(by_torch, compiled.actor, compiled.observation_space, compiled.action_space, compiled.device)
    contestants: dict[str, Callable[[], object]] = {
        "the environments alone": lambda: steps_alone(episodes),
        "`evaluate`": lambda: evaluate(compiled, episodes=episodes, num_envs=COPIES, backend="native"),
        "`evaluate`, policy in torch": lambda: evaluate(in_torch, episodes=episodes, num_envs=COPIES, backend="native"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def beginner() -> Agent:
    """An agent that has learnt next to nothing."""
    config = PPOConfig(ENV, num_envs=1, rollout_steps=64, total_steps=64, eval_every=0)
    with tempfile.TemporaryDirectory() as folder:
        return train(config, run_dir=Path(folder) / "run", progress=False, loggers=()).agent


def steps_alone(episodes: int) -> None:
    """As many steps of the same fleet, with actions that are there before."""
    with closing(make_vec(ENV, COPIES, backend="native", vector_kwargs={"copy": False})) as envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(EPISODE)]
        for _ in range(episodes // COPIES):
            for some in actions:
                envs.step(some)


def text_of(seconds: dict[str, list[float]], episodes: int) -> str:
    """The table: each contestant's median, and what it is of the environments'."""
    medians = {name: statistics.median(turns) for name, turns in seconds.items()}
    alone = medians["the environments alone"]
    rows = [[name, f"{median:.2f}", f"{median / alone:.2f}"] for name, median in medians.items()]
    return table([f"{episodes} episodes of {ENV}", "seconds", "of the environments alone"], rows)


if __name__ == "__main__":
    main()
