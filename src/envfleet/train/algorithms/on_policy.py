"""What A2C and PPO share: acting, values along a rollout, advantages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from envfleet.errors import NonFiniteError
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.returns import explained_variance, gae
from envfleet.train.collecting import Policy, Rollout
from envfleet.train.finite import all_finite, first_exceeding
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor, Critic, Layout, Perceptron
from envfleet.train.networks.quick_policy import QuickPolicy
from envfleet.train.observations import Array, Observations, Tensors, flattened, joined, map_leaves, to_tensors


@dataclass(frozen=True, eq=False)
class Batch:
    """The valid transitions of a rollout in one row, as tensors on the device.

    Attributes:
        observations: [n, ...].
        actions: [n, ...].
        advantages: float32[n].
        returns: what the critic is to predict, float32[n].
        explained_variance: how well it predicted them before.
    """

    observations: Tensors
    actions: Tensor
    advantages: Tensor
    returns: Tensor
    explained_variance: float

    def __len__(self) -> int:
        return len(self.advantages)

    def at(self, rows: Tensor) -> Batch:
        """Only the given rows, int64[m]."""
        return Batch(
            map_leaves(lambda leaf: leaf[rows], self.observations),
            self.actions[rows],
            self.advantages[rows],
            self.returns[rows],
            self.explained_variance,
        )


def make_actor(task: Task, layout: Layout) -> Actor:
    """The user's actor, or a perceptron whose first policy is close to uniform."""
    distribution = distribution_for(task.action_space)
    outputs = distribution.outputs // 2 if distribution.learns_std else distribution.outputs
    body = task.networks.actor if task.networks else Perceptron(task.observation_space, outputs, layout, last_gain=0.01)
    return Actor(body, distribution).to(task.device)


def make_critic(task: Task, layout: Layout) -> Critic:
    """The user's critic, or a perceptron with one output."""
    body = task.networks.critic if task.networks else Perceptron(task.observation_space, 1, layout, last_gain=1.0)
    return Critic(body).to(task.device)


def make_policy(actor: Actor, task: Task, steps: int) -> Policy:
    """A function that draws actions from the actor's policy; `steps` is how often it is called a rollout."""
    if QuickPolicy.suits(actor, task):
        return QuickPolicy(actor, steps)

    def act(observations: Observations) -> Array:
        with torch.inference_mode():
            actions: Array = actor.distribution.sample(actor(to_tensors(observations, task.device))).cpu().numpy()
        return actions

    return act


def make_batch(
    rollout: Rollout, critic: Critic, device: torch.device, *, reward_scale: float, gamma: float, lam: float
) -> Batch:
    """Values, advantages and returns of a rollout; rows that are no transition are left out."""
    values, next_values = values_along(rollout, critic, device)
    _check(values, "value of a state")
    _check(next_values, "value of a state")
    rewards = rollout.rewards * reward_scale
    advantages = gae(rewards, values, next_values, rollout.terminated, rollout.done, gamma, lam)
    returns = advantages + values
    _check(advantages, "advantage of an action")
    _check(returns, "return of a state")
    rows = np.flatnonzero(rollout.valid)
    everything = len(rows) == rollout.valid.size

    def picked(array: Array) -> Array:
        return array if everything else array[rows]

    return Batch(
        to_tensors(map_leaves(picked, flattened(rollout.observations)), device),
        torch.from_numpy(picked(rollout.actions.reshape(-1, *rollout.actions.shape[2:]))).to(device),
        _float_tensor(picked(advantages.ravel()), device),
        _float_tensor(picked(returns.ravel()), device),
        explained_variance(picked(values.ravel()), picked(returns.ravel())),
    )


@torch.no_grad()
def values_along(
    rollout: Rollout, critic: Critic, device: torch.device
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """V(state) and V(next state) of every transition, float64[steps, num_envs] each.

    The next state of an episode's last step is its final observation, whatever the autoreset mode put into the row
    after it; that of the rollout's last step is where the fleet stood afterwards.
    """
    steps, num_envs = rollout.rewards.shape
    everything = joined(flattened(rollout.observations), rollout.end.observations, rollout.final_observations)
    all_values = critic(to_tensors(everything, device)).double().cpu().numpy()
    along, finals = np.split(all_values, [(steps + 1) * num_envs])
    along = along.reshape(steps + 1, num_envs)
    next_values = along[1:].copy()
    next_values[rollout.done] = finals
    return along[:-1], next_values


def normalized(advantages: Tensor) -> Tensor:
    """Mean 0 and variance 1; a single one, such as what is left over for the last minibatch, becomes 0."""
    deviation = advantages.std(correction=min(1, len(advantages) - 1))
    return (advantages - advantages.mean()) / (deviation + 1e-8)


def _check(numbers: npt.NDArray[np.float64], what: str) -> None:
    """Refuse numbers of the critic's, [steps, num_envs], that float32 cannot hold."""
    if not all_finite(numbers):
        found = first_exceeding(numbers)
        assert found is not None
        env = found.place[1]
        message = f"The {what} in environment {env}, as the critic sees it, is {found.value:g}."
        raise NonFiniteError(message, quantity=what, env_index=env)


def _float_tensor(array: npt.NDArray[np.float64], device: torch.device) -> Tensor:
    return torch.from_numpy(array.astype(np.float32)).to(device)
