"""Environments of gymnax by gymnax's own means and in a fleet, in one process, turn about.

python benchmarks/device.py             1,024 and 4,096 x CartPole, one step a call and scanned

Needs JAX and gymnax: build/interop/gymnax/bin/python has both once `make interop` was run. gymnax's own loop is that of
its documentation: one jitted function that splits the key and steps all environments by `vmap`, with its autoreset.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp

from envfleet.device import JaxVectorEnv

Run = Callable[[int], None]


def gymnax_alone(num_envs: int) -> tuple[Run, Run]:
    """Functions that take so many steps: one step a call, and scanned."""
    env, params = gymnax.make("CartPole-v1")
    actions = jnp.arange(num_envs, dtype=jnp.int32) % 2

    def step(key: Any, state: Any) -> Any:
        key, used = jax.random.split(key)
        keys = jax.random.split(used, num_envs)
        seen, state, *rest = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
        return key, state, (seen, *rest)

    one = jax.jit(step)
    key = jax.random.PRNGKey(0)
    now = [key, jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, num_envs), params)[1]]

    def stepped(steps: int) -> None:
        for _ in range(steps):
            now[0], now[1], shown = one(*now)
            jax.block_until_ready(shown)

    def turn(carry: Any, _: Any) -> Any:
        key, state, shown = step(*carry)
        return (key, state), shown[:4]

    loop = jax.jit(lambda key, state, steps: jax.lax.scan(turn, (key, state), None, steps), static_argnums=2)

    def scanned(steps: int) -> None:
        (now[0], now[1]), shown = loop(now[0], now[1], steps)
        jax.block_until_ready(shown)

    return stepped, scanned


def fleet(num_envs: int, arrays: Any) -> tuple[Run, Run]:
    """The same of a fleet that resets in the same step, as gymnax does."""
    envs = JaxVectorEnv("gymnax:CartPole-v1", num_envs, False, "SameStep", arrays=arrays)
    envs.reset(seed=0)
    actions: Any = jnp.arange(num_envs, dtype=jnp.int32) % 2

    def stepped(steps: int) -> None:
        for _ in range(steps):
            jax.block_until_ready(envs.step(actions)[0])

    def act(_: Any, observations: Any, key: Any) -> Any:  # noqa: ARG001  as rollout() calls it
        return actions, None

    def scanned(steps: int) -> None:
        jax.block_until_ready(envs.rollout(act, None, steps))

    return stepped, scanned


def rate(run: Run, num_envs: int, steps: int) -> float:
    """Environment steps per second."""
    began = time.perf_counter()
    run(steps)
    return num_envs * steps / (time.perf_counter() - began)


def compared(num_envs: int, steps: int, rounds: int) -> dict[str, Any]:
    """Medians, and the median of what a fleet makes of gymnax's own rate in the same round."""
    theirs, ours, host = gymnax_alone(num_envs), fleet(num_envs, "jax"), fleet(num_envs, "numpy")
    pairs = {"one step a call": (theirs[0], ours[0]), "scanned": (theirs[1], ours[1]), "NumPy": (theirs[0], host[0])}
    found: dict[str, Any] = {}
    for name, pair in pairs.items():
        for run in pair:
            run(steps)
        rates = [[rate(run, num_envs, steps) for run in pair] for _ in range(rounds)]
        alone, in_fleet = (statistics.median(column) for column in zip(*rates, strict=True))
        ratio = statistics.median(mine / other for other, mine in rates)
        found[name] = {"gymnax": round(alone), "fleet": round(in_fleet), "ratio": round(ratio, 2)}
    return found


def main() -> None:
    """Prints a line for each number of environments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    for num_envs in chosen.num_envs:
        print(num_envs, json.dumps(compared(num_envs, chosen.steps, chosen.rounds)), flush=True)


if __name__ == "__main__":
    main()
