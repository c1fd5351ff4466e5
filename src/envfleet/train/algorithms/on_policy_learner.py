"""What A2C and PPO do alike: networks, acting, and everything around an update."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.algorithms.descent import make_optimizer, set_learning_rate
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.on_policy import Batch, make_actor, make_batch, make_critic, make_policy
from envfleet.train.collecting import Rollout, Rows
from envfleet.train.config import A2CConfig, PPOConfig
from envfleet.train.networks.networks import Critic, Layout, observe
from envfleet.train.observations import Array, Observations

Config = TypeVar("Config", bound="A2CConfig | PPOConfig")


def critic_loss(critic: Critic, batch: Batch) -> Tensor:
    """Half the mean squared error of the values."""
    return 0.5 * functional.mse_loss(critic(batch.observations), batch.returns)


class OnPolicyLearner(ABC, Generic[Config]):
    """A `Learner` with an actor and a critic of its own each, which learns from its latest policy's rollout alone."""

    off_policy = False
    figures: tuple[str, ...]
    """What `_update` returns, by name."""

    def __init__(self, config: Config, task: Task) -> None:
        self._config = config
        self._device = task.device
        self.rollout_steps = config.rollout_steps
        layout = Layout(config.hidden_sizes, config.activation, config.normalize_observations)
        self.actor = make_actor(task, layout)
        self.critic = make_critic(task, layout)
        self._policy = make_policy(self.actor, task, config.rollout_steps)
        self._actor_optimizer = make_optimizer(self.actor, config.actor_lr, short_memory=True)
        self._critic_optimizer = make_optimizer(self.critic, config.critic_lr, short_memory=True)
        self.modules: Mapping[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {
            "actor": self._actor_optimizer,
            "critic": self._critic_optimizer,
        }

    @abstractmethod
    def _update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Moves actor and critic; returns figures for the log."""

    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:  # noqa: ARG002  nobody is special
        """Actions drawn from the policy, one a row."""
        return self._policy(observations)

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """One update from a rollout, with step sizes and entropy bonus as they are at this point of the run."""
        config = self._config
        if not rollout.transitions:  # all of it was dropped
            return dict.fromkeys((*self.figures, "learning_rate", "explained_variance"), math.nan)
        remaining = 1 - progress if config.anneal else 1.0
        set_learning_rate(self._actor_optimizer, config.actor_lr * remaining)
        set_learning_rate(self._critic_optimizer, config.critic_lr * remaining)
        batch = make_batch(
            rollout,
            self.critic,
            self._device,
            reward_scale=config.reward_scale,
            gamma=config.gamma,
            lam=config.gae_lambda,
        )
        figures = self._update(batch, config.entropy_coef * remaining)
        # Statistics move only now, so that the policy learns with the ones it acted with.
        observe(self.actor, batch.observations)
        observe(self.critic, batch.observations)
        return {
            **figures,
            "learning_rate": config.actor_lr * remaining,
            "explained_variance": batch.explained_variance,
        }

    def extra_tensors(self) -> dict[str, Tensor]:
        """Nothing: networks and optimisers are all there is."""
        return {}

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to load."""
