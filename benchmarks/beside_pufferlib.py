"""PufferLib's vector environments and fleets, stepped with random actions in turns.

build/interop/pufferlib/bin/python benchmarks/beside_pufferlib.py             16 x LunarLander-v3, about two minutes
build/interop/pufferlib/bin/python benchmarks/beside_pufferlib.py --turns 3   a first look
build/interop/pufferlib/bin/python benchmarks/beside_pufferlib.py --publish   into results/coming_from.json and its page

`python tests/interop/run.py pufferlib` makes that environment. Ratios are taken within a turn.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pufferlib.emulation
import pufferlib.vector
from harness.gains import Result, publish

import envfleet

ENV_ID, NUM_ENVS, SEED = "LunarLander-v3", 16, 0
SERIAL = "PufferLib, Serial"


def make_env(buf: Any = None, seed: int = 0) -> Any:
    """One environment as PufferLib takes it."""
    return pufferlib.emulation.GymnasiumPufferEnv(env=gymnasium.make(ENV_ID), buf=buf, seed=seed)


def theirs(backend: Any, **how: Any) -> Any:
    """PufferLib's vector environment."""
    return pufferlib.vector.make(make_env, backend=backend, num_envs=NUM_ENVS, **how)


SIDES: dict[str, Callable[[], Any]] = {
    SERIAL: lambda: theirs(pufferlib.vector.Serial),
    "PufferLib, Multiprocessing": lambda: theirs(pufferlib.vector.Multiprocessing, num_workers=2),
    "envfleet, the caller's thread": lambda: envfleet.make_vec(ENV_ID, NUM_ENVS, "sync"),
    "envfleet, worker processes": lambda: envfleet.make_vec(ENV_ID, NUM_ENVS, "process"),
    "envfleet, compiled": lambda: envfleet.make_vec(ENV_ID, NUM_ENVS, "native"),
}


def steps_per_second(make: Callable[[], Any], actions: Any, seconds: float) -> float:
    """How many steps the environments make in a second, resets included.

    They are made for the turn and closed after it: PufferLib's idle workers would take the others' time.
    """
    envs = make()
    envs.reset(seed=SEED)
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for each in actions:
            envs.step(each)
        steps += actions.size
    elapsed = time.perf_counter() - begun
    envs.close()
    return steps / elapsed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="per side and turn")
    parser.add_argument("--publish", action="store_true", help="keep every figure, and write the page's table")
    options = parser.parse_args()
    load = os.getloadavg()
    actions = np.random.default_rng(SEED).integers(0, 4, (100, NUM_ENVS))
    result = Result("pufferlib", "stepping", SERIAL, {name: [] for name in SIDES})
    for _ in range(options.turns):
        for name, make in SIDES.items():
            result.speeds[name].append(steps_per_second(make, actions, options.seconds))
    print(result.text())
    if options.publish:
        publish([result], f"beside_pufferlib.py --turns {options.turns}", f"{NUM_ENVS} x {ENV_ID}", load)


if __name__ == "__main__":
    main()
