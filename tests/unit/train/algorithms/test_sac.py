from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_envs import ACTION_SPACES, ANY_SPACE, NEXT_STEP, OBSERVATION_SPACES, SAME_STEP
from torch import Tensor, nn

from envfleet import make_vec
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.algorithms.sac import SAC, Temperature, actor_loss, critic_loss, critic_targets, temperature_loss
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import SACConfig
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor, Networks, TwinCritic
from envfleet.wrappers import BoundedAction

CPU = torch.device("cpu")
FIGURES = ["actor_loss", "critic_loss", "entropy", "temperature", "q_value"]
ONE_ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def make(observations: str = "vector", actions: str = "box", networks: Networks | None = None, **changes: Any) -> SAC:
    small = {"hidden_sizes": (16, 16), "batch_size": 8, "learning_starts": 0, "total_steps": 1000}
    settings = {**small, "updates_per_step": 1.0, "return_steps": 1, "normalize_rewards": False, **changes}
    task = Task(OBSERVATION_SPACES[observations], ACTION_SPACES[actions], 2, CPU, networks)
    return SAC(SACConfig(ANY_SPACE, **settings), task)


def rollouts(
    learner: SAC, count: int, steps: int = 1, observations: str = "vector", actions: str = "box", mode: Any = SAME_STEP
) -> Iterator[Rollout]:
    """As the loop collects them."""
    options = {"autoreset_mode": mode}
    envs = make_vec(ANY_SPACE, 2, "sync", vector_kwargs=options, observations=observations, actions=actions)
    bounded = BoundedAction(envs)
    position = begin(bounded, 0)
    for _ in range(count):
        rollout = collect(bounded, learner.act, steps, position)
        position = rollout.end
        yield rollout
    bounded.close()


def updates(learner: SAC, name: str = "critic") -> int:
    (count,) = {int(state["step"]) for state in learner.optimizers[name].state.values()} or {0}
    return count


class TestLosses:
    """Networks small enough to work the losses out by hand."""

    batch = Transitions(
        observations=torch.tensor([[1.0], [2.0], [3.0]]),
        actions=torch.tensor([[0.5], [-0.5], [0.0]]),
        rewards=torch.tensor([1.0, 2.0, 3.0]),
        next_observations=torch.tensor([[2.0], [3.0], [4.0]]),
        discounts=torch.tensor([0.9, 0.9, 0.81]),
        terminated=torch.tensor([0.0, 1.0, 0.0]),
    )

    class Pair(nn.Module):
        """10 · observation + action, and 1 less."""

        def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
            first = 10 * observations + actions
            return torch.cat([first, first - 1], -1)

    @pytest.fixture
    def actor(self) -> Actor:
        """Mean 0.3, log deviation -1, whatever it sees."""
        body = nn.Linear(1, 2)
        with torch.no_grad():
            body.weight.zero_()
            body.bias.copy_(torch.tensor([0.3, -1.0]))
        return Actor(body, distribution_for(ONE_ACTION, squashed=True))

    def test_targets(self, actor: Actor) -> None:
        torch.manual_seed(1)
        found = critic_targets(actor, self.Pair(), self.batch, torch.tensor(0.2), reward_scale=0.1)
        torch.manual_seed(1)
        raw = 0.3 + math.exp(-1) * torch.randn(3, 1)
        density = torch.distributions.Normal(0.3, math.exp(-1)).log_prob(raw) - torch.log(1 - raw.tanh() ** 2)
        value = 10 * self.batch.next_observations + raw.tanh() - 1 - 0.2 * density
        torch.testing.assert_close(
            found, torch.tensor([0.1, 0.2, 0.3]) + torch.tensor([0.9, 0, 0.81]) * value.squeeze()
        )
        assert not found.requires_grad

    def test_both_critics_are_drawn_to_the_targets(self) -> None:
        targets = torch.tensor([9.5, 20.0, 30.0])
        loss, mean = critic_loss(self.Pair(), self.batch, targets)
        first = torch.tensor([10.5, 19.5, 30.0])
        errors = (first - targets).square().mean() + (first - 1 - targets).square().mean()
        assert loss.item() == pytest.approx(errors.item() / 2)
        assert mean.item() == pytest.approx(19.5)

    def test_the_actor_is_drawn_to_what_the_lower_critic_likes(self, actor: Actor) -> None:
        torch.manual_seed(1)
        loss, log_prob = actor_loss(actor, self.Pair(), self.batch, torch.tensor(0.0))
        torch.manual_seed(1)
        actions = torch.tanh(0.3 + math.exp(-1) * torch.randn(3, 1))
        assert loss.item() == pytest.approx(-(10 * 2 + actions.mean().item() - 1), rel=1e-5)
        assert not log_prob.requires_grad
        (gradient,) = torch.autograd.grad(loss, [actor.body.bias])  # type: ignore[list-item]
        assert gradient[0] < 0, "descending raises the mean, since the critics like large actions"

    def test_a_hot_actor_is_drawn_to_chance(self, actor: Actor) -> None:
        loss, _ = actor_loss(actor, self.Pair(), self.batch, torch.tensor(100.0))
        (gradient,) = torch.autograd.grad(loss, [actor.body.bias])  # type: ignore[list-item]
        assert gradient[1] < 0, "descending raises the deviation"

    @pytest.mark.parametrize(("entropy", "rises"), [(-3.0, True), (-1.0, False)])
    def test_the_temperature_rises_while_the_entropy_is_below_its_target(self, entropy: float, rises: bool) -> None:
        temperature = Temperature(0.5)
        before = temperature().item()
        temperature_loss(temperature, torch.tensor(-entropy), -2.0).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            temperature.log -= temperature.log.grad
        assert before == pytest.approx(0.5)
        assert (temperature().item() > before) == rises


