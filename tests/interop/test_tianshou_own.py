# ruff: noqa: C901, E501, N806, PT011, PT028  as they are
"""Tianshou's own tests of vector environments and collectors, from its test/base/test_env.py and test_collector.py.

MIT License, Copyright (c) 2022 Tianshou contributors. Their classes of vector environments are fleets here. Left out:
what is about its workers, multi-agent rewards, observations that are graphs, and how long something takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces.discrete import Discrete
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import (
    AsyncCollector,
    Batch,
    Collector,
    CollectStats,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.utils import RunningMeanStd
from tianshou_own_envs import MoveToRightEnv

from envfleet import AsyncVectorEnv, SyncVectorEnv
from envfleet.adapters.tianshou import FleetVenv, as_venv

pytestmark = pytest.mark.filterwarnings("ignore:Using async setting", "ignore:n_step=", "ignore:n_episode=")


def of_fleet(fleet: Any) -> Callable[..., FleetVenv]:
    """What takes the place of a class of Tianshou's."""

    def make(env_fns: Sequence[Any], wait_num: int | None = None, timeout: float | None = None) -> FleetVenv:
        how = {"autoreset_mode": "DISABLED", "observation_mode": "different", "first_ready": wait_num}
        return as_venv(fleet(env_fns, **how), timeout)

    return make


CLASSES = [of_fleet(SyncVectorEnv), of_fleet(AsyncVectorEnv)]
classes = pytest.mark.parametrize("cls", CLASSES, ids=["sync", "process"])


