from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from selection import left_to_test_all

from envfleet import AutoresetMode, make_vec
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.sac import SAC
from envfleet.train.collecting import begin, collect
from envfleet.train.config import SACConfig
from envfleet.wrappers import BoundedAction

CPU = torch.device("cpu")
STATE = spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


def learnt(make_env: str | Callable[[], gym.Env[Any, Any]], mode: AutoresetMode, **settings: Any) -> SAC:
    """A learner at the end of its run."""
    simple = {"batch_size": 128, "updates_per_step": 1.0, "return_steps": 1}
    simple |= {"normalize_rewards": False, "reward_scale": 1.0}
    config = SACConfig("a test's", **{"num_envs": 4, "learning_starts": 100, **simple, **settings})
    envs = make_vec(make_env, config.num_envs, "sync", vector_kwargs={"autoreset_mode": mode})
    bounded = BoundedAction(envs)
    learner = SAC(config, Task(bounded.single_observation_space, bounded.single_action_space, config.num_envs, CPU))
    position, rounds = begin(bounded, config.seed), config.total_steps // config.num_envs
    for number in range(rounds):
        rollout = collect(bounded, learner.act, learner.rollout_steps, position)
        learner.learn(rollout, number / rounds)
        position = rollout.end
    bounded.close()
    return learner


class Bandit(gym.Env[Any, Any]):
    """One step: the best action is 1.5 times what is seen, in an action space of -2 to 2."""

    observation_space = STATE
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen, -float((action[0] - 1.5 * self._seen[0]) ** 2), True, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_best_action_of_a_bandit(mode: AutoresetMode) -> None:
    quick = {"actor_lr": 3e-3, "critic_lr": 3e-3, "temperature_lr": 1e-2, "hidden_sizes": (32, 32), "batch_size": 64}
    learner = learnt(Bandit, mode, total_steps=2000, target_entropy=-3.0, updates_per_step=0.5, **quick)
    seen = torch.linspace(-0.9, 0.9, 19).unsqueeze(-1)
    with torch.no_grad():
        actions = 2 * learner.actor.distribution.mode(learner.actor(seen))
    assert (actions - 1.5 * seen).abs().max() < 0.25


class Treadmill(gym.Env[Any, Any]):
    """Nothing ever changes, and every step is worth 1."""

    observation_space = STATE
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_time_limit_does_not_end_what_a_state_is_worth(mode: AutoresetMode) -> None:
    learner = learnt(
        lambda: TimeLimit(Treadmill(), 3),
        mode,
        total_steps=2000,
        gamma=0.9,
        tau=0.05,
        critic_lr=1e-2,
        batch_size=32,
        hidden_sizes=(16,),
        initial_temperature=1e-6,
        temperature_lr=1e-12,
        updates_per_step=0.5,
    )
    with torch.no_grad():
        values = learner.critic(torch.zeros(5, 1), torch.linspace(-1, 1, 5).unsqueeze(-1))
    # 1 / (1 - 0.9). Were every third step taken for the end, it would be between 1 and 2.7.
    np.testing.assert_allclose(values, 10.0, atol=1.0)


@left_to_test_all()
@pytest.mark.slow
def test_pendulum() -> None:
    learner = learnt("Pendulum-v1", AutoresetMode.SAME_STEP, total_steps=8_000, learning_starts=1_000)
    assert mean_return(learner, "Pendulum-v1", 20) > -200


def mean_return(learner: SAC, env_id: str, num_envs: int) -> float:
    """Of one episode each without noise; all of them are equally long."""
    envs = BoundedAction(make_vec(env_id, num_envs, "sync"))
    observations, _ = envs.reset(seed=1000)
    returns, over = np.zeros(num_envs), np.zeros(num_envs, np.bool_)
    while not over.any():
        with torch.no_grad():
            actions = learner.actor.distribution.mode(learner.actor(torch.from_numpy(observations))).numpy()
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards
        over = terminated | truncated
    envs.close()
    return float(returns.mean())
