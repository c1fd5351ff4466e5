"""What `device.py` measures in the environment of one library: the library's own loop, and a fleet."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness.cases import Case, Run, measured
from harness.machine import versions

from envfleet import make_vec
from envfleet.device import JaxVectorEnv

Step = Callable[[Any], Any]
"""From a loop's state to the next one and what a step shows: what a library's own loop does."""


def result_of(part: str, rounds: int) -> dict[str, Any]:
    """What is known of a part, for the JSON."""
    packages = {"brax": ["brax"], "playground": ["playground", "mujoco-mjx"], "native": ["envpool"]}
    told = {"versions": versions(["jax", *packages.get(part, ["gymnax"])])}
    if part == "costs":
        return {**told, "costs": costs()}
    if part == "training":
        return {**told, "runs": training()}
    return {**told, "rows": measured(_CASES[part](), rounds)}


# --- loops -----------------------------------------------------------------------------------------------------


def called(step: Step, state: Any) -> Run:
    """One step a call, each waited for, as a program does that looks at what came."""
    compiled, now = jax.jit(step), [state]

    def run(steps: int) -> None:
        for _ in range(steps):
            now[0], shown = compiled(now[0])
            jax.block_until_ready(shown)

    return run


def scanned(step: Step, state: Any) -> Run:
    """All steps in one call, keeping what they show."""
    loop = jax.jit(lambda state, steps: jax.lax.scan(lambda now, _: step(now), state, None, steps), static_argnums=1)
    now = [state]

    def run(steps: int) -> None:
        now[0], shown = loop(now[0], steps)
        jax.block_until_ready(shown)

    return run


def fleet_called(envs: JaxVectorEnv, actions: Any) -> Run:
    """One step a call of a fleet."""

    def run(steps: int) -> None:
        for _ in range(steps):
            jax.block_until_ready(envs.step(actions)[0])

    return run


def fleet_scanned(envs: JaxVectorEnv, actions: Any) -> Run:
    """All steps in one `rollout`."""

    def act(_: Any, observations: Any, key: Any) -> Any:  # noqa: ARG001  as rollout() calls it
        return actions, None

    return lambda steps: jax.block_until_ready(envs.rollout(act, None, steps)) and None


def made_fleet(what: Any, num_envs: int, arrays: Any = "jax", **env_kwargs: Any) -> JaxVectorEnv:
    """A fleet that resets in the same step, ready to be stepped."""
    envs = JaxVectorEnv(what, num_envs, False, "SameStep", arrays=arrays, env_kwargs=env_kwargs)
    envs.reset(seed=0)
    return envs


# --- parts -----------------------------------------------------------------------------------------------------


def gymnax_cases() -> Iterator[Case]:
    """CartPole of gymnax by its documentation's loop: split keys, `vmap` of its step, which resets by itself.

    Both sides return all that a step has: gymnax's infos have the observations before resets, as ours.
    """
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    for num_envs in (1024, 4096):
        actions = jnp.arange(num_envs, dtype=jnp.int32) % 2

        def step(now: Any, num_envs: int = num_envs, actions: Any = actions) -> Any:
            key, state = now
            key, used = jax.random.split(key)
            keys = jax.random.split(used, num_envs)
            seen, state, *rest = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
            return (key, state), (seen, *rest)

        key = jax.random.PRNGKey(0)
        begin = key, jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, num_envs), params)[1]
        name, id_ = f"{num_envs:,} x CartPole-v1 (gymnax)", "gymnax:CartPole-v1"
        on_device, on_host = made_fleet(id_, num_envs), made_fleet(id_, num_envs, "numpy")
        one = {
            "gymnax": called(step, begin),
            "arrays of JAX": fleet_called(on_device, actions),
            "arrays of NumPy": fleet_called(on_host, actions),
        }
        yield Case(f"{name}, one step a call", num_envs, 256, one)
        both = {"gymnax": scanned(step, begin), "fleet": fleet_scanned(on_device, actions)}
        yield Case(f"{name}, scanned", num_envs, 256, both)


def brax_cases() -> Iterator[Case]:
    """Ant of Brax with the wrappers that `brax.envs.create` puts around it."""
    from brax import envs as brax_envs

    num_envs = 256
    env = brax_envs.create("ant", batch_size=num_envs)
    yield from _brax_like("brax", "ant", env, num_envs, 8, "Brax")


def playground_cases() -> Iterator[Case]:
    """CartpoleBalance of MuJoCo Playground with the wrappers that it trains with."""
    from mujoco_playground import registry, wrapper

    num_envs = 1024
    made = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    env = wrapper.wrap_for_brax_training(made)
    yield from _brax_like("playground", "CartpoleBalance", env, num_envs, 16, "MuJoCo Playground")


def _brax_like(family: str, env_id: str, env: Any, num_envs: int, steps: int, library: str) -> Iterator[Case]:
    keys = jax.random.split(jax.random.PRNGKey(0), num_envs)
    begin = jax.jit(env.reset)(jax.random.PRNGKey(0) if family == "brax" else keys)
    actions = 0.1 * jnp.ones((num_envs, env.action_size), jnp.float32)

    def step(state: Any) -> Any:
        state = env.step(state, actions)
        return state, (state.obs, state.reward, state.done)

    envs = made_fleet(f"{family}:{env_id}", num_envs)
    name = f"{num_envs:,} x {env_id} ({library})"
    one = {library: called(step, begin), "fleet": fleet_called(envs, actions)}
    yield Case(f"{name}, one step a call", num_envs, steps, one)
    both = {library: scanned(step, begin), "fleet": fleet_scanned(envs, actions)}
    yield Case(f"{name}, scanned", num_envs, steps, both)


def native_cases() -> Iterator[Case]:
    """Compiled CartPoles: stepped from Python, and inside one compiled function of JAX; EnvPool's likewise."""
    num_envs = 1024
    actions = np.arange(num_envs) % 2
    outside, inside = (make_vec("CartPole-v1", num_envs, "native") for _ in range(2))
    outside.reset(seed=0), inside.reset(seed=0)

    def run(steps: int) -> None:
        for _ in range(steps):
            outside.step(actions)

    handle, _, step = inside.xla()
    on_device = jnp.asarray(actions)

    def turn(handle: Any) -> Any:
        handle, (_, rewards, *_) = step(handle, on_device)
        return handle, rewards

    contestants = {"from Python": run, "in `lax.scan`": scanned(turn, handle)}
    yield Case(f"{num_envs:,} x CartPole-v1", num_envs, 1000, {**contestants, **_envpool(num_envs)})


