"""Tianshou's asynchronous vector environments on fleets: wait_num, timeout, AsyncCollector."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import AsyncCollector, Batch, VectorReplayBuffer

from envfleet.adapters.tianshou import FleetVenv, make_venv

BACKENDS = ("sync", "process", "native")


def ids_of(infos: Any) -> Any:
    return np.array([info["env_id"] for info in infos])


def played(venv: FleetVenv, steps: int) -> dict[int, list[Any]]:
    """What each environment has shown, whatever the order; the action of a step is decided by its number."""
    history: dict[int, list[Any]] = defaultdict(list)
    observations, _ = venv.reset(seed=11)
    for env, observation in enumerate(observations):
        history[env].append(observation)
    ids, done = np.arange(len(venv)), 0
    while done < steps:
        actions = np.array([len(history[env]) % 3 % 2 for env in ids])
        observations, rewards, terminated, truncated, infos = venv.step(actions, ids)
        ids, done = ids_of(infos), done + len(infos)
        assert len(ids) == len(set(ids)) <= len(venv)
        assert set(ids) <= set(venv.ready_id)
        assert not set(venv.ready_id) & set(venv.waiting_id)
        for env, *result in zip(ids, observations, rewards, terminated, truncated, strict=True):
            history[env].append(result)
        ended = ids[terminated | truncated]
        if len(ended):
            for env, observation in zip(ended, venv.reset(ended)[0], strict=True):
                history[env].append(observation)
    return history


def alone(length: int) -> list[Any]:
    """What one environment shows in the same way."""
    with gymnasium.make("CartPole-v1") as env:
        history: list[Any] = [env.reset(seed=11)[0]]
        while len(history) < length:
            *result, _ = env.step(len(history) % 3 % 2)
            history.append(result)
            if result[2] or result[3]:
                history.append(env.reset()[0])
    return history[:length]


def flat(history: list[Any]) -> list[float]:
    return [float(number) for entry in history for part in entry for number in np.atleast_1d(part)]


@pytest.mark.parametrize("timeout", [None, 0.01])
@pytest.mark.parametrize("wait_num", [1, 3, 5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_environment_goes_its_own_way(backend: Any, wait_num: int, timeout: float | None) -> None:
    venv = make_venv("CartPole-v1", 5, wait_num, timeout, backend=backend)
    history = played(venv, 300)
    assert sum(map(len, history.values())) > 300
    for env in range(5):
        assert flat(history[env]) == flat(alone(len(history[env]))), env
    venv.close()


class Gated(gymnasium.Env[Any, Any]):
    """An environment whose step with action 1 waits until a file exists; every second step ends an episode."""

    observation_space = spaces.Box(0, 99, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, gate: str) -> None:
        self.gate, self.episode = Path(gate), -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return np.array([self.episode, 0], np.float32), {"options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        deadline = time.monotonic() + 60
        while action == 1 and not self.gate.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        self.time += 1
        return np.array([self.episode, self.time], np.float32), 1.0, self.time == 2, False, {}


@pytest.fixture
def gated(tmp_path: Path) -> Any:
    def make(num_envs: int, wait_num: int, timeout: float | None = None) -> tuple[FleetVenv, Path]:
        gate = tmp_path / "gate"
        kwargs = {"env_kwargs": {"gate": str(gate)}, "vector_kwargs": {"num_workers": num_envs}}
        venv = make_venv(Gated, num_envs, wait_num, timeout, backend="process", **kwargs)
        made.append((venv, gate))
        return venv, gate

    made: list[tuple[FleetVenv, Path]] = []
    yield make
    for venv, gate in made:
        gate.touch()
        if not venv.is_closed:
            venv.close()


def test_environments_are_reset_while_others_are_at_work(gated: Any) -> None:
    venv, gate = gated(3, 2)
    venv.reset()
    _, _, _, _, infos = venv.step(np.array([0, 1, 0]))
    assert sorted(ids_of(infos)) == [0, 2]
    assert venv.waiting_id == [1]
    _, _, terminated, _, infos = venv.step(np.zeros(2, np.int64), ids_of(infos))
    assert terminated.all()
    observations, infos = venv.reset([2, 0], options={"word": 7})
    assert observations.tolist() == [[1, 0], [1, 0]]
    assert infos.tolist() == [{"options": {"word": 7}}] * 2
    observations, infos = venv.reset([0], options=None)
    assert infos.tolist() == [{"options": None}]
    assert venv.waiting_id == [1]
    for call in (lambda: venv.reset([1]), lambda: venv.step(np.zeros(1, np.int64), [1])):
        with pytest.raises(AssertionError, match="Cannot interact with environment 1 which is stepping now"):
            call()
    gate.touch()
    observations, _, _, _, infos = venv.step(None)
    assert ids_of(infos).tolist() == [1]
    assert observations.tolist() == [[0, 1]]
    assert (venv.waiting_id, sorted(venv.ready_id)) == ([], [0, 1, 2])


def test_a_step_that_ends_while_a_reset_is_waited_for_is_not_lost(gated: Any) -> None:
    venv, gate = gated(3, 1)
    venv.reset()
    first = ids_of(venv.step(np.array([1, 1, 0]))[4])
    assert first.tolist() == [2]
    gate.touch()
    for number in range(20):  # sooner or later the others come in between
        observations, _ = venv.reset([2])
        assert observations.tolist() == [[number + 1, 0]]
    others = [ids_of(venv.step(None)[4]) for _ in range(1)]
    while venv.waiting_id:
        others.append(ids_of(venv.step(None)[4]))
    assert sorted(np.concatenate(others).tolist()) == [0, 1]


def test_a_timeout_returns_what_is_ready_and_at_least_one(gated: Any) -> None:
    venv, gate = gated(3, 3, 0.3)
    assert venv.is_async
    venv.reset()
    found = ids_of(venv.step(np.array([0, 1, 0]))[4]).tolist()
    while 2 not in found or 0 not in found:  # on a busy machine one of them may be late
        found.extend(ids_of(venv.step(None)[4]).tolist())
    assert sorted(found) == [0, 2]
    assert venv.waiting_id == [1]
    gate.touch()
    assert ids_of(venv.step(None)[4]).tolist() == [1]


def test_a_fetch_waits_for_those_it_names(gated: Any) -> None:
    venv, gate = gated(3, 1)
    venv.reset()
    came = ids_of(venv.step(np.array([0, 1, 1]))[4]).tolist()
    assert came == [0]
    gate.touch()
    assert ids_of(venv.step(None, id=[2, 1])[4]).tolist() == [2, 1]
    assert venv.reset()[0].tolist() == [[1, 0]] * 3


class Always(Policy):
    """Acts alike, and has a state, which AsyncCollector expects."""

    def forward(self, batch: Any, state: Any = None, **_: Any) -> Batch:
        return Batch(act=np.ones(len(batch.obs), np.int64), state=np.zeros((len(batch.obs), 1)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:Using async setting", "ignore:n_step=", "ignore:n_episode=")
def test_collector(backend: Any) -> None:
    venv = make_venv("CartPole-v1", 4, wait_num=3, backend=backend)
    collector = AsyncCollector(Always(action_space=venv.action_space[0]), venv, VectorReplayBuffer(4000, 4))
    collector.reset(gym_reset_kwargs={"seed": 0})
    assert collector.collect(n_episode=9).n_collected_episodes >= 9
    assert collector.collect(n_step=50).n_collected_steps >= 50
    collector.reset(reset_buffer=False)  # whatever is at work
    assert collector.collect(n_episode=3).n_collected_episodes >= 3
    for env, buffer in enumerate(collector.buffer.buffers):
        data = buffer[:]
        assert (data.info.env_id == env).all()
        goes_on = ~data.done[:-1]
        reset = (data.obs_next[:-1] != data.obs[1:]).any(axis=1)
        assert (reset & goes_on).sum() <= 1  # where the collector was reset
    venv.close()
