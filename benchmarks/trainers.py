"""Stepping through other libraries' own calls: on their vector environments and on fleets.

python benchmarks/trainers.py cleanrl                                       16 x CartPole-v1, a minute
build/interop/skrl/bin/python benchmarks/trainers.py skrl                   a library of `make interop`
python benchmarks/trainers.py baselines --env-id LunarLander-v3 --turns 3   another environment, a first look
python benchmarks/trainers.py cleanrl --publish                             into results/coming_from.json and its page

Sides: the library's own vector environment, and fleets in worker processes and compiled. They take turns, so that what
else the machine does hits all alike; ratios are taken within a turn. Actions are drawn beforehand.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from harness.gains import Result, publish

import envfleet
from envfleet.backends import BackendName

Step: TypeAlias = Callable[[Any], Any]
Sides: TypeAlias = dict[str, Step]
STEPS = 300
OURS: tuple[BackendName, ...] = ("process", "native")


def cleanrl(env_id: str, n: int) -> Sides:
    """SyncVectorEnv with statistics in each environment; a fleet with statistics around it."""
    from envfleet.wrappers import RecordEpisodeStatistics

    def make_env() -> Any:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(env_id))

    fleets = _of_each(lambda backend: RecordEpisodeStatistics(envfleet.make_vec(env_id, n, backend)))
    return _begun({"SyncVectorEnv": gymnasium.vector.SyncVectorEnv([make_env] * n), **fleets})


def baselines(env_id: str, n: int) -> Sides:
    """Environments in a list, each reset when its episode ends; a fleet."""
    from envfleet.adapters.baselines import as_vec_env

    same_step = AutoresetMode.SAME_STEP
    fleets = _of_each(lambda backend: as_vec_env(envfleet.make_vec(env_id, n, backend, autoreset_mode=same_step)))
    return {"one by one": _one_by_one(env_id, n), **_begun(fleets)}


def spinning_up(env_id: str, n: int) -> Sides:
    """Environments one by one, as workers on one core have them; a fleet without autoreset."""
    disabled = AutoresetMode.DISABLED
    fleets = _of_each(lambda backend: _masked(envfleet.make_vec(env_id, n, backend, autoreset_mode=disabled)))
    return {"one by one": _one_by_one(env_id, n), **fleets}


def agilerl(env_id: str, n: int) -> Sides:
    """What make_vect_envs makes; fleets."""
    from agilerl.utils.utils import make_vect_envs

    fleets = _of_each(lambda backend: envfleet.make_vec(env_id, n, backend))
    return _begun({"make_vect_envs": make_vect_envs(env_id, n), **fleets})


def skrl(env_id: str, n: int) -> Sides:
    """Gymnasium's SyncVectorEnv and fleets, all in skrl's wrapper."""
    import torch
    from skrl.envs.wrappers.torch import wrap_env

    made: dict[str, Any] = {"SyncVectorEnv": gymnasium.make_vec(env_id, n, "sync")}
    made |= _of_each(lambda backend: envfleet.make_vec(env_id, n, backend))
    wrapped = {name: wrap_env(envs, wrapper="gymnasium", verbose=False) for name, envs in made.items()}
    for env in wrapped.values():
        env.reset()
    return {name: partial(_tensor_step, torch.as_tensor, env) for name, env in wrapped.items()}


def _tensor_step(as_tensor: Any, env: Any, actions: Any) -> None:
    env.step(as_tensor(actions)[:, None])


def sample_factory(env_id: str, n: int) -> Sides:
    """Sample Factory's own vector environment; fleets."""
    from sample_factory.algo.utils.make_env import BatchedVecEnv, SequentialVectorizeWrapper

    from envfleet.adapters.sample_factory import creator

    singles = [BatchedVecEnv(gymnasium.make(env_id)) for _ in range(n)]
    made: dict[str, Any] = {"SequentialVectorizeWrapper": SequentialVectorizeWrapper(singles)}
    return _begun(made | _of_each(lambda backend: BatchedVecEnv(creator(env_id, n, backend)("fleet"))))


def rllib(env_id: str, n: int) -> Sides:
    """What env runners step: with RLlib's wrapper, which makes lists of infos."""
    from ray.rllib.env.single_agent_env_runner import DictInfoToList

    from envfleet.adapters.rllib import creator

    made: dict[str, Any] = {"SyncVectorEnv": gymnasium.make_vec(env_id, n, "sync")}
    made |= _of_each(lambda backend: creator(env_id, backend)({"num_envs": n}))
    return _begun({name: DictInfoToList(envs) for name, envs in made.items()})


LIBRARIES = {each.__name__: each for each in (agilerl, baselines, cleanrl, rllib, sample_factory, skrl, spinning_up)}


def _of_each(make: Callable[[BackendName], Any]) -> dict[str, Any]:
    return {f"envfleet, {backend}": make(backend) for backend in OURS}


def _begun(vector_envs: dict[str, Any]) -> Sides:
    for envs in vector_envs.values():
        envs.reset()
    return {name: envs.step for name, envs in vector_envs.items()}


def _one_by_one(env_id: str, n: int) -> Step:
    singles = [gymnasium.make(env_id) for _ in range(n)]
    for env in singles:
        env.reset()

    def step(actions: Any) -> None:
        for env, action in zip(singles, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step


def _masked(envs: Any) -> Step:
    envs.reset()

    def step(actions: Any) -> None:
        _, _, terminated, truncated, _ = envs.step(actions)
        done = terminated | truncated
        if done.any():
            envs.reset(options={"reset_mask": done})

    return step


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--env-id", default="CartPole-v1", help="with discrete actions")
    parser.add_argument("--num-envs", type=int, default=16, metavar="N")
    parser.add_argument("--turns", type=int, default=11, metavar="N", help="per side, default 11")
    parser.add_argument("--publish", action="store_true", help="keep every figure, and write the page's table")
    options = parser.parse_args()
    load, sides = os.getloadavg(), LIBRARIES[options.library](options.env_id, options.num_envs)
    action_space: Any = gymnasium.make(options.env_id).action_space
    actions = np.random.default_rng(0).integers(0, action_space.n, (STEPS, options.num_envs))
    result = Result(options.library, "stepping", next(iter(sides)), {name: [] for name in sides})
    for number in range(options.turns + 1):  # the first one is not counted
        for name, step in sides.items():
            begun = time.perf_counter()
            for each in actions:
                step(each)
            if number:
                result.speeds[name].append(actions.size / (time.perf_counter() - begun))
    print(result.text())
    if options.publish:
        command = f"trainers.py {options.library} --env-id {options.env_id} --turns {options.turns}"
        publish([result], command, f"{options.num_envs} x {options.env_id}", load)


if __name__ == "__main__":
    main()
