"""Somebody puts a trainer and a backend of their own on the engine, in an empty folder, with what the docs say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TRAINER = '''
"""A trainer in small: it acts on whoever is ready, and learns which way to push."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import envfleet
from envfleet import FleetVectorEnv
from envfleet.backends import BackendName
from envfleet.typing import StepResult
from envfleet.wrappers import RecordEpisodeStatistics


class Linear:
    """Pushes towards the side to which the pole falls."""

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        self.weights = weights

    def __call__(self, observations: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return (observations @ self.weights > 0).astype(np.int64)


def play_in_step(policy: Linear, num_envs: int, steps: int) -> float:
    """The mean return of the episodes that end within some steps of all environments."""
    fleet = envfleet.make_vec("CartPole-v1", num_envs, autoreset_mode="SAME_STEP", copy=False)
    envs = RecordEpisodeStatistics(fleet)
    observations, _ = envs.reset(seed=1)
    returns: list[float] = []
    for _ in range(steps):
        observations, _, _, _, infos = envs.step(policy(observations))
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    envs.close()
    return float(np.mean(returns)) if returns else float(steps)


def play_first_ready(policy: Linear, backend: BackendName, num_envs: int, turns: int) -> int:
    """How many steps were taken while nobody waited for the slowest."""
    taken = 0
    envs: FleetVectorEnv = envfleet.make_vec("CartPole-v1", num_envs, backend, first_ready=num_envs // 2)
    with envs:
        envs.async_reset(seed=2)
        for _ in range(turns):
            result: StepResult = envs.recv()
            env_ids = result[4]["env_id"]
            envs.send(policy(result[0]), env_ids)
            taken += len(env_ids)
    return taken


def main() -> None:
    """Tries a few policies, keeps the best, and goes back to a state that it has saved."""
    candidates = [np.array([0.0, side, 1.0, 1.0]) for side in (-1.0, 0.0, 1.0)]
    scores = [play_in_step(Linear(weights), 8, 600) for weights in candidates]
    best = Linear(candidates[int(np.argmax(scores))])
    print("steps", play_first_ready(best, "native", 8, 20), play_first_ready(best, "process", 4, 5))
    with envfleet.make_vec("CartPole-v1", 2, "native") as native:
        native.reset(seed=3)
        native.set_state(0, native.get_state(1))
    print("best", max(scores))


main()
'''

BACKEND = '''
"""A vector environment in a plain loop, which resets in the next step."""

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate


class LoopVectorEnv(VectorEnv):
    def __init__(self, env_fns):
        self.envs = [env_fn() for env_fn in env_fns]
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = self.envs[0].render_mode
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.ended = np.zeros(self.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        if seed is None or isinstance(seed, int):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        self.ended[:] = False
        observations, infos = [], {}
        for i, env in enumerate(self.envs):
            observation, info = env.reset(seed=seed[i], options=options)
            observations.append(observation)
            infos = self._add_info(infos, info, i)
        return self.batch(observations), infos

    def step(self, actions):
        rows, infos = [], {}
        for i, action in enumerate(iterate(self.action_space, actions)):
            *row, info = self.step_one(i, action)
            rows.append(row)
            infos = self._add_info(infos, info, i)
        observations, rewards, terminated, truncated = zip(*rows)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        self.ended = terminated | truncated
        return self.batch(observations), np.array(rewards, np.float64), terminated, truncated, infos

    def step_one(self, i, action):
        if not self.ended[i]:
            return self.envs[i].step(action)
        observation, info = self.envs[i].reset()
        return observation, 0.0, False, False, info

    def batch(self, observations):
        out = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, observations, out)

    def close_extras(self, **kwargs):
        for env in self.envs:
            env.close()


class ForgetfulVectorEnv(LoopVectorEnv):
    def step_one(self, i, action):
        return self.envs[i].step(action)  # and no reset after the end
'''

TESTS = """
from gymnasium.vector import AutoresetMode
from loops import ForgetfulVectorEnv, LoopVectorEnv

from envfleet.testing import GymnasiumContract


class Loop(GymnasiumContract):
    autoreset_modes = (AutoresetMode.NEXT_STEP,)
    arguments = ()
    backend = LoopVectorEnv

    def make(self, env_fns, **kwargs):
        return self.backend(env_fns)


class TestLoop(Loop):
    pass


class TestForgetful(Loop):
    backend = ForgetfulVectorEnv
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("trainer.py", TRAINER), ("loops.py", BACKEND), ("test_loops.py", TESTS)):
        (tmp_path / name).write_text(text.lstrip())
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_the_trainers_types_hold(folder: Path) -> None:
    # From the repository: mypy is strict there, and knows from `make check` all that the program imports.
    done = python(ROOT, "-m", "mypy", "--strict", str(folder / "trainer.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_trainer_trains(folder: Path) -> None:
    done = python(folder, "-W", "error", "trainer.py")
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"steps 80 10\nbest ([\d.]+)\n", done.stdout)
    assert found is not None, done.stdout
    assert float(found.group(1)) > 100


def test_the_backend_is_held_to_gymnasiums_contract(folder: Path) -> None:
    chosen = "(TestLoop and not real_env) or (TestForgetful and (next_step_ignores or counters))"
    done = python(folder, "-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider", "-k", chosen)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) \S*?::(\w+)::(\w+)", done.stdout, re.MULTILINE)
    passed = {test for outcome, where, test in outcomes if (outcome, where) == ("PASSED", "TestLoop")}
    assert [test for outcome, where, test in outcomes if outcome != "PASSED" and where == "TestLoop"] == [], done.stdout
    assert len(passed) >= 25, done.stdout
    assert "test_next_step_ignores_the_action_and_returns_the_reset" in passed
    assert ("FAILED", "TestForgetful", "test_next_step_ignores_the_action_and_returns_the_reset") in outcomes
    assert (
        "The rule: The step after done returns the reset observation, reward 0, flags False, and uses no" in done.stdout
    )
