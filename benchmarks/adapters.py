"""Stable-Baselines3 on its own vector environments and on fleets: stepping, and A2C as a whole.

python benchmarks/adapters.py                       LunarLander-v3, 16 environments, about two minutes
python benchmarks/adapters.py --turns 3             a first look
python benchmarks/adapters.py --json FILE           every figure as well

The sides take turns, so that what else the machine does hits all alike. Ratios are taken within a turn.
It needs `pip install "envfleet[envs,sb3]"`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import torch
from harness.machine import this_machine
from harness.report import machine_text, table
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from envfleet.adapters.sb3 import make_sb3_vec_env

ENV_ID = "LunarLander-v3"
DUMMY = "DummyVecEnv"
SIDES: dict[str, Callable[[int], Any]] = {
    DUMMY: lambda n: make_vec_env(ENV_ID, n, seed=0),
    "SubprocVecEnv": lambda n: make_vec_env(
        ENV_ID, n, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    ),
    "envfleet, sync": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="sync"),
    "envfleet, process": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="process"),
    "envfleet, native": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="native"),
}
Turn: TypeAlias = Callable[[], int]


@dataclass
class Result:
    """Steps per second of each turn, by side."""

    what: str
    speeds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, side: str) -> float:
        """The median over the turns of how much faster than DummyVecEnv the side was."""
        return median(mine / dummy for mine, dummy in zip(self.speeds[side], self.speeds[DUMMY], strict=True))

    def text(self) -> str:
        """As a table."""
        rows = [
            [side, f"{median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}", f"{self.ratio(side):.2f}"]
            for side, speeds in self.speeds.items()
        ]
        return table([self.what, "steps/s", "turns", f"/ {DUMMY}"], rows)


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=16, metavar="N")
    parser.add_argument("--turns", type=int, default=11, metavar="N", help="per side and measurement, default 11")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    torch.set_num_threads(1)  # networks this small lose time on more
    here, load = this_machine(), os.getloadavg()
    print(f"{machine_text(here, load)}\n{options.num_envs} x {ENV_ID}, torch on one thread\n", flush=True)
    results = []
    for what, prepare in (("stepping", stepping), ("A2C.learn", learning)):
        results.append(measure(what, prepare, options.num_envs, options.turns))
        print(f"{results[-1].text()}\n", flush=True)
    if options.json:
        figures = {"machine": asdict(here), "load_before": load, "load_after": os.getloadavg()}
        figures["results"] = [asdict(result) for result in results]
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(what: str, prepare: Callable[[Any], Turn], num_envs: int, turns: int) -> Result:
    """Let all sides take turns; the first turn of each is not counted."""
    vec_envs = {side: make(num_envs) for side, make in SIDES.items()}
    ready = {side: prepare(vec_env) for side, vec_env in vec_envs.items()}
    result = Result(what, {side: [] for side in SIDES})
    for number in range(turns + 1):
        for side, turn in ready.items():
            begun = time.perf_counter()
            steps = turn()
            if number:
                result.speeds[side].append(steps / (time.perf_counter() - begun))
    for vec_env in vec_envs.values():
        vec_env.close()
    return result


def stepping(vec_env: Any, steps: int = 300) -> Turn:
    """Random actions, drawn beforehand."""
    actions = np.random.default_rng(0).integers(0, vec_env.action_space.n, (steps, vec_env.num_envs))
    vec_env.reset()

    def turn() -> int:
        for each in actions:
            vec_env.step(each)
        return int(actions.size)

    return turn


def learning(vec_env: Any, rollouts: int = 60) -> Turn:
    """A2C with Stable-Baselines3's settings: five steps per rollout."""
    model = A2C("MlpPolicy", vec_env, seed=0, device="cpu")
    steps = int(rollouts * model.n_steps * vec_env.num_envs)

    def turn() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return turn


if __name__ == "__main__":
    main()
