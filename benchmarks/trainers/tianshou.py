"""Tianshou: collecting by steps and by episodes, and PPO as a whole."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

from envfleet.adapters.tianshou import make_venv
from trainers.measuring import ENV_ID, Loops, Sides, Turn

BASELINE = "DummyVectorEnv"
SIDES: Sides = {
    BASELINE: lambda n: DummyVectorEnv([lambda: gymnasium.make(ENV_ID)] * n),
    "SubprocVectorEnv": lambda n: SubprocVectorEnv([lambda: gymnasium.make(ENV_ID)] * n, context="fork"),
    "envfleet, sync": lambda n: make_venv(ENV_ID, n, backend="sync"),
    "envfleet, process": lambda n: make_venv(ENV_ID, n, backend="process"),
    "envfleet, native": lambda n: make_venv(ENV_ID, n, backend="native"),
}


def _ppo(venv: Any) -> tuple[Any, Any]:
    """PPO with separate networks of 64 x 64 units, and a collector of data for it."""
    torch.manual_seed(0)
    venv.seed(0)
    actor = DiscreteActor(preprocess_net=Net(state_shape=(8,), hidden_sizes=[64, 64]), action_shape=4)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=(8,), hidden_sizes=[64, 64]))
    policy = DiscreteActorPolicy(actor=actor, action_space=venv.action_space[0])
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=3e-4))
    collector: Any = Collector(algorithm, venv, VectorReplayBuffer(40_000, len(venv)), raise_on_nan_in_buffer=False)
    collector.reset()
    return algorithm, collector


def steps(venv: Any, each: int = 60) -> Turn:
    """``n_step``: all environments at every step."""
    _, collector = _ppo(venv)

    def turn() -> int:
        collector.reset_buffer()
        return int(collector.collect(n_step=each * len(venv)).n_collected_steps)

    return turn


def episodes(venv: Any) -> Turn:
    """``n_episode``: towards the end, ever fewer of the environments."""
    _, collector = _ppo(venv)

    def turn() -> int:
        collector.reset_buffer()
        return int(collector.collect(n_episode=len(venv) + 4).n_collected_steps)

    return turn


def training(venv: Any, each: int = 64) -> Turn:
    """PPO: collects by steps, then four epochs in minibatches of 256."""
    algorithm, collector = _ppo(venv)

    def turn() -> int:
        collector.reset_buffer(keep_statistics=True)
        with policy_within_training_step(algorithm.policy):
            collected = collector.collect(n_step=each * len(venv)).n_collected_steps
            algorithm.update(buffer=collector.buffer, batch_size=256, repeat=4)
        return int(collected)

    return turn


LOOPS: Loops = {"Collector, n_step": steps, "Collector, n_episode": episodes, "PPO": training}
