"""EnvPool's programs run on fleets by changing their import; what differs from the real one is tested as documented."""

from __future__ import annotations

from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.adapters import envpool


def test_the_readmes_synchronous_example() -> None:
    env = envpool.make("Pong-v5", env_type="gymnasium", num_envs=3)
    observations, _ = env.reset()
    assert observations.shape == (3, 4, 84, 84)
    observations, rewards, terminated, truncated, info = env.step(np.zeros(3, dtype=int))
    assert observations.shape == (3, 4, 84, 84)
    assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
    assert info["env_id"].tolist() == [0, 1, 2]
    env.close()


def test_the_readmes_asynchronous_example() -> None:
    num_envs, batch_size = 4, 2
    env = envpool.make("Pong-v5", env_type="gymnasium", num_envs=num_envs, batch_size=batch_size)
    action_num = env.action_space.n  # type: ignore[attr-defined]
    env.async_reset()
    seen: set[int] = set()
    while len(seen) < num_envs:  # a slow worker is not waited for
        observations, _, _, _, info = env.recv()
        env_id = info["env_id"]
        assert observations.shape == (batch_size, 4, 84, 84)
        seen |= {*env_id.tolist()}
        env.send(np.random.randint(action_num, size=batch_size), env_id)
    env.close()


def test_some_games_are_stepped_in_worker_processes() -> None:
    """In their own thread all games are stepped together, and the error says what to do."""
    env = envpool.make("Pong-v5", "gymnasium", num_envs=2)
    env.reset()
    with pytest.raises(ValueError, match="backend='process'"):
        env.step(np.zeros(1, int), np.array([1]))
    env.close()
    env = envpool.make("Pong-v5", "gymnasium", num_envs=2, backend="sync")
    env.reset()
    assert env.step(np.zeros(1, int), np.array([1]))[0].shape == (1, 4, 84, 84)
    env.close()


def test_the_readmes_rendering_example() -> None:
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, render_mode="rgb_array")
    env.reset()
    assert env.render(env_ids=[0, 2]).shape == (2, 400, 600, 3)
    assert env.render().shape == (1, 400, 600, 3)
    env.close()


@pytest.mark.parametrize("backend", ["native", "process", "sync"])
def test_the_synchronous_steps_of_their_examples(backend: str) -> None:
    """examples/env_step.py: all environments, then some of them in any order."""
    env = envpool.make_gym("CartPole-v1", num_envs=4, backend=backend)
    observations, _ = env.reset()
    for _ in range(30):
        observations, _, _, _, info = env.step(np.random.randint(2, size=4))
    observations, info = env.reset(np.array([1, 3]))
    assert observations.shape == (2, 4)
    assert info["env_id"].tolist() == [1, 3]
    env_id = np.array([3, 2, 0])
    observations, *_, info = env.step(np.array([0, 0, 1]), env_id)
    np.testing.assert_array_equal(info["env_id"], env_id)
    assert observations.shape == (3, 4)
    assert info["elapsed_step"][0] == 1
    env.close()


def test_the_time_steps_of_their_examples() -> None:
    env = envpool.make_dm("CartPole-v1", num_envs=4)
    assert env.action_spec().num_values == 2  # type: ignore[attr-defined]
    time_step = env.reset()
    assert time_step.observation.obs.shape == (4, 4)
    assert (time_step.step_type == dm_env.StepType.FIRST).all()
    time_step = env.step(np.zeros(3, int), np.array([3, 2, 0]))
    assert time_step.observation.env_id.tolist() == [3, 2, 0]
    env.close()
    env = envpool.make_dm("CartPole-v1", num_envs=8, batch_size=4)
    time_step = env.reset()
    for _ in range(40):
        assert len(time_step.observation.env_id) == 4
        time_step = env.step(np.random.randint(2, size=4), time_step.observation.env_id)
    env.close()


def test_an_episode_ends_as_theirs_do() -> None:
    """As EnvPool 1.2.5 does with the same arguments: the step after the end resets, its reward is 0, its count too."""
    env = envpool.make("CartPole-v1", "gymnasium", num_envs=2, seed=5, max_episode_steps=4)
    env.reset()
    counts, ends, rewards = [], [], []
    for step in range(7):
        _, reward, terminated, truncated, info = env.step(np.full(2, step % 2))
        counts.append(info["elapsed_step"].tolist())
        ends.append((terminated.tolist(), truncated.tolist()))
        rewards.append(reward.tolist())
    assert counts == [[n, n] for n in (1, 2, 3, 4, 0, 1, 2)]
    assert ends == [([False] * 2, [n == 3] * 2) for n in range(7)]
    assert rewards == [[0.0, 0.0] if n == 4 else [1.0, 1.0] for n in range(7)]
    assert info["elapsed_step"].dtype == info["env_id"].dtype == np.int32
    assert list(info) == ["env_id", "players", "elapsed_step"]
    env.close()


