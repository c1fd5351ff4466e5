"""The calls of OpenAI Baselines' VecEnv, against a loop that does what its DummyVecEnv does."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

import envfleet
from envfleet.adapters.baselines import as_vec_env


class Pictures(gymnasium.Env[Any, Any]):
    """As in Baselines' own tests: observations add up actions, each environment has episodes of its own length."""

    def __init__(self, steps: int, dtype: str) -> None:
        self._start = np.random.default_rng(steps).integers(0, 256, (3, 8)).astype(dtype)
        self.observation_space = self.action_space = spaces.Box(0, 255, (3, 8), self._start.dtype.type)
        self._most = steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._steps, self._seen = 0, self._start.copy()
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._seen = self._seen + action
        return self._seen, self._steps / self._most, self._steps == self._most, False, {"foo": f"bar{self._steps}"}


class Dummy:
    """What Baselines' DummyVecEnv does with single environments, in Gymnasium's words."""

    def __init__(self, envs: list[Any], seed: int) -> None:
        self.envs, self.seed = envs, seed

    def reset(self) -> Any:
        return np.stack([env.reset(seed=self.seed + i)[0] for i, env in enumerate(self.envs)])

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[Any]]:
        rows = [self._step(env, action) for env, action in zip(self.envs, actions, strict=True)]
        observations, rewards, dones, infos = zip(*rows, strict=True)
        return np.stack(observations), np.array(rewards, np.float32), np.array(dones), list(infos)

    def _step(self, env: Any, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = env.step(action)
        if truncated and not terminated:
            info["TimeLimit.truncated"] = True
        if terminated or truncated:
            observation, _ = env.reset()
        return observation, reward, terminated or truncated, info


def assert_like_dummy(venv: Any, dummy: Dummy, steps: int = 40) -> None:
    np.testing.assert_array_equal(venv.reset(), dummy.reset())
    venv.action_space.seed(1)
    ends = 0
    for _ in range(steps):
        actions = np.array([venv.action_space.sample() for _ in range(venv.num_envs)])
        venv.step_async(actions)
        ours, theirs = venv.step_wait(), dummy.step(actions)
        for our, their in zip(ours[:3], theirs[:3], strict=True):
            assert our.dtype == their.dtype
            np.testing.assert_array_equal(our, their)
        infos = [{key: info[key] for key in info if key != "terminal_observation"} for info in ours[3]]
        assert infos == theirs[3]
        assert [("terminal_observation" in info) for info in ours[3]] == ours[2].tolist()
        ends += ours[2].sum()
    assert ends > 3
    venv.close()
    venv.close()
    assert venv.closed


@pytest.mark.parametrize("backend", ["sync", "process"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_like_their_own_tests(backend: str, dtype: str) -> None:
    fleets = {"sync": envfleet.SyncVectorEnv, "process": envfleet.AsyncVectorEnv}
    makers = [partial(Pictures, steps, dtype) for steps in (1, 2, 3)]
    venv = as_vec_env(fleets[backend](makers, autoreset_mode="SameStep"))
    assert_like_dummy(venv, Dummy([make() for make in makers], 0))


@pytest.mark.parametrize("backend", ["sync", "process", "native"])
def test_like_single_environments(backend: str) -> None:
    envs = envfleet.make_vec("CartPole-v1", 3, backend, autoreset_mode="SAME_STEP", max_episode_steps=15)
    singles = [gymnasium.make("CartPole-v1", max_episode_steps=15) for _ in range(3)]
    assert_like_dummy(as_vec_env(envs, seed=5), Dummy(singles, 5))


def test_what_it_says_of_itself_and_what_it_refuses() -> None:
    envs = envfleet.make_vec("CartPole-v1", 2, autoreset_mode="SAME_STEP", render_mode="rgb_array")
    venv = as_vec_env(envs)
    assert (venv.num_envs, venv.observation_space.shape, venv.action_space) == (2, (4,), spaces.Discrete(2))
    assert venv.unwrapped is venv
    with pytest.raises(NoAsyncCallError, match="step_async"):
        venv.step_wait()
    venv.reset()
    venv.step_async([0, 1])
    with pytest.raises(AlreadyPendingCallError, match="twice"):
        venv.step_async([0, 1])
    assert venv.reset().shape == (2, 4)  # which cancels the step
    assert venv.step([0, 1])[0].shape == (2, 4)
    assert venv.get_images()[1].shape == (400, 600, 3)
    venv.close()


@pytest.mark.parametrize(
    ("given", "says"), [({}, "NEXT_STEP mode"), ({"autoreset_mode": "SAME_STEP", "copy": False}, "copy=True")]
)
def test_other_fleets_are_refused(given: dict[str, Any], says: str) -> None:
    with envfleet.make_vec("CartPole-v1", 2, **given) as envs, pytest.raises(ValueError, match=says):
        as_vec_env(envs)
    with pytest.raises(TypeError, match="fleet of envfleet"):
        as_vec_env(gymnasium.make_vec("CartPole-v1", 2))
