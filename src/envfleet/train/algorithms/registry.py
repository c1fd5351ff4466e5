"""Which class stands behind which configuration."""

from __future__ import annotations

from envfleet.train.algorithms.a2c import A2C
from envfleet.train.algorithms.learner import Learner, Task
from envfleet.train.algorithms.ppo import PPO
from envfleet.train.algorithms.sac import SAC
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig


def learner_class(config: TrainConfig) -> type[Learner]:
    """The algorithm that `config` is for."""
    if isinstance(config, A2CConfig):
        return A2C
    if isinstance(config, PPOConfig):
        return PPO
    if isinstance(config, SACConfig):
        return SAC
    raise TypeError(f"train() needs an A2CConfig, a PPOConfig or a SACConfig, got {config!r}.")


def make_learner(config: TrainConfig, task: Task) -> Learner:
    """The algorithm that `config` is for, with fresh networks."""
    return learner_class(config)(config, task)
