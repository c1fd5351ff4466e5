"""Which class stands behind which configuration."""

from __future__ import annotations

from envfleet.train.a2c import A2C
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig
from envfleet.train.learner import Learner, Task
from envfleet.train.ppo import PPO
from envfleet.train.sac import SAC


def make_learner(config: TrainConfig, task: Task) -> Learner:
    """The algorithm that `config` is for, with fresh networks."""
    if isinstance(config, A2CConfig):
        return A2C(config, task)
    if isinstance(config, PPOConfig):
        return PPO(config, task)
    if isinstance(config, SACConfig):
        return SAC(config, task)
    raise TypeError(f"train() needs an A2CConfig, a PPOConfig or a SACConfig, got {config!r}.")
