"""Environments for the tests of training: scripted ones whose every number is known, and one of every space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from gymnasium.vector import AutoresetMode

from envfleet import make_vec

NEXT_STEP, SAME_STEP = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
Ending = Literal["terminated", "truncated", "both"]
Script = tuple[tuple[int, Ending], ...]
"""Episode after episode, over and over: its length and how it ends."""

EXAMPLE: Script = ((3, "truncated"), (2, "terminated"), (1, "truncated"), (4, "both"), (1, "terminated"))


class ScriptedEnv(gym.Env[Any, Any]):
    """Observation float64[2] = (1000 · env + 10 · episode + step, the last action); reward = the square of the step.

    The first number names the moment, so that a value looked up for the wrong observation shows.
    """

    action_space = spaces.Discrete(3)

    def __init__(self, script: Script = EXAMPLE, env: int = 0, nested: bool = False) -> None:
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = spaces.Dict({"inner": spaces.Dict({"moment": box})}) if nested else box
        self._script, self._env, self._nested = script, env, nested
        self._episode, self._step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._step = (0 if seed is not None else self._episode + 1), 0
        return self._observe(-1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        length, ending = self._script[self._episode % len(self._script)]
        over = self._step >= length
        terminated, truncated = over and ending != "truncated", over and ending != "terminated"
        return self._observe(int(action)), float(self._step**2), terminated, truncated, {}

    def _observe(self, action: int) -> Any:
        moment = np.array([1000 * self._env + 10 * self._episode + self._step, action], np.float64)
        return {"inner": {"moment": moment}} if self._nested else moment


def scripted_fleet(
    mode: AutoresetMode, scripts: Sequence[Script] = (EXAMPLE, EXAMPLE[1:]), *, nested: bool = False, copy: bool = True
) -> Any:
    """One environment a script, numbered."""
    numbers = iter(range(len(scripts) + 1))

    def make() -> ScriptedEnv:
        env = next(numbers)
        return ScriptedEnv(scripts[env], env, nested)

    return make_vec(make, len(scripts), "sync", vector_kwargs={"autoreset_mode": mode, "copy": copy})


def counting_policy(num_envs: int, actions: int = 3) -> Any:
    """Acts 0, 1, 2, 0, 1, ..., every environment a little ahead of the one before."""
    calls = iter(range(10**9))

    def act(_: Any) -> npt.NDArray[np.int64]:
        return (next(calls) + np.arange(num_envs)) % actions

    return act


OBSERVATION_SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-2.0, 2.0, (3,), np.float32),
    "matrix": spaces.Box(-2.0, 2.0, (2, 3), np.float64),
    "scalar": spaces.Box(-2.0, 2.0, (), np.float32),
    "integers": spaces.Box(-5, 5, (3,), np.int64),
    "image, channels first": spaces.Box(0, 255, (3, 36, 40), np.uint8),
    "image, channels last": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "small image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(4, start=-1),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [-2, 0]]),
    "multi-binary": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict(
        {
            "what.is/this": spaces.Discrete(3),
            "inner": spaces.Dict({"b": spaces.Box(-1.0, 1.0, (2,), np.float32), "a": spaces.MultiBinary(2)}),
        }
    ),
    "tuple": spaces.Tuple(
        [
            spaces.Discrete(3, start=1),
            spaces.Dict({"far": spaces.Box(-2.0, 2.0, (2,), np.float64), "lamps": spaces.MultiBinary(2)}),
            spaces.Tuple([spaces.Box(0, 255, (2, 2), np.uint8)]),
        ]
    ),
}
REFUSED_SPACES: dict[str, spaces.Space[Any]] = {
    "text": spaces.Text(5),
    "tuple with text": spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]),
    "integer box": spaces.Box(0, 5, (2,), np.int64),
}
ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=2),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-discrete, 2-d": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [-2, 0]]),
    "multi-binary": spaces.MultiBinary(3),
    "multi-binary, 2-d": spaces.MultiBinary([2, 2]),
    "box": spaces.Box(-2.0, 3.0, (2,), np.float32),
    "box, 2-d, float64": spaces.Box(np.array([[-1.0], [0.0]]), np.array([[1.0], [5.0]]), dtype=np.float64),
    "box, a number": spaces.Box(-2.0, 2.0, (), np.float32),
    "box without bounds": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
NESTED_ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "choices": spaces.Tuple([spaces.Discrete(3, start=2), spaces.MultiBinary(2)]),
    "numbers": spaces.Dict(
        {
            "arm": spaces.Box(-2.0, 3.0, (2,), np.float32),
            "leg": spaces.Tuple([spaces.Box(0.0, 9.0, (2, 1), np.float64)]),
        }
    ),
    "both": spaces.Dict(
        {
            "gear": spaces.Discrete(4, start=-1, dtype=np.int32),
            "arm": spaces.Box(-2.0, 3.0, (2,), np.float64),
            "inner": spaces.Tuple(
                [spaces.MultiDiscrete([2, 3], start=[0, 5]), spaces.Box(-1.0, 1.0, (1,), np.float32)]
            ),
            "lamps": spaces.MultiBinary([2, 2]),
        }
    ),
}


class AnySpaceEnv(gym.Env[Any, Any]):
    """Random observations of one space, any action of another.

    An episode ends with probability `risk` a step, or after ten steps by the time limit. The reward depends on
    the parameters, so that randomised ones make a difference.
    """

    def __init__(
        self,
        observations: str = "vector",
        actions: str = "discrete",
        gain: float = 1.0,
        shift: float = 0.0,
        risk: float = 0.1,
    ) -> None:
        self.observation_space = {**REFUSED_SPACES, **OBSERVATION_SPACES}[observations]
        self.action_space = {**REFUSED_SPACES, **ACTION_SPACES, **NESTED_ACTION_SPACES}[actions]
        self._gain, self._shift, self._risk = gain, shift, risk

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._draw(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        nested = isinstance(self.action_space, (spaces.Dict, spaces.Tuple))
        if not self.action_space.contains(action if nested else np.asarray(action)):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        numbers = flatten(self.action_space, action) if nested else action
        liked = float(np.sum(np.clip(numbers, -1, 1)))
        reward = self._gain * (liked + self.np_random.normal()) + self._shift
        return self._draw(self.observation_space), reward, bool(self.np_random.random() < self._risk), False, {}

    def _draw(self, space: spaces.Space[Any]) -> Any:
        """Like space.sample(), from the environment's own generator."""
        random = self.np_random
        if isinstance(space, spaces.Dict):
            return {key: self._draw(entry) for key, entry in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._draw(entry) for entry in space)
        if isinstance(space, spaces.Discrete):
            return space.start + random.integers(space.n)
        if isinstance(space, spaces.MultiDiscrete):
            return space.start + random.integers(space.nvec)
        if isinstance(space, spaces.MultiBinary):
            return random.integers(2, size=space.shape, dtype=np.int8)
        assert isinstance(space, spaces.Box)
        drawn = random.uniform(space.low.astype(float), space.high.astype(float))
        return np.asarray(drawn).astype(space.dtype)


ANY_SPACE = "tiny/AnySpace-v0"
gym.register(ANY_SPACE, AnySpaceEnv, max_episode_steps=10, disable_env_checker=True)


class UnrepeatableEnv(AnySpaceEnv):
    """Does something else every time, whatever its seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=np.random.SeedSequence().entropy % 2**32)  # type: ignore[operator]


UNREPEATABLE = "tiny/Unrepeatable-v0"
gym.register(UNREPEATABLE, UnrepeatableEnv, max_episode_steps=10, disable_env_checker=True)