def test_warm_up_is_uniform_and_learns_nothing() -> None:
    learner = make(learning_starts=400, noise_correlation=0.0)
    weights = copy.deepcopy(learner.actor.state_dict())
    actions = []
    for rollout in rollouts(learner, 199):
        figures = learner.learn(rollout, 0.0)
        assert list(figures) == FIGURES
        assert all(map(math.isnan, figures.values()))
        actions.append(rollout.actions)
    drawn = np.concatenate(actions).ravel()
    assert drawn.dtype == np.float32
    assert -1 <= drawn.min() < -0.97 < 0.97 < drawn.max() <= 1
    assert abs(drawn.mean()) < 0.1
    assert drawn.std() == pytest.approx(3**-0.5, abs=0.05)
    assert updates(learner) == 0
    assert all(torch.equal(weights[name], tensor) for name, tensor in learner.actor.state_dict().items())


@pytest.mark.parametrize("learning_starts", [0, 999])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_an_environment_keeps_exploring_the_same_way_for_a_while(correlation: float, learning_starts: int) -> None:
    learner = make(learning_starts=learning_starts, noise_correlation=correlation)
    same = np.ones((2, 3), np.float32)
    actions = np.stack([learner.act(same) for _ in range(2000)])
    for env in range(2):
        found = np.corrcoef(actions[1:, env, 0], actions[:-1, env, 0])[0, 1]
        assert found == pytest.approx(correlation, abs=0.07)
    assert abs(np.corrcoef(actions[:, 0, 0], actions[:, 1, 0])[0, 1]) < 0.25


def test_those_that_are_ready_explore_in_their_own_way() -> None:
    learner = make(noise_correlation=0.999)
    first = learner.act(np.ones((2, 3), np.float32))
    again = learner.act(np.ones((1, 3), np.float32), np.array([1]))
    np.testing.assert_allclose(again[0], first[1], atol=0.2)
    assert np.abs(again[0] - first[0]).max() > 0.4


def test_learning_starts_after_the_warm_up() -> None:
    learner = make(learning_starts=6)
    started = [not math.isnan(learner.learn(rollout, 0.0)["critic_loss"]) for rollout in rollouts(learner, 4)]
    assert started == [False, False, True, True]
    assert updates(learner) == 4


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    make(total_steps=100, learning_starts=99)
    with pytest.raises(ValueError, match="learning_starts=100 leaves nothing of total_steps=100"):
        make(total_steps=100, learning_starts=100)


@pytest.mark.parametrize(("rate", "counts"), [(1.0, [2, 4, 6, 8]), (0.3, [0, 1, 1, 2]), (2.0, [4, 8, 12, 16])])
def test_fractions_of_updates_are_carried_over(rate: float, counts: list[int]) -> None:
    learner = make(updates_per_step=rate)
    found = []
    for rollout in rollouts(learner, 4):
        learner.learn(rollout, 0.0)
        found.append(updates(learner))
    assert found == counts
    assert updates(learner, "actor") == updates(learner, "temperature") == counts[-1]


def test_rows_that_only_reset_earn_no_updates() -> None:
    learner = make()
    seen = list(rollouts(learner, 60, mode=NEXT_STEP))
    for rollout in seen:
        learner.learn(rollout, 0.0)
    transitions = sum(rollout.transitions for rollout in seen)
    assert transitions < 120
    assert updates(learner) == transitions


def test_figures() -> None:
    learner = make(initial_temperature=0.25)
    (rollout,) = rollouts(learner, 1, steps=1)
    figures = learner.learn(rollout, 0.0)
    assert list(figures) == FIGURES
    assert np.isfinite(list(figures.values())).all()
    assert figures["temperature"] == pytest.approx(0.25, rel=0.01)