def _envpool(num_envs: int) -> dict[str, Run]:
    try:
        import envpool
    except Exception as error:
        print(f"no EnvPool: {error}")
        return {}
    actions = np.arange(num_envs, dtype=np.int32) % 2
    outside, inside = (envpool.make_gymnasium("CartPole-v1", num_envs=num_envs, seed=0) for _ in range(2))
    outside.reset(), inside.reset()

    def run(steps: int) -> None:
        for _ in range(steps):
            outside.step(actions)

    handle, _, _, step = inside.xla()
    on_device = jnp.asarray(actions)

    def turn(handle: Any) -> Any:
        handle, (_, rewards, *_) = step(handle, on_device)
        return handle, rewards

    return {"EnvPool, from Python": run, "EnvPool, in `lax.scan`": scanned(turn, handle)}


_CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "gymnax": gymnax_cases,
    "brax": brax_cases,
    "playground": playground_cases,
    "native": native_cases,
}


# --- what costs what -------------------------------------------------------------------------------------------


def costs(counts: tuple[int, ...] = (1, 64, 1024, 16384)) -> dict[str, Any]:
    """Seconds to compile, and microseconds a step, for several numbers of CartPoles."""
    values: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        values.setdefault(name, []).append(value)

    for num_envs in counts:
        actions = jnp.arange(num_envs, dtype=jnp.int32) % 2
        began = time.perf_counter()
        envs = made_fleet("gymnax:CartPole-v1", num_envs)
        jax.block_until_ready(envs.step(actions)[0])
        note("seconds until the first step", time.perf_counter() - began)
        began = time.perf_counter()
        run = fleet_scanned(envs, actions)
        run(128)
        note("seconds until the first rollout", time.perf_counter() - began)
        on_host = made_fleet("gymnax:CartPole-v1", num_envs, "numpy")
        native = make_vec("CartPole-v1", num_envs, "native", autoreset_mode="SameStep")
        native.reset(seed=0)
        note("µs a step in `rollout`", _microseconds(run))
        note('µs a step, arrays="jax"', _microseconds(fleet_called(envs, actions)))
        note('µs a step, arrays="numpy"', _microseconds(fleet_called(on_host, actions)))
        plain = np.asarray(actions, np.int64)
        note('µs a step, backend="native"', _microseconds(partial(_stepped, native, plain)))
    return {"num_envs": list(counts), "values": values}


def _stepped(envs: Any, actions: Any, steps: int) -> None:
    for _ in range(steps):
        envs.step(actions)


def _microseconds(run: Run, steps: int = 128, turns: int = 7) -> float:
    """Of one step: the median of some turns, after one that is not counted."""
    taken = []
    for _ in range(turns + 1):
        began = time.perf_counter()
        run(steps)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]) / steps * 1e6)


# --- training --------------------------------------------------------------------------------------------------


def training(seeds: tuple[int, ...] = (0, 1, 2, 0), goal: float = 475.0) -> list[dict[str, Any]]:
    """PPO with its preset on gymnax's CartPole until an evaluation returns 475, each run a process of its own.

    The seconds are those from the start of the process to its end, imports and compilation included.
    """
    found = []
    for seed in seeds:
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, __file__, str(seed), str(goal)], stdout=subprocess.PIPE, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        seconds = {"seconds": time.perf_counter() - began, "processor_seconds": spent}
        found.append({"seed": seed, **seconds, **json.loads(done.stdout.splitlines()[-1])})
        print(found[-1], file=sys.stderr, flush=True)
    return found


def _trained(seed: int, goal: float) -> dict[str, Any]:
    """One such run: its steps, its best evaluation, and all evaluations."""
    from envfleet.train import preset, train

    chosen = preset("gymnax:CartPole-v1", "ppo")
    config = replace(chosen, seed=seed, eval_every=131_072, eval_episodes=20, stop_at_return=goal)
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, run_dir=Path(folder) / "run", progress=False, loggers=())
        with (result.run_dir / "metrics.csv").open() as file:
            curve = [(row["step"], row["eval_return"]) for row in csv.DictReader(file) if row["eval_return"]]
    return {"steps": result.step, "eval_return": result.best_return or 0.0, "curve": curve}


if __name__ == "__main__":
    print(json.dumps(_trained(int(sys.argv[1]), float(sys.argv[2]))))
