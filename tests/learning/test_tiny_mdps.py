"""Learning where the right answer is known: what to do, what it is worth, and a pole to balance."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from selection import left_to_test_all
from tiny_mdps import CHAIN, IDENTITY, TWOFOLD, IdentityEnv, chain_values

from envfleet import make_vec
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.collecting import begin, collect
from envfleet.train.config import A2CConfig, PPOConfig, TrainConfig
from envfleet.train.environments import make_task
from envfleet.train.folders.weights import load_module, load_tensors
from envfleet.train.judging.evaluation import evaluate
from envfleet.train.running.run import train

GAMMA = 0.9
EVERY = pytest.mark.parametrize("algo", ["a2c", "ppo"])

IDENTITY_CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig(
        IDENTITY,
        backend="sync",
        num_envs=16,
        rollout_steps=16,
        total_steps=25_000,
        actor_lr=2e-2,
        critic_lr=2e-2,
        critic_updates=2,
        hidden_sizes=(32,),
        gamma=0.0,
        normalize_rewards=False,
        entropy_coef=0.0,
    ),
    "ppo": PPOConfig(
        IDENTITY,
        backend="sync",
        num_envs=16,
        rollout_steps=16,
        total_steps=12_000,
        actor_lr=1e-2,
        critic_lr=1e-2,
        epochs=6,
        minibatch_size=128,
        hidden_sizes=(32,),
        gamma=0.0,
        normalize_rewards=False,
        entropy_coef=0.0,
        target_kl=0.0,
    ),
}


@EVERY
@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete", "MultiBinary"])
def test_identity(algo: str, kind: str, tmp_path: Path) -> None:
    config = dataclasses.replace(IDENTITY_CONFIGS[algo], env_kwargs={"kind": kind})
    agent = train(config, run_dir=tmp_path / "run", progress=False).agent
    assert np.mean([np.array_equal(done, wanted) for done, wanted in done_and_wanted(agent, kind)]) > 0.97


@EVERY
def test_identity_of_continuous_numbers(algo: str, tmp_path: Path) -> None:
    steps = {"a2c": 60_000, "ppo": 12_000}[algo]
    config = dataclasses.replace(IDENTITY_CONFIGS[algo], env_kwargs={"kind": "Box"}, total_steps=steps)
    agent = train(config, run_dir=tmp_path / "run", progress=False).agent
    errors = [np.abs(done - wanted).mean() for done, wanted in done_and_wanted(agent, "Box")]
    # That of always acting 0 is 1.
    assert np.mean(errors) < 0.15


@EVERY
def test_a_choice_and_a_place_at_once(algo: str, tmp_path: Path) -> None:
    """Tuple observations and Dict actions, of which one part is discrete and the other continuous."""
    steps = {"a2c": 30_000, "ppo": 8_000}[algo]
    config = dataclasses.replace(IDENTITY_CONFIGS[algo], env_id=TWOFOLD, total_steps=steps)
    run = train(config, run_dir=tmp_path / "run", progress=False).run_dir
    # Of the 32 that are best; whoever picks at random and stays in the middle gets 5.3.
    assert evaluate(run, episodes=40, num_envs=10, backend="sync").mean_return > 28


def done_and_wanted(agent: Agent, kind: str) -> list[tuple[Any, Any]]:
    space = IdentityEnv(kind).observation_space
    space.seed(1)
    wanted = np.stack([space.sample() for _ in range(500)])
    return list(zip(agent.act(wanted), wanted, strict=True))


ROLLOUTS = 250
CHAIN_CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig(
        CHAIN,
        backend="sync",
        num_envs=4,
        rollout_steps=8,
        total_steps=ROLLOUTS * 4 * 8,
        critic_lr=0.2,
        critic_updates=4,
        hidden_sizes=(),
        gamma=GAMMA,
        gae_lambda=0.95,
        normalize_rewards=False,
        max_grad_norm=0.0,
    ),
    "ppo": PPOConfig(
        CHAIN,
        backend="sync",
        num_envs=4,
        rollout_steps=8,
        total_steps=ROLLOUTS * 4 * 8,
        critic_lr=0.2,
        epochs=2,
        minibatch_size=16,
        hidden_sizes=(),
        gamma=GAMMA,
        gae_lambda=0.95,
        normalize_rewards=False,
        max_grad_norm=0.0,
        target_kl=0.0,
    ),
}
CHAINS = pytest.mark.parametrize(
    ("rewards", "ending"),
    [
        ([1.0], "never"),  # only a time limit: worth 1 / (1 - gamma) = 10, though no episode ever pays more than 5
        ([1.0, 2.0], "never"),
        ([1.0, -1.0, 3.0], "terminated"),
        ([1.0, -1.0, 3.0], "both"),
    ],
    ids=["one state", "two states", "terminated", "both"],
)


def values(learner: Learner, states: int) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = learner.modules["critic"](torch.arange(states)).numpy()
    return found


@EVERY
@CHAINS
def test_values_are_the_true_ones(algo: str, rewards: list[float], ending: str, tmp_path: Path) -> None:
    config = dataclasses.replace(CHAIN_CONFIGS[algo], env_kwargs={"rewards": rewards, "ending": ending})
    result = train(config, run_dir=tmp_path / "run", progress=False)
    task = make_task(config, result.agent.observation_space, result.agent.action_space, None)
    learner = make_learner(config, task)
    tensors, _ = load_tensors(result.run_dir / "critic.safetensors", "critic weights")
    load_module(learner.modules["critic"], tensors, "the critic")
    np.testing.assert_allclose(values(learner, len(rewards)), chain_values(rewards, GAMMA, ending), atol=0.1)


@EVERY
@CHAINS
def test_values_are_the_same_where_resets_take_a_step(algo: str, rewards: list[float], ending: str) -> None:
    """train() has its environments reset in the same step; one's own loop may have them reset in the next one."""
    config = CHAIN_CONFIGS[algo]
    next_step = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with (
        torch.random.fork_rng(devices=[]),
        make_vec(CHAIN, 4, "sync", vector_kwargs=next_step, rewards=rewards, ending=ending) as envs,
    ):
        torch.manual_seed(0)
        task = make_task(config, envs.single_observation_space, envs.single_action_space, None)
        learner, position = make_learner(config, task), begin(envs, 0)
        for number in range(ROLLOUTS):
            rollout = collect(envs, learner.act, learner.rollout_steps, position)
            learner.learn(rollout, number / ROLLOUTS)
            position = rollout.end
        np.testing.assert_allclose(values(learner, len(rewards)), chain_values(rewards, GAMMA, ending), atol=0.1)


