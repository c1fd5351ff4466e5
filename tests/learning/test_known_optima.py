"""The settings that envfleet comes with, on small problems whose best policy is known.

A problem of five steps: what an action is worth in the first state, it costs in all later ones. So the best actions are
1, then -1. Whoever credits an action with what its successors did, because they look alike, plays the same everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from selection import left_to_test_all
from tiny_mdps import IDENTITY, IdentityEnv
from torch import Tensor, nn

from envfleet import make_vec
from envfleet.train import (
    DQNConfig,
    OffPolicyConfig,
    SACConfig,
    TrainConfig,
    Transitions,
    begin,
    collect,
    preset,
    train,
)
from envfleet.train.algorithms import sac, td3
from envfleet.train.algorithms.learner import Task, layout_of
from envfleet.train.algorithms.off_policy import make_twin_critic
from envfleet.train.algorithms.presets import PRESETS
from envfleet.train.algorithms.registry import ALGORITHMS
from envfleet.train.algorithms.sac import SAC
from envfleet.train.algorithms.td3 import TD3
from envfleet.train.folders.weights import load_module, load_tensors
from envfleet.train.networks.distributions import is_continuous
from envfleet.wrappers import BoundedAction

SEEDS = pytest.mark.parametrize("seed", range(5))
ONE = spaces.Box(-1.0, 1.0, (1,), np.float32)


class TwoPhases(gym.Env[Any, Any]):
    """Five steps; the reward is the action in the first state, and minus the action in the second, which follows."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, discrete: bool = False) -> None:
        self.action_space: spaces.Space[Any] = spaces.Discrete(2) if discrete else ONE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        strength = float(np.ravel(action)[0]) if is_continuous(self.action_space) else 2.0 * int(action) - 1
        self._step += 1
        return np.ones(1, np.float32), strength if self._step == 1 else -strength, self._step == 5, False, {}


class OneState(gym.Env[Any, Any]):
    """One state for ever; the reward is a function of the action."""

    observation_space, action_space = ONE, ONE

    def __init__(self, reward: Callable[[float], float]) -> None:
        self._reward = reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), self._reward(float(action[0])), False, False, {}


