"""TD3's updates in compiled code: the same mathematics as in td3.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import check, two_threads
from envfleet.train.algorithms.compiled_off_policy import CompiledOffPolicy
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import TD3Config
from envfleet.train.networks.compiled import body_of, parameters_of, statistics_of, trainable, why_no_updates
from envfleet.train.networks.exploring import NoisyTanh
from envfleet.train.networks.networks import Actor


@final
class CompiledTD3(CompiledOffPolicy[TD3Config, _learner.TwinDelayed]):
    """What `TD3.update` does."""

    @staticmethod
    def why_not(actor: Actor, critic: nn.Module) -> str | None:
        """Why compiled code cannot train these networks, as a part of a sentence; None if it can."""
        return why_no_updates(actor, NoisyTanh, critic)

    def updates(self, batches: Transitions, count: int, reward_scale: float, done: int = 0) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; the metrics added up.

        Noise is drawn as `td3.TD3` draws it, update by update.

        Args:
            batches: transitions of all updates.
            count: how many updates.
            reward_scale: what rewards are multiplied by.
            done: how many updates there were before: every `policy_delay`th moves the actor.
        """
        config = self.config
        noise = torch.empty(count, len(batches.rewards) // count, self._actor.outputs)
        for draw in noise:
            draw.normal_()
        noise.mul_(config.target_noise).clamp_(-config.target_noise_clip, config.target_noise_clip)
        not_finite, sums = self._bound().update(
            **self._arrays(batches),
            actions=batches.actions.numpy(),
            noise=noise.numpy(),
            actor=self._step_settings("actor"),
            critic=self._step_settings("critic"),
            tau=config.tau,
            reward_scale=reward_scale,
            done=done,
            delay=config.policy_delay,
            two_threads=two_threads(),
        )
        check(not_finite)
        # As in torch: divided by the number of all updates, it is the mean of those of the actor.
        return torch.tensor([config.policy_delay * sums[0], *sums[1:]])

    def _bind(self) -> _learner.TwinDelayed:
        learning, following, activation = self._critics()
        target_actor = body_of(self._modules["target_actor"])
        return _learner.TwinDelayed(
            trainable(body_of(self._modules["actor"]), [], self._optimizers["actor"], self._kernels),
            learning,
            [each.detach() for each in parameters_of(target_actor)],
            following,
            activation,
            statistics_of(target_actor.encoder),
            statistics_of(self._pair("critic").encoder),
            statistics_of(self._pair("target_critic").encoder),
        )
