from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from tiny_envs import ACTION_SPACES, OBSERVATION_SPACES
from torch import nn

from envfleet.train.algorithms.learner import Task, make_actor, make_critic
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor, Critic, Layout, Networks, Perceptron, TwinCritic, observe
from envfleet.train.observations import to_tensors

LAYOUT = Layout((16, 8), "tanh", normalize=True)
CPU = torch.device("cpu")


def sample(space: spaces.Space[Any], batch: int = 4) -> Any:
    batched = batch_space(space, batch)
    batched.seed(0)
    return to_tensors(batched.sample(), CPU)


def task(observations: str = "vector", actions: str = "discrete", networks: Networks | None = None) -> Task:
    return Task(OBSERVATION_SPACES[observations], ACTION_SPACES[actions], 3, CPU, networks)


@pytest.mark.parametrize("actions", list(ACTION_SPACES))
@pytest.mark.parametrize("observations", ["vector", "dict"])
def test_an_actor_says_all_its_distribution_needs(observations: str, actions: str) -> None:
    actor = make_actor(task(observations, actions), LAYOUT)
    outputs = actor(sample(OBSERVATION_SPACES[observations]))
    assert outputs.shape == (4, actor.distribution.outputs)


def test_the_first_policy_is_close_to_uniform() -> None:
    actor = make_actor(task("vector", "discrete"), LAYOUT)
    probabilities = torch.softmax(actor(sample(OBSERVATION_SPACES["vector"])), -1)
    torch.testing.assert_close(probabilities, torch.full((4, 3), 1 / 3), atol=0.02, rtol=0)


def test_the_deviations_of_box_actions_are_learnt_and_depend_on_no_observation() -> None:
    actor = make_actor(task("vector", "box"), LAYOUT)
    assert actor.log_std is not None
    with torch.no_grad():
        actor.log_std.copy_(torch.tensor([0.5, -0.5]))
    assert actor(sample(OBSERVATION_SPACES["vector"]))[:, 2:].tolist() == [[0.5, -0.5]] * 4
    assert "log_std" in dict(actor.named_parameters())


def test_values_are_one_a_row() -> None:
    assert make_critic(task(), LAYOUT)(sample(OBSERVATION_SPACES["vector"])).shape == (4,)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_critic_of_ones_own_may_give_a_row_or_a_column(dims: int) -> None:
    class Body(nn.Module):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            total = observations.sum(-1)
            return total if dims == 1 else total.unsqueeze(-1)

    observations = torch.arange(6.0).reshape(2, 3)
    assert Critic(Body())(observations).tolist() == [3, 12]


def test_a_single_observation_keeps_its_row() -> None:
    assert Critic(nn.Linear(3, 1))(torch.zeros(1, 3)).shape == (1,)


def test_networks_of_ones_own_are_taken_as_they_are() -> None:
    networks = Networks(nn.Linear(3, 2), nn.Linear(3, 1))
    own = task("vector", "box", networks)
    actor, critic = make_actor(own, LAYOUT), make_critic(own, LAYOUT)
    assert actor.body is networks.actor
    assert critic.body is networks.critic
    assert actor(torch.zeros(4, 3)).shape == (4, 4)


def test_only_observe_moves_the_statistics() -> None:
    critic = make_critic(task(), LAYOUT)
    observations = sample(OBSERVATION_SPACES["vector"])
    before = critic(observations)
    critic(observations)
    torch.testing.assert_close(critic(observations), before, rtol=0, atol=0)
    observe(critic, observations)
    assert not torch.equal(critic(observations), before)
    assert isinstance(critic.body, Perceptron)
    assert critic.state_dict()["body.encoder.normalizer.count"] == 4


def test_statistics_are_no_parameters() -> None:
    critic = make_critic(task(), LAYOUT)
    assert not any("normalizer" in name for name, _ in critic.named_parameters())


@pytest.mark.parametrize(("activation", "module"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_the_layout_is_followed(activation: str, module: type[nn.Module]) -> None:
    body = Perceptron(OBSERVATION_SPACES["vector"], 5, Layout((7, 6), activation, False), 1.0)
    shapes = [tuple(layer.weight.shape) for layer in body.layers if isinstance(layer, nn.Linear)]
    assert shapes == [(7, 3), (6, 7), (5, 6)]
    assert sum(isinstance(layer, module) for layer in body.layers) == 2


def test_no_hidden_layer_is_a_linear_network() -> None:
    body = Perceptron(OBSERVATION_SPACES["vector"], 5, Layout((), "tanh", False), 1.0)
    assert [type(layer) for layer in body.layers] == [nn.Linear]


def test_two_critics_side_by_side_do_not_see_each_other() -> None:
    critic = TwinCritic(OBSERVATION_SPACES["vector"], 2, Layout((8, 8), "relu", False))
    observations, actions = sample(OBSERVATION_SPACES["vector"]), torch.rand(4, 2)
    before = critic(observations, actions)
    assert before.shape == (4, 2)
    assert not torch.allclose(before[:, 0], before[:, 1])
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter[0] += 1
    after = critic(observations, actions)
    torch.testing.assert_close(after[:, 1], before[:, 1])
    assert not torch.allclose(after[:, 0], before[:, 0])


def test_actions_matter_to_two_critics() -> None:
    critic = TwinCritic(OBSERVATION_SPACES["vector"], 2, Layout((8,), "relu", False))
    observations = sample(OBSERVATION_SPACES["vector"])
    assert not torch.allclose(critic(observations, torch.zeros(4, 2)), critic(observations, torch.ones(4, 2)))


def test_an_actor_can_start_with_small_deviations() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    actor = Actor(nn.Linear(3, 2), distribution_for(box), initial_log_std=-1.0)
    assert actor(torch.zeros(1, 3))[0, 2:].tolist() == [-1, -1]