def recurse_comp(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        if a.dtype == object:
            return np.array([recurse_comp(m, n) for m, n in zip(a, b, strict=True)]).all()
        return np.allclose(a, b)
    if isinstance(a, list | tuple):
        return np.array([recurse_comp(m, n) for m, n in zip(a, b, strict=True)]).all()
    return np.array([recurse_comp(a[k], b[k]) for k in a]).all()


@classes
def test_async_env(cls: Any, size: int = 10000, num: int = 8, sleep: float = 0.01) -> None:
    # simplify the test case, just keep stepping
    env_fns = [lambda i=i: MoveToRightEnv(size=i, sleep=sleep, random_sleep=True) for i in range(size, size + num)]
    v = cls(env_fns, wait_num=num // 2, timeout=1e-3)
    v.seed(None)
    v.reset()
    action_list = [1] * num + [0] * (num * 2) + [1] * (num * 4)
    current_idx_start = 0
    act = action_list[:num]
    env_ids = list(range(num))
    o = []
    while current_idx_start < len(action_list):
        A, B, C, D, E = v.step(action=act, id=env_ids)
        b = Batch({"obs": A, "rew": B, "terminate": C, "truncated": D, "info": E})
        env_ids = b.info.env_id
        o.append(b)
        current_idx_start += len(act)
        # len of action may be smaller than len(A) in the end
        act = action_list[current_idx_start : current_idx_start + len(A)]
        # truncate env_ids with the first terms
        # typically len(env_ids) == len(A) == len(action), except for the
        # last batch when actions are not enough
        env_ids = env_ids[: len(act)]
    Batch.cat(o)
    v.close()


def test_vecenv(size: int = 10, num: int = 8, sleep: float = 0.001) -> None:
    env_fns = [lambda i=i: MoveToRightEnv(size=i, sleep=sleep, dict_state=True) for i in range(size, size + num)]
    venv = [DummyVectorEnv(env_fns), *(cls(env_fns) for cls in CLASSES)]
    for v in venv:
        v.seed(0)
    action_list = [1] * 5 + [0] * 10 + [1] * 20
    for a in action_list:
        o = []
        for v in venv:
            A, B, C, D, E = v.step(np.array([a] * num))
            if sum(C + D):
                A, _ = v.reset(np.where(C + D)[0])
            o.append([A, B, C, D, E])
        for index, infos in enumerate(zip(*o, strict=True)):
            if index == 4:  # do not check info here
                continue
            for info in infos:
                assert recurse_comp(infos[0], info)

    def assert_get(v: Any, expected: list[int]) -> None:
        assert v.get_env_attr("size") == expected
        assert v.get_env_attr("size", id=0) == [expected[0]]
        assert v.get_env_attr("size", id=[0, 1, 2]) == expected[:3]

    for v in venv:
        assert_get(v, list(range(size, size + num)))
        assert v.env_num == num
        assert v.action_space == [Discrete(2)] * num

        v.set_env_attr("size", 0)
        assert_get(v, [0] * num)

        v.set_env_attr("size", 1, 0)
        assert_get(v, [1] + [0] * (num - 1))

        v.set_env_attr("size", 2, [1, 2, 3])
        assert_get(v, [1] + [2] * 3 + [0] * (num - 4))

    for v in venv:
        v.close()


@classes
def test_attr_unwrapped(cls: Any) -> None:
    training_envs = cls([lambda: gym.make("CartPole-v1")])
    training_envs.set_env_attr("test_attribute", 1337)
    assert training_envs.get_env_attr("test_attribute") == [1337]
    training_envs.close()


@classes
def test_env_reset_optional_kwargs(cls: Any, size: int = 10000, num: int = 8) -> None:
    env_fns = [lambda i=i: MoveToRightEnv(size=i) for i in range(size, size + num)]
    v = cls(env_fns, wait_num=num // 2, timeout=1e-3)
    _, info = v.reset(seed=1)
    assert len(info) == len(env_fns)
    assert isinstance(info[0], dict)
    v.close()


@classes
def test_venv_wrapper_gym(cls: Any, num_envs: int = 4) -> None:
    envs = VectorEnvNormObs(cls([lambda: gym.make("CartPole-v1") for _ in range(num_envs)]))
    obs, info = envs.reset()
    assert isinstance(obs, np.ndarray)
    assert isinstance(info, np.ndarray)
    assert isinstance(info[0], dict)
    assert obs.shape[0] == len(info) == num_envs
    envs.close()


def observations_of(env: Any, action_list: list[Any]) -> list[Any]:
    """Observations of all steps, and of the resets between them."""
    obs, _ = env.reset()
    found = [obs]
    for action in action_list:
        obs, _, terminated, truncated, _ = env.step(action)
        found.append(obs)
        done = np.logical_or(terminated, truncated)
        if np.any(done):
            obs, _ = env.reset(np.where(done)[0])
            found.append(obs)
    return found


def run_align_norm_obs(
    raw_env: Any,
    train_env: VectorEnvNormObs,
    test_env: VectorEnvNormObs,
    action_list: list[Any],
) -> None:
    eps = np.finfo(np.float32).eps.item()
    raw_obs, train_obs = observations_of(raw_env, action_list), observations_of(train_env, action_list)
    ref_rms = RunningMeanStd()
    for ro, to in zip(raw_obs, train_obs, strict=True):
        ref_rms.update(ro)
        no = (ro - ref_rms.mean) / np.sqrt(ref_rms.var + eps)
        assert np.allclose(no, to)
    assert np.allclose(ref_rms.mean, train_env.get_obs_rms().mean)
    assert np.allclose(ref_rms.var, train_env.get_obs_rms().var)
    assert np.allclose(ref_rms.mean, test_env.get_obs_rms().mean)
    assert np.allclose(ref_rms.var, test_env.get_obs_rms().var)
    for ro, to in zip(raw_obs, observations_of(test_env, action_list), strict=True):
        no = (ro - ref_rms.mean) / np.sqrt(ref_rms.var + eps)
        assert np.allclose(no, to)


@classes
def test_venv_norm_obs(cls: Any) -> None:
    sizes = np.array([5, 10, 15, 20])
    action = np.array([1, 1, 1, 1])
    total_step = 30
    action_list = [action] * total_step
    env_fns = [lambda i=x: MoveToRightEnv(size=i, array_state=True) for x in sizes]
    raw = cls(env_fns)
    train_env = VectorEnvNormObs(cls(env_fns))
    test_env = VectorEnvNormObs(cls(env_fns), update_obs_rms=False)
    test_env.set_obs_rms(train_env.get_obs_rms())
    run_align_norm_obs(raw, train_env, test_env, action_list)
    for v in (raw, train_env, test_env):
        v.close()


class MaxActionPolicy(Policy):
    """Mock policy for testing, will always return an array of ones of the shape of the action space."""

    def __init__(self) -> None:
        super().__init__(action_space=gym.spaces.Box(-1, 1, (1,)))

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Batch:
        if state is None:
            state = np.zeros((len(batch.obs), 2))
        elif isinstance(state, np.ndarray | Batch):
            state += np.int_(1)
        return Batch(act=np.ones(len(batch.obs)), state=state)


@classes
def test_collector(cls: Any) -> None:
    env_fns = [lambda x=i: MoveToRightEnv(size=x, sleep=0) for i in [2, 3, 4, 5]]
    subproc_venv_4_envs = cls(env_fns)
    dummy_venv_4_envs = cls(env_fns)
    policy = MaxActionPolicy()
    c_subproc_venv_4_envs = Collector[CollectStats](
        policy,
        subproc_venv_4_envs,
        VectorReplayBuffer(total_size=100, buffer_num=4),
    )
    c_subproc_venv_4_envs.reset()

    # Collect some steps
    c_subproc_venv_4_envs.collect(n_step=8)
    obs = np.zeros(100)
    valid_indices = [0, 1, 25, 26, 50, 51, 75, 76]
    obs[valid_indices] = [0, 1, 0, 1, 0, 1, 0, 1]
    assert np.allclose(c_subproc_venv_4_envs.buffer.obs[:, 0], obs)
    obs_next = c_subproc_venv_4_envs.buffer[:].obs_next[..., 0]
    assert isinstance(obs_next, np.ndarray)
    assert np.allclose(obs_next, [1, 2, 1, 2, 1, 2, 1, 2])
    keys = np.zeros(100)
    keys[valid_indices] = [1, 1, 1, 1, 1, 1, 1, 1]
    assert np.allclose(c_subproc_venv_4_envs.buffer.info["key"], keys)
    for e in c_subproc_venv_4_envs.buffer.info["env"][valid_indices]:
        assert isinstance(e, MoveToRightEnv)
    env_ids = np.zeros(100)
    env_ids[valid_indices] = [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.allclose(c_subproc_venv_4_envs.buffer.info["env_id"], env_ids)
    rews = np.zeros(100)
    rews[valid_indices] = [0, 1, 0, 0, 0, 0, 0, 0]
    assert np.allclose(c_subproc_venv_4_envs.buffer.rew, rews)

    # we previously collected 8 steps, 2 from each env, now we collect 4 episodes
    # each env will contribute an episode, which will be of lens 2 (first env was reset), 1, 2, 3
    # So we get 8 + 2+1+2+3 = 16 steps
    c_subproc_venv_4_envs.collect(n_episode=4)
    assert len(c_subproc_venv_4_envs.buffer) == 16

    valid_indices = [2, 3, 27, 52, 53, 77, 78, 79]
    obs[valid_indices] = [0, 1, 2, 2, 3, 2, 3, 4]
    assert np.allclose(c_subproc_venv_4_envs.buffer.obs[:, 0], obs)
    obs_next = c_subproc_venv_4_envs.buffer[:].obs_next[..., 0]
    assert isinstance(obs_next, np.ndarray)
    assert np.allclose(
        obs_next,
        [1, 2, 1, 2, 1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5],
    )
    keys[valid_indices] = [1, 1, 1, 1, 1, 1, 1, 1]
    assert np.allclose(c_subproc_venv_4_envs.buffer.info["key"], keys)
    for e in c_subproc_venv_4_envs.buffer.info["env"][valid_indices]:
        assert isinstance(e, MoveToRightEnv)
    env_ids[valid_indices] = [0, 0, 1, 2, 2, 3, 3, 3]
    assert np.allclose(c_subproc_venv_4_envs.buffer.info["env_id"], env_ids)
    rews[valid_indices] = [0, 1, 1, 0, 1, 0, 0, 1]
    assert np.allclose(c_subproc_venv_4_envs.buffer.rew, rews)
    c_subproc_venv_4_envs.collect(n_episode=4, random=True)

    c_dummy_venv_4_envs = Collector[CollectStats](
        policy,
        dummy_venv_4_envs,
        VectorReplayBuffer(total_size=100, buffer_num=4),
    )
    c_dummy_venv_4_envs.reset()
    c_dummy_venv_4_envs.collect(n_episode=7)
    obs1 = obs.copy()
    obs1[[4, 5, 28, 29, 30]] = [0, 1, 0, 1, 2]
    obs2 = obs.copy()
    obs2[[28, 29, 30, 54, 55, 56, 57]] = [0, 1, 2, 0, 1, 2, 3]
    c2obs = c_dummy_venv_4_envs.buffer.obs[:, 0]
    assert np.all(c2obs == obs1) or np.all(c2obs == obs2)
    c_dummy_venv_4_envs.reset_env()
    c_dummy_venv_4_envs.reset_buffer()
    assert c_dummy_venv_4_envs.collect(n_episode=8).n_collected_episodes == 8
    valid_indices = [4, 5, 28, 29, 30, 54, 55, 56, 57]
    obs[valid_indices] = [0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert np.all(c_dummy_venv_4_envs.buffer.obs[:, 0] == obs)
    keys[valid_indices] = [1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert np.allclose(c_dummy_venv_4_envs.buffer.info["key"], keys)
    for e in c_dummy_venv_4_envs.buffer.info["env"][valid_indices]:
        assert isinstance(e, MoveToRightEnv)
    env_ids[valid_indices] = [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert np.allclose(c_dummy_venv_4_envs.buffer.info["env_id"], env_ids)
    rews[valid_indices] = [0, 1, 0, 0, 1, 0, 0, 0, 1]
    assert np.allclose(c_dummy_venv_4_envs.buffer.rew, rews)
    c_dummy_venv_4_envs.collect(n_episode=4, random=True)

    # test corner case
    with pytest.raises(ValueError):
        Collector[CollectStats](policy, dummy_venv_4_envs, ReplayBuffer(10))
    with pytest.raises(ValueError):
        Collector[CollectStats](policy, dummy_venv_4_envs, PrioritizedReplayBuffer(10, 0.5, 0.5))
    with pytest.raises(ValueError):
        c_dummy_venv_4_envs.collect()
    subproc_venv_4_envs.close()
    dummy_venv_4_envs.close()


@pytest.fixture(params=CLASSES, ids=["sync", "process"])
def async_collector_and_env_lens(request: pytest.FixtureRequest) -> Any:
    env_lens = [2, 3, 4, 5]
    env_fns = [lambda x=i: MoveToRightEnv(size=x, sleep=0.001, random_sleep=True) for i in env_lens]

    venv = request.param(env_fns, wait_num=len(env_fns) - 1)
    policy = MaxActionPolicy()
    async_collector = AsyncCollector(
        policy,
        venv,
        VectorReplayBuffer(total_size=BUFSIZE * 4, buffer_num=4),
    )
    async_collector.reset()
    yield async_collector, env_lens
    venv.close()


BUFSIZE = 60


def check_episodes(collector: AsyncCollector, lens: Any, ptr: list[int]) -> None:
    """Check buffer data, obs and obs_next, env_id of the episodes just collected, from ``ptr`` on; moves ``ptr``."""
    for i, count in enumerate(np.bincount(lens, minlength=6)[2:]):
        env_len = i + 2
        total = env_len * count
        indices = np.arange(ptr[i], ptr[i] + total) % BUFSIZE
        ptr[i] = (ptr[i] + total) % BUFSIZE
        seq = np.arange(env_len)
        buf = collector.buffer.buffers[i]
        assert np.all(buf.info.env_id[indices] == i)
        assert np.all(buf.obs[indices].reshape(count, env_len) == seq)
        assert np.all(buf.obs_next[indices].reshape(count, env_len) == seq + 1)


class TestAsyncCollector:
    def test_collect_without_argument_gives_error(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        with pytest.raises(ValueError):
            c1.collect()

    def test_collect_one_episode_async(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        result = c1.collect(n_episode=1)
        assert result.n_collected_episodes >= 1

    def test_enough_episodes_two_collection_cycles_n_episode_without_reset(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        n_episode = 2
        result_c1 = c1.collect(n_episode=n_episode, reset_before_collect=False)
        assert result_c1.n_collected_episodes >= n_episode
        result_c2 = c1.collect(n_episode=n_episode, reset_before_collect=False)
        assert result_c2.n_collected_episodes >= n_episode

    def test_enough_episodes_two_collection_cycles_n_episode_with_reset(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        n_episode = 2
        result_c1 = c1.collect(n_episode=n_episode, reset_before_collect=True)
        assert result_c1.n_collected_episodes >= n_episode
        result_c2 = c1.collect(n_episode=n_episode, reset_before_collect=True)
        assert result_c2.n_collected_episodes >= n_episode

    def test_enough_episodes_and_correct_obs_indices_and_obs_next_iterative_collection_cycles_n_episode(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        ptr = [0, 0, 0, 0]
        for n_episode in range(1, 30):
            result = c1.collect(n_episode=n_episode)
            assert result.n_collected_episodes >= n_episode
            check_episodes(c1, result.lens, ptr)

    def test_enough_episodes_and_correct_obs_indices_and_obs_next_iterative_collection_cycles_n_step(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        ptr = [0, 0, 0, 0]
        for n_step in range(1, 15):
            result = c1.collect(n_step=n_step)
            assert result.n_collected_steps >= n_step
            check_episodes(c1, result.lens, ptr)

    def test_enough_episodes_and_correct_obs_indices_and_obs_next_iterative_collection_cycles_first_n_episode_then_n_step(
        self,
        async_collector_and_env_lens: tuple[AsyncCollector, list[int]],
    ) -> None:
        c1, _ = async_collector_and_env_lens
        ptr = [0, 0, 0, 0]
        for n_episode in range(1, 30):
            result = c1.collect(n_episode=n_episode)
            assert result.n_collected_episodes >= n_episode
            check_episodes(c1, result.lens, ptr)
        # test async n_step, for now the buffer should be full of data, thus no bincount stuff as above
        for n_step in range(1, 15):
            result = c1.collect(n_step=n_step)
            assert result.n_collected_steps >= n_step
            for i in range(4):
                env_len = i + 2
                seq = np.arange(env_len)
                buf = c1.buffer.buffers[i]
                assert np.all(buf.info.env_id == i)
                assert np.all(buf.obs.reshape(-1, env_len) == seq)
                assert np.all(buf.obs_next.reshape(-1, env_len) == seq + 1)


@classes
def test_collector_with_vector_env(cls: Any) -> None:
    env_fns = [lambda x=i: MoveToRightEnv(size=x, sleep=0) for i in [1, 8, 9, 10]]

    dum = cls(env_fns)
    policy = MaxActionPolicy()

    c2 = Collector[CollectStats](
        policy,
        dum,
        VectorReplayBuffer(total_size=100, buffer_num=4),
    )

    c2.reset()

    c1r = c2.collect(n_episode=2)
    assert np.array_equal(np.array([1, 8]), c1r.lens)
    c2r = c2.collect(n_episode=10)
    assert np.array_equal(np.array([1, 1, 1, 1, 1, 1, 1, 8, 9, 10]), c2r.lens)
    c3r = c2.collect(n_step=20)
    assert np.array_equal(np.array([1, 1, 1, 1, 1]), c3r.lens)
    c4r = c2.collect(n_step=20)
    assert np.array_equal(np.array([1, 1, 1, 8, 1, 9, 1, 10]), c4r.lens)
    dum.close()


@classes
def test_async_collector_with_vector_env(cls: Any) -> None:
    env_fns = [lambda x=i: MoveToRightEnv(size=x, sleep=0) for i in [1, 8, 9, 10]]

    dum = cls(env_fns)
    policy = MaxActionPolicy()
    c1 = AsyncCollector(
        policy,
        dum,
        VectorReplayBuffer(total_size=100, buffer_num=4),
    )

    c1r = c1.collect(n_episode=10, reset_before_collect=True)
    assert np.array_equal(np.array([1, 1, 1, 1, 1, 1, 1, 1, 8, 1, 9]), c1r.lens)
    c2r = c1.collect(n_step=20)
    assert np.array_equal(np.array([1, 10, 1, 1, 1, 1]), c2r.lens)
    dum.close()
