"""TD3 and DQN learn what is right on problems that take seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from test_sac_learning import CPU, Bandit, Treadmill

from envfleet import AutoresetMode, make_vec
from envfleet.train.algorithms.dqn import DQN
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.td3 import TD3
from envfleet.train.collecting import begin, collect
from envfleet.train.config import DQNConfig, TD3Config
from envfleet.train.networks.distributions import is_continuous
from envfleet.wrappers import BoundedAction

SIMPLE = {"num_envs": 4, "learning_starts": 100, "batch_size": 64, "return_steps": 1, "hidden_sizes": (32, 32)}
UNSCALED = {"normalize_rewards": False, "reward_scale": 1.0}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


def learnt(algo: str, make_env: Callable[[], gym.Env[Any, Any]], mode: AutoresetMode, **settings: Any) -> Any:
    """A learner at the end of its run."""
    made: Any = {"td3": (TD3, TD3Config), "dqn": (DQN, DQNConfig)}[algo]
    config = made[1]("a test's", **{**SIMPLE, **UNSCALED, **settings})
    fleet: Any = make_vec(make_env, config.num_envs, "sync", vector_kwargs={"autoreset_mode": mode})
    envs = BoundedAction(fleet) if is_continuous(fleet.single_action_space) else fleet
    learner = made[0](config, Task(envs.single_observation_space, envs.single_action_space, config.num_envs, CPU))
    position, rounds = begin(envs, config.seed), config.total_steps // config.num_envs
    for number in range(rounds):
        rollout = collect(envs, learner.act, learner.rollout_steps, position)
        learner.learn(rollout, number / rounds)
        position = rollout.end
    envs.close()
    return learner


MODES = pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
WAYS = pytest.mark.parametrize("way", ["torch", "compiled"])


@MODES
@WAYS
def test_td3_finds_the_best_action_of_a_bandit(mode: AutoresetMode, way: str) -> None:
    rates = {"actor_lr": 3e-3, "critic_lr": 3e-3, "target_noise": 0.05, "exploration_noise": 0.3}
    learner = learnt("td3", Bandit, mode, total_steps=4000, updates_per_step=0.5, learner=way, **rates)
    seen = torch.linspace(-0.9, 0.9, 19).unsqueeze(-1)
    with torch.no_grad():
        actions = 2 * learner.actor.distribution.mode(learner.actor(seen))
    assert (actions - 1.5 * seen).abs().max() < 0.25


class Corridor(gym.Env[Any, Any]):
    """Five places: the last one is worth 1 and ends it; going the other way costs nothing, and leads nowhere.

    The observation is the place, the actions are 3 (back) and 4 (on). With gamma 0.5 going on is worth 0.5 to the power
    of the places that are left, and going back half of what the place before is worth.
    """

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = int(self.np_random.integers(4))
        return self._place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place = max(0, self._place + (1 if action == 4 else -1))
        return self._place, float(self._place == 4), self._place == 4, False, {}


VALUES = np.array([[0.5**4, 0.5**3], [0.5**4, 0.5**2], [0.5**3, 0.5], [0.5**2, 1.0]])
"""Of going back and on, in each place but the last."""

CORRIDOR: dict[str, dict[str, Any]] = {
    "plain": {"double": False},
    "double": {},
    "dueling": {"dueling": True},
    "priorities": {"priority_exponent": 0.6},
    "all": {"dueling": True, "priority_exponent": 0.6, "return_steps": 3, "multi_step_share": 0.5},
    "torch": {"learner": "torch"},
}


@pytest.mark.parametrize("name", CORRIDOR)
def test_dqn_finds_the_values_of_a_corridor(name: str) -> None:
    settings = {"gamma": 0.5, "tau": 0.05, "learning_rate": 3e-3, "total_steps": 3000, "updates_per_step": 0.5}
    learner = learnt("dqn", Corridor, AutoresetMode.SAME_STEP, **{**settings, **CORRIDOR[name]})
    with torch.no_grad():
        found = learner.actor(torch.arange(4)).numpy()
    np.testing.assert_allclose(found, VALUES, atol=0.06)
    assert learner.actor.distribution.mode(torch.from_numpy(found)).tolist() == [4, 4, 4, 4]


class Switch(Treadmill):
    """The same with a choice of two actions, which change nothing."""

    action_space = spaces.Discrete(2)  # type: ignore[assignment]


@MODES
@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_a_time_limit_does_not_end_what_a_state_is_worth(algo: str, mode: AutoresetMode) -> None:
    # Where errors are beyond 1, Huber's loss would take long: rewards are scaled so that they are not.
    rates = {"critic_lr": 1e-2} if algo == "td3" else {"learning_rate": 1e-2, "reward_scale": 0.1}
    env: Callable[[], gym.Env[Any, Any]] = Treadmill if algo == "td3" else Switch
    settings = {"gamma": 0.9, "tau": 0.05, "batch_size": 32, "hidden_sizes": (16,), "updates_per_step": 0.5, **rates}
    learner = learnt(algo, lambda: TimeLimit(env(), 3), mode, total_steps=3000, **settings)
    with torch.no_grad():
        if algo == "td3":
            values = learner.critic(torch.zeros(5, 1), torch.linspace(-1, 1, 5).unsqueeze(-1))
        else:
            values = 10 * learner.actor(torch.zeros(1, 1))
    # 1 / (1 - 0.9). Were every third step taken for the end, it would be between 1 and 2.7.
    np.testing.assert_allclose(values, 10.0, atol=1.0)
