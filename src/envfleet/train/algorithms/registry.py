"""Which class stands behind which configuration."""

from __future__ import annotations

from envfleet.train.algorithms.a2c import A2C
from envfleet.train.algorithms.learner import Learner, Task
from envfleet.train.algorithms.ppo import PPO
from envfleet.train.algorithms.sac import SAC
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig


def make_learner(config: TrainConfig, task: Task) -> Learner:
    """The algorithm that `config` is for, with fresh networks."""
    if isinstance(config, A2CConfig):
        return A2C(config, task)
    if isinstance(config, PPOConfig):
        return PPO(config, task)
    if isinstance(config, SACConfig):
        return SAC(config, task)
    raise TypeError(f"train() needs an A2CConfig, a PPOConfig or a SACConfig, got {config!r}.")
