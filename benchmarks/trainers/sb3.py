"""Stable-Baselines3: stepping, and A2C as a whole, with ``Monitor``."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from envfleet.adapters.sb3 import make_sb3_vec_env
from trainers.measuring import ENV_ID, Loops, Sides, Turn

BASELINE = "DummyVecEnv"
SIDES: Sides = {
    BASELINE: lambda n: make_vec_env(ENV_ID, n, seed=0),
    "SubprocVecEnv": lambda n: make_vec_env(
        ENV_ID, n, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    ),
    "envfleet, sync": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="sync"),
    "envfleet, process": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="process"),
    "envfleet, native": lambda n: make_sb3_vec_env(ENV_ID, n, seed=0, backend="native"),
}


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


LOOPS: Loops = {"stepping": stepping, "A2C.learn": learning}