class Both(gymnasium.Env[Any, Any]):
    """Terminates and truncates at once, and says something in every second step."""

    observation_space = spaces.Dict({"a": spaces.Discrete(9), "b": spaces.Box(0, 9, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {"seed": -1 if seed is None else seed}

    def _observation(self) -> dict[str, Any]:
        return {"a": self.steps, "b": np.full(2, self.steps, np.float32)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observation(), 1.0, self.steps == 3, self.steps == 3, {"odd": 1.5} if action else {}


def test_what_is_terminated_and_truncated_counts_as_truncated() -> None:
    env = envpool.make(Both, "gymnasium", num_envs=2, backend="sync")
    env.reset()
    for _ in range(3):
        observations, _, terminated, truncated, _ = env.step(np.zeros(2, int))
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, True])
    assert observations["b"].tolist() == [[3.0, 3.0]] * 2
    env.close()


def test_keys_that_only_some_environments_have_keep_their_masks() -> None:
    env = envpool.make(Both, "gymnasium", num_envs=2, backend="sync")
    env.reset()
    info = env.step(np.array([0, 1]))[4]
    assert (info["odd"].tolist(), info["_odd"].tolist()) == ([0.0, 1.5], [False, True])
    info = env.step(np.array([1, 1]))[4]
    assert (info["odd"].tolist(), "_odd" in info) == ([1.5, 1.5], False)
    env.close()


def test_dict_observations_are_fields_of_time_steps() -> None:
    env = envpool.make(Both, "dm", num_envs=2, backend="sync")
    env.reset()
    kinds, discounts = [], []
    for _ in range(4):
        time_step = env.step(np.zeros(2, int))
        kinds.append(time_step.step_type[0])
        discounts.append(time_step.discount[0])
    assert kinds == [1, 1, 2, 0]
    assert discounts == [1.0] * 4  # truncated, as EnvPool sees it
    assert time_step.observation.b.tolist() == [[0.0, 0.0]] * 2
    assert time_step.observation._fields == ("env_id", "players", "a", "b")
    env.close()


@pytest.mark.parametrize(
    ("given", "seeds"),
    [({}, [42, 43]), ({"seed": 7}, [7, 8]), ({"seed": [5, 9]}, [5, 9]), ({"env_seed": [1, 4]}, [1, 4])],
)
def test_seeds_are_used_once(given: dict[str, Any], seeds: list[int]) -> None:
    env = envpool.make(Both, "gymnasium", num_envs=2, backend="sync", **given)
    assert env.reset(np.array([1]))[1]["seed"].tolist() == seeds[1:]
    assert env.reset()[1]["seed"].tolist() == [seeds[0], -1]
    assert env.reset(seed=3)[1]["seed"].tolist() == [3, 4]
    env.close()


def test_trajectories_are_those_of_make_vec(box2d: None) -> None:
    env = envpool.make("LunarLander-v3", "gymnasium", num_envs=3, seed=7)
    with envfleet.make_vec("LunarLander-v3", 3, "native") as envs:
        np.testing.assert_array_equal(env.reset()[0], envs.reset(seed=7)[0])
        actions = np.random.default_rng(0).integers(0, 4, (150, 3))
        for each in actions:
            ours, theirs = env.step(each), envs.step(each)
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1].astype(np.float32))
    env.close()


def test_send_and_recv_in_a_synchronous_pool_keep_the_order() -> None:
    env = envpool.make("CartPole-v1", "gymnasium", num_envs=4, backend="process")
    env.async_reset()
    assert env.recv()[4]["env_id"].tolist() == [0, 1, 2, 3]
    env.send({"action": np.zeros(2, int), "env_id": np.array([2, 1])})
    env.send(np.ones(1, int), np.array([0]))
    assert env.recv()[4]["env_id"].tolist() == [2, 1, 0]
    env.close()


@pytest.mark.parametrize("backend", ["native", "process"])
def test_some_environments_are_reset_while_others_are_at_work(backend: str) -> None:
    env = envpool.make("CartPole-v1", "gymnasium", num_envs=4, batch_size=1, seed=3, backend=backend)
    env.async_reset()
    for _ in range(4):
        env.recv()
    env.send(np.zeros(2, int), np.array([1, 2]))
    _, info = env.reset(np.array([0]))
    came = {int(info["env_id"][0]): int(info["elapsed_step"][0])}
    for _ in range(2):
        info = env.recv()[4]
        came[int(info["env_id"][0])] = int(info["elapsed_step"][0])
    assert came == {0: 0, 1: 1, 2: 1}
    env.close()


def test_what_a_pool_says_of_itself() -> None:
    env = envpool.make("CartPole-v1", "gymnasium", num_envs=4, batch_size=2, num_threads=1, seed=3)
    assert len(env) == env.num_envs == env.spec.config.num_envs == env.config["num_envs"] == 4
    assert (env.is_async, env.config["batch_size"], env.config["max_episode_steps"]) == (True, 2, 500)
    assert env.all_env_ids.tolist() == [0, 1, 2, 3]
    assert env.observation_space.shape == (4,)
    assert isinstance(env, gymnasium.Env)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    with pytest.raises(NotImplementedError, match="XLA"):
        env.xla()
    env.close()


def test_specs_without_a_pool() -> None:
    spec = envpool.make_spec("CartPole-v1", num_envs=2)
    assert (spec.config.num_envs, spec.config.seed, spec.reward_threshold) == (2, 42, 475.0)
    assert spec.action_space == spaces.Discrete(2)
    assert envpool.make_spec("Pong-v5", stack_num=2, gray_scale=True).observation_space.shape == (2, 84, 84)
    assert "CartPole-v1" in envpool.list_all_envs()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"env_type": "gym3"}, "env_type"),
        ({"thread_affinity_offset": 0}, "thread_affinity_offset"),
        ({"max_num_players": 2}, "max_num_players"),
        ({"from_pixels": True}, "from_pixels"),
        ({"render_mode": "human"}, "rgb_array"),
        ({"batch_size": 3}, "batch_size"),
        ({"num_envs": 0}, "num_envs"),
        ({"seed": [1]}, "expected 2, got 1"),
    ],
)
def test_settings_that_are_not_known_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        envpool.make("CartPole-v1", **{"env_type": "gymnasium", "num_envs": 2, **given})