def test_targets_follow_the_critics_by_a_share() -> None:
    learner = make(tau=0.25, updates_per_step=0.5)
    (rollout,) = rollouts(learner, 1)
    before = [parameter.clone() for parameter in learner.modules["target_critic"].parameters()]
    learner.learn(rollout, 0.0)
    assert updates(learner) == 1
    critics = learner.modules["critic"].parameters()
    for old, critic, new in zip(before, critics, learner.modules["target_critic"].parameters(), strict=True):
        assert not torch.equal(old, critic)
        torch.testing.assert_close(new, 0.75 * old + 0.25 * critic)


def test_targets_start_as_the_critics() -> None:
    learner = make()
    for critic, target in zip(learner.critic.parameters(), learner.modules["target_critic"].parameters(), strict=True):
        assert torch.equal(critic, target)
        assert not target.requires_grad


def test_statistics_count_every_transition_once_and_are_the_same_everywhere() -> None:
    learner = make(normalize_observations=True, learning_starts=10, updates_per_step=2)
    seen = list(rollouts(learner, 20, steps=2, mode=NEXT_STEP))
    for rollout in seen:
        learner.learn(rollout, 0.0)
    observations = np.concatenate([rollout.observations[rollout.valid] for rollout in seen])  # type: ignore[index]
    found = {}
    for name in ("actor", "critic", "target_critic"):
        state = learner.modules[name].state_dict()
        (found[name],) = [
            torch.cat([state[key.replace("count", part)].reshape(-1) for part in ("count", "mean", "m2")])
            for key in state
            if key.endswith("normalizer.count")
        ]
    assert torch.equal(found["actor"], found["critic"])
    assert torch.equal(found["actor"], found["target_critic"])
    assert found["actor"][0] == len(observations) < 80
    np.testing.assert_allclose(found["actor"][1:4], observations.mean(0, dtype=np.float64))


def test_a_batch_without_a_single_transition_leaves_the_statistics_alone() -> None:
    """As when all environments are cut off together, and reset in the next step."""
    learner = make(normalize_observations=True)
    rollout = next(rollouts(learner, 1))
    learner.learn(rollout, 0.0)
    before = {name: tensor.clone() for name, tensor in learner.actor.state_dict().items() if "normalizer" in name}
    none = dataclasses.replace(rollout, valid=np.zeros_like(rollout.valid), terminated=np.zeros_like(rollout.valid))
    learner.learn(none, 0.0)
    assert before
    assert all(torch.equal(learner.actor.state_dict()[name], tensor) for name, tensor in before.items())


def test_gradients_of_the_actors_loss_do_not_move_the_critics() -> None:
    learner = make(critic_lr=1e-12, updates_per_step=10, tau=0.0)
    (rollout,) = rollouts(learner, 1)
    critics, actor = (copy.deepcopy(module.state_dict()) for module in (learner.critic, learner.actor))
    learner.learn(rollout, 0.0)
    for name, tensor in learner.critic.state_dict().items():
        torch.testing.assert_close(tensor, critics[name], rtol=1e-6, atol=1e-6)
    assert any(not torch.equal(tensor, actor[name]) for name, tensor in learner.actor.state_dict().items())


@pytest.mark.parametrize(("anneal", "share"), [(True, 0.25), (False, 1.0)])
def test_step_sizes_fall_or_stay(anneal: bool, share: float) -> None:
    learner = make(actor_lr=0.1, critic_lr=0.2, temperature_lr=0.3, anneal=anneal)
    (rollout,) = rollouts(learner, 1)
    learner.learn(rollout, 0.75)
    rates = {name: optimizer.param_groups[0]["lr"] for name, optimizer in learner.optimizers.items()}
    assert rates == pytest.approx({"actor": 0.1 * share, "critic": 0.2 * share, "temperature": 0.3 * share})


@pytest.mark.parametrize("limit", [0.0, 1e-3])
def test_long_gradients_are_shortened(limit: float) -> None:
    learner = make(max_grad_norm=limit, reward_scale=1000.0, updates_per_step=0.5, learner="torch")
    (rollout,) = rollouts(learner, 1)
    learner.learn(rollout, 0.0)
    gradients = [parameter.grad for parameter in learner.critic.parameters()]
    norm = torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm().item()
    assert norm == pytest.approx(1e-3, rel=1e-3) if limit else norm > 1