CARTPOLE_CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig(
        "CartPole-v1",
        backend="sync",
        num_envs=32,
        rollout_steps=32,
        total_steps=300_000,
        hidden_sizes=(64, 64),
        actor_lr=7e-3,
        critic_lr=1e-2,
        critic_updates=4,
        gamma=0.98,
        gae_lambda=0.95,
        entropy_coef=0.01,
        normalize_rewards=False,
        reward_scale=0.1,
    ),
    "ppo": PPOConfig(
        "CartPole-v1",
        backend="sync",
        num_envs=16,
        rollout_steps=64,
        total_steps=50_000,
        hidden_sizes=(64, 64),
        actor_lr=3e-3,
        critic_lr=3e-3,
        epochs=8,
        minibatch_size=256,
        gamma=0.98,
        gae_lambda=0.9,
        normalize_rewards=False,
        reward_scale=0.1,
        entropy_coef=0.0,
        target_kl=0.0,
    ),
}


@left_to_test_all()
@pytest.mark.slow
@EVERY
def test_cartpole(algo: str, tmp_path: Path) -> None:
    agent = train(CARTPOLE_CONFIGS[algo], run_dir=tmp_path / "run", progress=False).agent
    assert mean_return(agent, "CartPole-v1", episodes=20) >= 475


def mean_return(agent: Agent, env_id: str, episodes: int) -> float:
    """Of one episode in each of as many environments, acted without chance."""
    with make_vec(env_id, episodes, "sync") as envs:
        observations, _ = envs.reset(seed=10_000)
        returns, running = np.zeros(episodes), np.ones(episodes, np.bool_)
        while running.any():
            observations, rewards, terminated, truncated, _ = envs.step(agent.act(observations))
            returns += rewards * running
            running &= ~(terminated | truncated)
    return float(returns.mean())