class Lamps(gym.Env[Any, Any]):
    """One of four lamps is lit: its number is the right action. Compiled learners read such observations."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (4,), np.float32), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._light_one(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._lit)
        return self._light_one(), reward, False, False, {}

    def _light_one(self) -> Any:
        self._lit = int(self.np_random.integers(4))
        return EACH_LAMP[self._lit].copy()


EACH_LAMP = np.eye(4, dtype=np.float32)
TWO_PHASES, SLOPE, PARABOLA = "tiny/TwoPhases-v0", "tiny/Slope-v0", "tiny/Parabola-v0"
LAMPS = "tiny/Lamps-v0"
gym.register(LAMPS, Lamps, max_episode_steps=16, disable_env_checker=True)
gym.register(TWO_PHASES, TwoPhases, disable_env_checker=True)
gym.register(SLOPE, lambda: OneState(lambda action: action), max_episode_steps=50, disable_env_checker=True)
gym.register(PARABOLA, lambda: OneState(lambda action: -(action**2)), max_episode_steps=50, disable_env_checker=True)

SHIPPED: dict[str, TrainConfig] = {
    **{f"{algo}'s defaults": preset("none", algo) for algo in ALGORITHMS},
    **{f"{algo} for {env_id}": preset(env_id, algo) for env_id, algo in PRESETS},
}
"""Every configuration that `preset` may give, by name."""
OFF_POLICY = {name: config for name, config in SHIPPED.items() if isinstance(config, OffPolicyConfig)}
ON_POLICY = {name: config for name, config in SHIPPED.items() if name not in OFF_POLICY}
OF_CRITICS = {name: config for name, config in OFF_POLICY.items() if not isinstance(config, DQNConfig)}
"""Those of SAC and TD3, whose critics are asked about any action."""


LONGER = {
    "ppo for gymnax:CartPole-v1": 600_000,
    "ppo for ALE/Pong-v5": 600_000,
    "sac for LunarLanderContinuous-v3": 40_000,
}
"""Steps where the usual ones are too few: few rollouts of thousands of copies, small learning rates, or rewards that
are small beside the temperature that a run begins with, which takes 20,000 updates to fall."""


def actions_of(config: TrainConfig, steps: int, run: Path, **changes: Any) -> list[float]:
    """What is played in the two states, from -1 to 1, after so many steps."""
    changed = dataclasses.replace(config, env_id=TWO_PHASES, backend="sync", total_steps=steps, **changes)
    agent = train(changed, run_dir=run, progress=False, loggers=()).agent
    actions = agent.act(np.array([[0.0], [1.0]], np.float32)).ravel()
    continuous = is_continuous(agent.action_space)
    return [float(action) if continuous else 2.0 * float(action) - 1 for action in actions]


def is_long(given: dict[str, Any]) -> bool:
    """A2C takes one step of its actor a rollout: where it has far to go, that takes many of them."""
    far = ON_POLICY[given["name"]].algo == "a2c" or given["name"] in LONGER
    return bool(given["seed"] > 0 or (far and not given["discrete"]))


@left_to_test_all(is_long)
@pytest.mark.timeout(600)
@SEEDS
@pytest.mark.parametrize("discrete", [True, False], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_two_phases_on_policy(name: str, discrete: bool, seed: int, tmp_path: Path) -> None:
    config = ON_POLICY[name]
    steps = LONGER.get(name, {"a2c": 120_000 if discrete else 600_000, "ppo": 30_000}[config.algo])
    first, second = actions_of(config, steps, tmp_path / "run", seed=seed, env_kwargs={"discrete": discrete})
    assert first > 0.6
    assert second < -0.6


@left_to_test_all()
@pytest.mark.slow
@pytest.mark.timeout(900)
@SEEDS
@pytest.mark.parametrize("name", OFF_POLICY)
def test_two_phases_off_policy(name: str, seed: int, tmp_path: Path) -> None:
    config = OFF_POLICY[name]
    kind = {"discrete": isinstance(config, DQNConfig)}
    # Long enough for targets of several steps to be learnt from, and to be forgotten.
    steps = max(4 * config.learning_starts, 8_000)
    first, second = actions_of(config, steps, tmp_path / "run", seed=seed, env_kwargs=kind)
    assert first > 0.6
    assert second < -0.6


def seen_and_done(config: TrainConfig, steps: int, run: Path, kind: str, seed: int) -> tuple[Any, Any]:
    """What was seen and what was done then, after so many steps of a problem where the best is to do what is seen."""
    made = {"env_id": IDENTITY, "env_kwargs": {"kind": kind}, "backend": "sync", "gamma": 0.0}
    changed = dataclasses.replace(config, **made, total_steps=steps, seed=seed)
    agent = train(changed, run_dir=run, progress=False, loggers=()).agent
    space = IdentityEnv(kind).observation_space
    space.seed(1)
    seen = np.stack([space.sample() for _ in range(500)])
    return seen, agent.act(seen)


@left_to_test_all(lambda given: given["seed"] > 0)
@SEEDS
@pytest.mark.parametrize("name", [name for name in ON_POLICY if name.startswith("ppo ") and name not in LONGER])
def test_the_lamp_that_is_lit_is_chosen(name: str, seed: int, tmp_path: Path) -> None:
    """Every time, whichever lamp it is."""
    changes: dict[str, Any] = {"env_id": LAMPS, "backend": "sync", "gamma": 0.0, "total_steps": 30_000, "seed": seed}
    config = dataclasses.replace(ON_POLICY[name], **changes)
    agent = train(config, run_dir=tmp_path / "run", progress=False, loggers=()).agent
    assert agent.act(EACH_LAMP).tolist() == [0, 1, 2, 3]


@left_to_test_all(lambda given: given["seed"] > 0 or given["name"] != "ppo's defaults")
@pytest.mark.timeout(600)
@SEEDS
@pytest.mark.parametrize("name", ON_POLICY)
def test_what_is_seen_is_done(name: str, seed: int, tmp_path: Path) -> None:
    """One of four actions is right, and the observation says which: at least 97 % are right in the end.

    torch learns it, for observations are numbers of states. The other settings of PPO light lamps in `make test`.
    """
    config = ON_POLICY[name]
    steps = LONGER.get(name, {"a2c": 250_000, "ppo": 30_000}[config.algo])
    seen, done = seen_and_done(config, steps, tmp_path / "run", "Discrete", seed)
    assert np.mean(seen == done) > 0.97


@left_to_test_all()
@pytest.mark.slow
@pytest.mark.timeout(900)
@SEEDS
@pytest.mark.parametrize("name", OFF_POLICY)
def test_what_is_seen_is_done_off_policy(name: str, seed: int, tmp_path: Path) -> None:
    """Two numbers from -2 to 2 are to be repeated: the mean error, of 1 for always 0, becomes 0.15 at most.

    DQN: one of four actions is right.
    """
    config = OFF_POLICY[name]
    kind = "Discrete" if isinstance(config, DQNConfig) else "Box"
    steps = LONGER.get(name, max(2 * config.learning_starts, 8_000))
    seen, done = seen_and_done(config, steps, tmp_path / "run", kind, seed)
    if isinstance(config, DQNConfig):
        assert np.mean(seen == done) > 0.97
    else:
        assert np.abs(seen - done).mean() < 0.15


QUICK = {
    "learning_starts": 200,
    "hidden_sizes": (32,),
    "batch_size": 64,
    "actor_lr": 3e-3,
    "critic_lr": 3e-3,
    "reward_scale": 1.0,
}
"""What lets SAC and TD3 learn a small problem in seconds; how it explores and what its targets are stays as it is."""


@left_to_test_all(lambda given: given["seed"] > 0)
@SEEDS
@pytest.mark.parametrize("algo", ["sac", "td3", "dqn"])
def test_two_phases_in_a_hurry(algo: str, seed: int, tmp_path: Path) -> None:
    quick: dict[str, Any] = {**QUICK, **({"temperature_lr": 1e-2} if algo == "sac" else {})}
    if algo == "dqn":
        quick = {name: quick[name] for name in ("learning_starts", "hidden_sizes", "batch_size", "reward_scale")}
        quick |= {"learning_rate": 3e-3, "env_kwargs": {"discrete": True}}
    first, second = actions_of(SHIPPED[f"{algo}'s defaults"], 3_000, tmp_path / "run", seed=seed, **quick)
    assert first > 0.6
    assert second < -0.6


def played(learner: SAC | TD3, env_id: str, rounds: int, progress: float) -> None:
    """Let it act for so many steps of every environment, and learn if it may by now."""
    config = learner.config
    with make_vec(env_id, config.num_envs, "sync", vector_kwargs={"autoreset_mode": "SameStep"}) as envs:
        bounded = BoundedAction(envs)
        position = begin(bounded, config.seed)
        for _ in range(rounds):
            rollout = collect(bounded, learner.act, learner.rollout_steps, position)
            learner.learn(rollout, progress)
            position = rollout.end


@pytest.mark.parametrize("name", OF_CRITICS)
def test_an_action_is_not_credited_with_its_successors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the reward is the action itself, so is the slope of the target; 3.9 times that with five noisy steps."""
    seen: list[tuple[Tensor, Tensor]] = []
    module: Any = sac if isinstance(OF_CRITICS[name], SACConfig) else td3
    loss = module.critic_loss

    def noting(critic: nn.Module, batch: Transitions, targets: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((batch.actions.ravel(), targets))
        found: tuple[Tensor, Tensor] = loss(critic, batch, targets)
        return found

    monkeypatch.setattr(module, "critic_loss", noting)
    few = {"learning_starts": 4_000, "total_steps": 10_000, "updates_per_step": 1.0, "batch_size": 2_000}
    config = dataclasses.replace(
        OF_CRITICS[name], env_id=SLOPE, learner="torch", **few
    )  # whose targets can be looked at
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learner: SAC | TD3 = {"sac": SAC, "td3": TD3}[config.algo](
            config, Task(ONE, ONE, config.num_envs, torch.device("cpu"))
        )
        # Nearly at the end of a run: what a critic learns wrong then, it keeps.
        played(learner, SLOPE, config.learning_starts // config.num_envs, progress=0.99)
    actions, targets = (torch.cat(parts).numpy() for parts in zip(*seen, strict=True))
    assert len(actions) >= 2_000
    slope = np.polyfit(actions, targets / learner._rewards.factor, 1)[0]
    # The noise of the bonus for randomness, over the root of the number of draws.
    assert slope == pytest.approx(1.0, abs=0.3)


@left_to_test_all(lambda given: given["seed"] > 0)
@SEEDS
def test_the_critic_of_a_parabola(seed: int, tmp_path: Path) -> None:
    """One state, and a reward of minus the square of the action: so is all that differs between values of actions."""
    defaults = SHIPPED["sac's defaults"]
    config = dataclasses.replace(
        defaults, env_id=PARABOLA, backend="sync", total_steps=5_000, seed=seed, gamma=0.9, temperature_lr=1e-2, **QUICK
    )
    result = train(config, run_dir=tmp_path / "run", progress=False, loggers=())
    assert isinstance(config, SACConfig)
    critic = make_twin_critic(Task(ONE, ONE, config.num_envs, torch.device("cpu")), layout_of(config))
    load_module(critic, load_tensors(result.run_dir / "critic.safetensors", "critic weights")[0], "the critic")
    actions = torch.linspace(-0.9, 0.9, 37).unsqueeze(-1)
    with torch.no_grad():
        values = critic(torch.zeros(37, 1), actions).mean(-1)
    coefficient = np.polyfit(actions.ravel().numpy(), values.numpy() / config.reward_scale, 2)[0]
    assert coefficient == pytest.approx(-1.0, abs=0.25)