def test_the_buffer_is_no_larger_than_the_run() -> None:
    image = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    task = Task(image, ONE_ACTION, 2, CPU)
    SAC(SACConfig(ANY_SPACE, buffer_size=10**9, total_steps=20_000), task)
    with pytest.raises(ValueError, match="set buffer_size to at most"):
        SAC(SACConfig(ANY_SPACE, buffer_size=10**9, total_steps=10**9), task)


@pytest.mark.parametrize("actions", [name for name in ACTION_SPACES if name.startswith("box")])
@pytest.mark.parametrize("observations", ["vector", "dict", "discrete", "image, channels last"])
def test_it_learns_in_every_space(observations: str, actions: str) -> None:
    learner = make(observations, actions, normalize_observations=True)
    for rollout in rollouts(learner, 3, 2, observations, actions):
        assert rollout.actions.shape == (2, 2, *ACTION_SPACES[actions].shape)  # type: ignore[misc]
        figures = learner.learn(rollout, 0.0)
    assert np.isfinite(list(figures.values())).all()


@pytest.mark.parametrize("actions", ["discrete", "multi-binary"])
def test_other_actions_than_numbers_are_refused(actions: str) -> None:
    with pytest.raises(TypeError, match="SAC needs continuous actions"):
        make("vector", actions)


class OwnCritic(nn.Module):
    """Two estimates; one of its layers is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3 + 2, 2), nn.Linear(1, 1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        found: Tensor = self.used(torch.cat([observations, actions], -1))
        return found


def test_networks_of_ones_own() -> None:
    own = Networks(nn.Linear(3, 4), OwnCritic())
    learner = make(networks=own)
    assert learner.actor.body is own.actor
    assert learner.critic is own.critic
    before = copy.deepcopy(own.critic.state_dict())
    for rollout in rollouts(learner, 3):
        figures = learner.learn(rollout, 0.0)
    assert np.isfinite(list(figures.values())).all()
    after = own.critic.state_dict()
    assert not torch.equal(after["used.weight"], before["used.weight"])
    assert torch.equal(after["unused.weight"], before["unused.weight"])


class OneEstimate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        found: Tensor = self.layer(actions)
        return found


def test_a_critic_with_one_estimate_is_refused() -> None:
    learner = make(networks=Networks(nn.Linear(3, 4), OneEstimate()))
    (rollout,) = rollouts(learner, 1)
    with pytest.raises(ValueError, match=r"SAC's critic must give \[batch, 2\], two estimates per row, got \[8, 1\]"):
        learner.learn(rollout, 0.0)


def test_our_critics_are_what_the_layout_says() -> None:
    critic = make(hidden_sizes=(16, 8), activation="tanh").critic
    assert isinstance(critic, TwinCritic)
    shapes = [tuple(parameter.shape) for name, parameter in critic.named_parameters() if name.endswith("weight")]
    assert shapes == [(2, 3 + 2, 16), (2, 16, 8), (2, 8, 1)]
    assert sum(isinstance(layer, nn.Tanh) for layer in critic.layers) == 2


def saved(learner: SAC) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "modules": {name: module.state_dict() for name, module in learner.modules.items()},
            "states": {name: optimizer.state_dict()["state"] for name, optimizer in learner.optimizers.items()},
            "extra": learner.extra_tensors(),
            "random": torch.get_rng_state(),
        }
    )


def load(learner: SAC, state: dict[str, Any]) -> None:
    for name, module in learner.modules.items():
        module.load_state_dict(state["modules"][name])
    for name, optimizer in learner.optimizers.items():
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state["states"][name]})
    learner.load_extra_tensors(state["extra"])
    torch.set_rng_state(state["random"])


@pytest.mark.parametrize("stop", [3, 12])
def test_a_loaded_learner_goes_on_like_the_saved_one(stop: int) -> None:
    settings = {"learning_starts": 10, "updates_per_step": 0.7, "buffer_size": 20, "normalize_observations": True}
    learner = make(**settings)
    # Collected beforehand, so that both see the same; what they would do is compared besides.
    seen = list(rollouts(learner, 25))
    for rollout in seen[:stop]:
        learner.learn(rollout, 0.1)
    state = saved(learner)

    def went_on(one: SAC) -> tuple[list[dict[str, float]], list[Any], dict[str, Any]]:
        torch.set_rng_state(state["random"])
        figures = [one.learn(rollout, 0.2) for rollout in seen[stop:]]
        return figures, one.act(np.ones((2, 3), np.float32)).tolist(), saved(one)

    loaded = make(**settings, seed=5)
    load(loaded, state)
    first, second = went_on(learner), went_on(loaded)
    assert first[1] == second[1]
    np.testing.assert_equal(first[0], second[0])
    for part in ("modules", "states", "extra", "random"):
        torch.testing.assert_close(first[2][part], second[2][part], rtol=0, atol=0)
