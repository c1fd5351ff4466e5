"""The compiled learner against torch: every gradient, whole updates, and what must not depend on the way."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from envfleet import _learner
from envfleet.errors import NonFiniteError
from envfleet.train import Networks
from envfleet.train.algorithms import a2c, compiled, dqn, ppo, sac, td3
from envfleet.train.algorithms.compiled import CompiledA2C, CompiledPPO, CompiledUpdate
from envfleet.train.algorithms.compiled_dqn import CompiledDQN
from envfleet.train.algorithms.compiled_sac import CompiledSAC
from envfleet.train.algorithms.compiled_td3 import CompiledTD3
from envfleet.train.algorithms.learner import Batch, OnPolicyLearner, Task, critic_loss, normalized
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config
from envfleet.train.networks.networks import observe

CPU = torch.device("cpu")
KERNELS = _learner.kernel_names()
ACTIONS: dict[str, Space[Any]] = {
    "discrete": spaces.Discrete(5, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}
LAYOUTS: list[tuple[tuple[int, ...], str]] = [((64, 64), "tanh"), ((33,), "relu"), ((), "tanh"), ((7, 70, 20), "relu")]
BETA1 = 0.9


@dataclass(frozen=True)
class Shape:
    """What a minibatch and its networks look like.

    One that was drawn may have so few rows that they cancel each other in one tensor: its errors are compared with the
    largest entry of the network's gradient, not with that of their own tensor.
    """

    hidden: tuple[int, ...]
    activation: str
    rows: int
    kernels: str
    features: int = 6
    actions: Space[Any] = field(default_factory=lambda: spaces.Box(-1, 1, (3,)))
    drawn: bool = False

    @property
    def layers(self) -> dict[str, Any]:
        return {"features": self.features, "hidden_sizes": self.hidden, "activation": self.activation}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def learner_of(algo: str, actions: Space[Any], features: int = 6, **changes: Any) -> Any:
    """A learner that torch computes, with statistics of observations that are not those of a standard normal."""
    configs = {"a2c": A2CConfig, "ppo": PPOConfig, "sac": SACConfig, "td3": TD3Config, "dqn": DQNConfig}
    classes: dict[str, Any] = {"a2c": a2c.A2C, "ppo": ppo.PPO, "sac": sac.SAC, "td3": td3.TD3, "dqn": dqn.DQN}
    config: Any = configs[algo]
    made = classes[algo](
        config("CartPole-v1", **{"learner": "torch", "normalize_observations": True, **changes}),
        Task(spaces.Box(-9, 9, (features,)), actions, 2, CPU),
    )
    for network in made.modules.values():
        observe(network, 2 * torch.randn(50, features, generator=torch.Generator().manual_seed(0)) + 1)
    return made


def compiled_for(learner: Any, kernels: str | None = None) -> CompiledUpdate[Any]:
    """Compiled code on the very tensors of a learner."""
    made = CompiledA2C if isinstance(learner, a2c.A2C) else CompiledPPO
    networks = (learner.actor, learner.critic, learner.actor_optimizer, learner.critic_optimizer)
    update: CompiledUpdate[Any] = made(learner.config, *networks, kernels)
    return update


def batch_for(learner: OnPolicyLearner[Any], rows: int, features: int = 6) -> Batch:
    observations = 2 * torch.randn(rows, features) + 1
    with torch.no_grad():
        actions = learner.actor.distribution.sample(learner.actor(observations))
    return Batch(observations, actions, torch.randn(rows), torch.randn(rows), torch.zeros(rows), 0.0)


def transitions_for(rows: int, features: int, components: int) -> Transitions:
    return Transitions(
        2 * torch.randn(rows, features) + 1,
        torch.tanh(torch.randn(rows, components)),
        torch.randn(rows),
        2 * torch.randn(rows, features) + 1,
        torch.full((rows,), 0.99),
        (torch.rand(rows) < 0.2).float(),
    )


def stirred(*networks: nn.Module) -> None:
    """Weights a little elsewhere, biases and deviations that are not 0."""
    with torch.no_grad():
        for parameter in itertools.chain.from_iterable(network.parameters() for network in networks):
            parameter.add_(0.1 * torch.randn_like(parameter))


def first_gradients(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimiser's first step was taken with: Adam remembers a share of it."""
    return {name: optimizer.state[each]["exp_avg"] / (1 - BETA1) for name, each in network.named_parameters()}


def exact_gradients(network: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    named = dict(network.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def assert_close(shape: Shape, ours: dict[str, Tensor], exact: dict[str, Tensor], relative: float = 1e-5) -> None:
    largest = {name: gradient.abs().max().item() for name, gradient in exact.items()}
    for name, gradient in exact.items():
        off = (ours[name].double() - gradient.double()).abs().max().item()
        scale = max(largest.values()) if shape.drawn else largest[name]
        assert off <= relative * scale + 1e-12, (name, off, scale)


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_both_learners_begin_with_the_deviation_asked_for(algo: str) -> None:
    makers = {"a2c": a2c.A2C, "ppo": ppo.PPO}
    config: Any = {"a2c": A2CConfig, "ppo": PPOConfig}[algo]
    task = Task(spaces.Box(-9, 9, (6,)), ACTIONS["box"], 2, CPU)
    for learner in ("torch", "compiled"):
        made = makers[algo](config("unused", learner=learner, initial_log_std=-1.5, hidden_sizes=(8,)), task)
        assert made.plan.startswith("compiled code") == (learner == "compiled")
        assert made.actor.log_std is not None
        assert made.actor.log_std.tolist() == [-1.5, -1.5]
        actions = np.stack([made.act(np.zeros((2, 6), np.float32)) for _ in range(500)])
        assert actions.std() == pytest.approx(np.exp(-1.5), rel=0.15)


class Exact(nn.Module):
    """An encoder whose features, float32 as they are, go on as float64."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.encoder(observations.float()).double()
        return features


def exact_copy(network: Any) -> Any:
    """The same network in float64, where torch's gradients are exact to many more digits."""
    made = copy.deepcopy(network)
    body = getattr(made, "body", made)
    if hasattr(body, "encoder"):
        body.encoder = Exact(body.encoder)
    for parameter in made.parameters():
        parameter.data = parameter.data.double()
    return made


def doubled(batch: Any) -> Any:
    """The same batch in float64."""
    values = {
        name: value.double() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in vars(batch).items()
    }
    return replace(batch, **values)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize(("hidden", "activation"), LAYOUTS)
def test_gradients_of_a2c_are_those_of_autograd(
    hidden: tuple[int, ...], activation: str, actions: str, kernels: str
) -> None:
    check_a2c(Shape(hidden, activation, 150, kernels, actions=ACTIONS[actions]))


def check_a2c(shape: Shape) -> None:
    plain: dict[str, Any] = {"critic_updates": 1, "max_grad_norm": 0.0, "entropy_coef": 0.1}
    learner = learner_of("a2c", shape.actions, **shape.layers, **plain)
    stirred(learner.actor, learner.critic)
    actor, critic = exact_copy(learner.actor), exact_copy(learner.critic)
    batch = batch_for(learner, shape.rows, shape.features)
    metrics = compiled_for(learner, shape.kernels)(batch, 0.1)
    exact = doubled(batch)
    loss, entropy = a2c.actor_loss(actor, exact, normalized(exact.advantages), 0.1)
    assert_close(shape, first_gradients(learner.actor, learner.actor_optimizer), exact_gradients(actor, loss))
    value_loss = critic_loss(critic, exact)
    assert_close(shape, first_gradients(learner.critic, learner.critic_optimizer), exact_gradients(critic, value_loss))
    expected = {"actor_loss": loss.item(), "critic_loss": value_loss.item(), "entropy": entropy.item()}
    assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 17, 64, 65, 200])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kernels", KERNELS)
def test_gradients_of_ppo_are_those_of_autograd(kernels: str, actions: str, rows: int) -> None:
    metrics = check_ppo(Shape((40, 30), "tanh", rows, kernels, actions=ACTIONS[actions]))
    assert rows < 60 or 0 < metrics[4] < 1  # some were clipped, some not


def check_ppo(shape: Shape) -> list[float]:
    plain: dict[str, Any] = {"epochs": 1, "minibatch_size": 1000, "max_grad_norm": 0.0, "target_kl": 0.0}
    learner = learner_of("ppo", shape.actions, **shape.layers, **plain)
    batch = batch_for(learner, shape.rows, shape.features)
    update = compiled_for(learner, shape.kernels)
    loaded = update._loaded(batch)
    loaded.remember_policy(two_threads=False)
    before = exact_copy(learner.actor)
    stirred(learner.actor, learner.critic)  # so that ratios are not 1 and some are clipped
    actor, critic = exact_copy(learner.actor), exact_copy(learner.critic)
    step = (1e-3, BETA1, 0.99, 1e-8, 0.0)
    not_finite, metrics = loaded.ppo_epoch(
        torch.randperm(shape.rows).numpy(),
        minibatch=1000,
        entropy_coef=0.1,
        normalize_advantages=True,
        clip_range=0.2,
        actor=step,
        critic=step,
        two_threads=False,
    )
    assert not_finite is None
    exact = doubled(batch)
    with torch.no_grad():
        old = before.distribution.log_prob(before(exact.observations), exact.actions)
    policy = ppo.actor_loss(actor, exact, normalized(exact.advantages), old, 0.2, 0.1)
    assert_close(shape, first_gradients(learner.actor, learner.actor_optimizer), exact_gradients(actor, policy.loss))
    value_loss = critic_loss(critic, exact)
    assert_close(shape, first_gradients(learner.critic, learner.critic_optimizer), exact_gradients(critic, value_loss))
    expected = [policy.loss, value_loss, policy.entropy, policy.approx_kl, policy.clip_fraction]
    assert metrics == pytest.approx([value.item() for value in expected], rel=1e-5, abs=1e-6)
    return list(metrics)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("hidden", "activation"), LAYOUTS)
@pytest.mark.parametrize("rows", [1, 64, 100, 130])
def test_gradients_of_sac_are_those_of_autograd(
    hidden: tuple[int, ...], activation: str, rows: int, kernels: str
) -> None:
    check_sac(Shape(hidden, activation, rows, kernels))


def check_sac(shape: Shape) -> None:
    (components,) = shape.actions.shape or ()
    learner = learner_of("sac", shape.actions, **shape.layers)
    stirred(*learner.modules.values())
    exact = {name: exact_copy(module) for name, module in learner.modules.items()}
    batch = transitions_for(shape.rows, shape.features, components)
    optimizers = learner.optimizers
    for optimizer in optimizers.values():
        optimizer.param_groups[0]["lr"] = 0.0  # so that the actor's loss sees the critics as they were
    made = CompiledSAC(learner.config, learner.modules, optimizers, -3.0, shape.kernels)
    torch.manual_seed(5)
    metrics = made.updates(batch, 1, 0.5).tolist()
    torch.manual_seed(5)
    noises = [torch.randn(shape.rows, components).double() for _ in range(2)]
    double = doubled(batch)
    temperature = exact["temperature"]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda _: noises.pop(0))
        targets = sac.critic_targets(exact["actor"], exact["target_critic"], double, temperature, 0.5)
        value_loss, value = sac.critic_loss(exact["critic"], double, targets)
        policy_loss, log_prob = sac.actor_loss(exact["actor"], exact["critic"], double, temperature)
    price = sac.temperature_loss(exact["temperature"], log_prob, -3.0)
    for name, loss in (("critic", value_loss), ("actor", policy_loss), ("temperature", price)):
        ours = first_gradients(learner.modules[name], optimizers[name])
        assert_close(shape, ours, exact_gradients(exact[name], loss))
    expected = [policy_loss, value_loss, -log_prob, temperature, value]
    assert metrics == pytest.approx([each.item() for each in expected], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("hidden", "activation"), LAYOUTS)
@pytest.mark.parametrize("rows", [1, 64, 100, 130])
def test_gradients_of_td3_are_those_of_autograd(
    hidden: tuple[int, ...], activation: str, rows: int, kernels: str
) -> None:
    check_td3(Shape(hidden, activation, rows, kernels))


def check_td3(shape: Shape) -> None:
    (components,) = shape.actions.shape or ()
    learner = learner_of("td3", shape.actions, **shape.layers)
    stirred(*learner.modules.values())
    exact = {name: exact_copy(module) for name, module in learner.modules.items()}
    batch = transitions_for(shape.rows, shape.features, components)
    for optimizer in learner.optimizers.values():
        optimizer.param_groups[0]["lr"] = 0.0  # so that the actor's loss sees the critics as they were
    made = CompiledTD3(learner.config, learner.modules, learner.optimizers, shape.kernels)
    torch.manual_seed(5)
    metrics = made.updates(batch, 1, 0.5, done=1).tolist()
    torch.manual_seed(5)
    noise = (0.2 * torch.randn(shape.rows, components)).clamp(-0.5, 0.5).double()
    double = doubled(batch)
    targets = td3.critic_targets(exact["target_actor"], exact["target_critic"], double, noise, 0.5)
    value_loss, value = td3.critic_loss(exact["critic"], double, targets)
    policy_loss = td3.actor_loss(exact["actor"], exact["critic"], double)
    for name, loss in (("critic", value_loss), ("actor", policy_loss)):
        ours = first_gradients(learner.modules[name], learner.optimizers[name])
        assert_close(shape, ours, exact_gradients(exact[name], loss))
    assert metrics == pytest.approx([2 * policy_loss.item(), value_loss.item(), value.item()], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("hidden", "activation"), LAYOUTS)
@pytest.mark.parametrize(("rows", "double", "weighted"), [(1, True, False), (64, False, True), (130, True, True)])
def test_gradients_of_dqn_are_those_of_autograd(
    hidden: tuple[int, ...], activation: str, rows: int, double: bool, weighted: bool, kernels: str
) -> None:
    check_dqn(Shape(hidden, activation, rows, kernels, actions=ACTIONS["discrete"]), double, weighted)


def check_dqn(shape: Shape, double: bool, weighted: bool) -> None:
    learner = learner_of("dqn", shape.actions, **shape.layers, double=double)
    stirred(*learner.modules.values())
    exact = {name: exact_copy(module) for name, module in learner.modules.items()}
    batch = choices_for(shape.rows, weighted, shape.features)
    made = CompiledDQN(learner.config, learner.modules, learner.optimizers, shape.kernels)
    metrics = made.updates(batch, 1, 2.0).tolist()
    precise = doubled(batch)
    targets = dqn.value_targets(exact["actor"], exact["target_actor"], precise, 2.0, double=double)
    loss, errors, value = dqn.value_loss(exact["actor"], precise, targets)
    ours = first_gradients(learner.actor, learner.optimizers["actor"])
    assert_close(shape, ours, exact_gradients(exact["actor"], loss))
    assert metrics == pytest.approx([loss.item(), value.item()], rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(made.errors, errors.numpy(), rtol=1e-4, atol=1e-5)


# Shapes are drawn, the same ones in every run. Rounding may decide on which side of 0 a relu lies. With twin critics
# that was seen in one of 600 shapes: they have tanh here. The layouts above have both.
WIDTHS = st.lists(st.integers(1, 90), max_size=3).map(tuple)
RANDOM_LAYERS: dict[str, Any] = {
    "hidden": WIDTHS,
    "activation": st.sampled_from(["tanh", "relu"]),
    "rows": st.integers(16, 200),
    "kernels": st.sampled_from(KERNELS),
    "features": st.integers(1, 20),
    "drawn": st.just(True),
}
BOXES = st.builds(lambda components: spaces.Box(-1, 1, (components,)), st.integers(1, 6))
POLICIES = st.one_of(
    BOXES,
    st.builds(spaces.Discrete, st.integers(2, 20)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(2, 6), min_size=1, max_size=4)),
    st.builds(spaces.MultiBinary, st.integers(1, 6)),
)
random_shapes = settings(max_examples=50, deadline=None, derandomize=True)


@random_shapes
@given(shape=st.builds(Shape, **RANDOM_LAYERS, actions=POLICIES), seed=st.integers(0, 99))
def test_gradients_of_on_policy_algorithms_are_those_of_autograd_whatever_the_shape(shape: Shape, seed: int) -> None:
    for check in (check_a2c, check_ppo):
        torch.manual_seed(seed)
        check(shape)


@random_shapes
@given(
    shape=st.builds(Shape, **{**RANDOM_LAYERS, "activation": st.just("tanh")}, actions=BOXES),
    seed=st.integers(0, 99),
)
def test_gradients_of_actors_and_twin_critics_are_those_of_autograd_whatever_the_shape(shape: Shape, seed: int) -> None:
    for check in (check_sac, check_td3):
        torch.manual_seed(seed)
        check(shape)


@random_shapes
@given(
    shape=st.builds(Shape, **RANDOM_LAYERS, actions=st.just(ACTIONS["discrete"])),
    double=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gradients_of_dqn_are_those_of_autograd_whatever_the_shape(
    shape: Shape, double: bool, weighted: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    check_dqn(shape, double, weighted)


def choices_for(rows: int, weighted: bool = False, features: int = 6) -> Transitions:
    """Transitions of `ACTIONS["discrete"]`."""
    made = replace(transitions_for(rows, features, 1), actions=torch.randint(2, 7, (rows, 1)).float())
    return replace(made, weights=torch.rand(rows) if weighted else None)


def torch_updates(learner: Any, batch: Batch, count: int) -> list[dict[str, float]]:
    return [learner.update(batch, 0.01) for _ in range(count)]


def compiled_updates(learner: Any, batch: Batch, count: int) -> list[dict[str, float]]:
    update = compiled_for(learner)
    return [update(batch, 0.01) for _ in range(count)]


def weights_of(learner: Any) -> Tensor:
    return torch.cat([each.detach().flatten() for module in learner.modules.values() for each in module.parameters()])


def memory_of(learner: Any) -> list[Tensor]:
    """All that updates change: weights and what the optimisers remember."""
    states = [optimizer.state_dict()["state"] for optimizer in learner.optimizers.values()]
    remembered = [tensor for state in states for entry in state.values() for tensor in entry.values()]
    return [weights_of(learner), *(tensor.clone() for tensor in remembered)]


@pytest.mark.parametrize("actions", ["discrete", "box"])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_thousands_of_steps_end_where_torchs_end(algo: str, actions: str) -> None:
    """2,000 gradient steps. Rounding differs, and 2,000 steps of 1e-4 could lead 0.2 away: they stay within 1e-3."""
    rates: dict[str, Any] = {"actor_lr": 1e-4, "critic_lr": 1e-4, "hidden_sizes": (16, 16)}
    own = {"a2c": {"critic_updates": 4}, "ppo": {"minibatch_size": 16, "epochs": 5, "target_kl": 0.0}}[algo]
    ours = learner_of(algo, ACTIONS[actions], **rates, **own)
    theirs, before = copy.deepcopy(ours), weights_of(ours)
    batch = batch_for(ours, 64)
    rounds = {"a2c": 400, "ppo": 50}[algo]
    torch.manual_seed(1)
    expected = torch_updates(theirs, batch, rounds)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    metrics = compiled_updates(ours, batch, rounds)
    assert torch.equal(torch.get_rng_state(), state)  # one may go on either way
    steps = sum(
        int(state["step"]) for optimizer in ours.optimizers.values() for state in [next(iter(optimizer.state.values()))]
    )
    assert steps == {"a2c": 400 * 5, "ppo": 50 * 5 * 4 * 2}[algo]
    assert (weights_of(ours) - weights_of(theirs)).abs().max() < 1e-3
    assert (weights_of(ours) - before).abs().max() > 0.05
    assert metrics[-1] == pytest.approx(expected[-1], rel=0.01, abs=2e-3)


def test_thousands_of_steps_of_sac_end_where_torchs_end() -> None:
    changes: dict[str, Any] = {"batch_size": 16, "hidden_sizes": (16, 16), "activation": "tanh", "max_grad_norm": 1.0}
    ours = learner_of("sac", spaces.Box(-1, 1, (2,)), **changes, actor_lr=1e-4, critic_lr=1e-4, temperature_lr=1e-4)
    theirs, before = copy.deepcopy(ours), weights_of(ours)
    count = 700  # of three optimisers each
    drawn = transitions_for(16 * count, 6, 2)
    torch.manual_seed(1)
    expected = torch.zeros(5)
    for first in range(0, 16 * count, 16):
        expected += theirs.update(
            replace(drawn, **{name: each[first : first + 16] for name, each in vars(drawn).items() if each is not None})
        )
    state = torch.get_rng_state()
    torch.manual_seed(1)
    made = CompiledSAC(ours.config, ours.modules, ours.optimizers, ours._target_entropy)
    metrics = made.updates(drawn, count, ours._rewards.factor)
    assert torch.equal(torch.get_rng_state(), state)
    assert (weights_of(ours) - weights_of(theirs)).abs().max() < 1e-3
    assert (weights_of(ours) - before).abs().max() > 0.05
    assert (metrics / count).tolist() == pytest.approx((expected / count).tolist(), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_many_updates_are_torchs(algo: str) -> None:
    """Also in halves: the actor of TD3 has its turn when it would have had it."""
    actions = spaces.Box(-1, 1, (2,)) if algo == "td3" else ACTIONS["discrete"]
    ours = learner_of(algo, actions, hidden_sizes=(16, 16), max_grad_norm=0.5, learner="auto")
    theirs, before = copy.deepcopy(ours), weights_of(ours)
    assert ours.plan.startswith("compiled")
    count = 301
    drawn = transitions_for(16 * count, 6, 2) if algo == "td3" else choices_for(16 * count)

    def part(first: int, last: int) -> Transitions:
        rows = {name: each for name, each in vars(drawn).items() if each is not None}
        return replace(drawn, **{name: each[16 * first : 16 * last] for name, each in rows.items()})

    torch.manual_seed(1)
    expected = sum(theirs.update(part(at, at + 1)) for at in range(count))
    state = torch.get_rng_state()
    torch.manual_seed(1)
    metrics = ours.compiled_update(part(0, 101), 101) + ours.compiled_update(part(101, count), 200)
    assert torch.equal(torch.get_rng_state(), state)
    assert (weights_of(ours) - weights_of(theirs)).abs().max() < 1e-3
    assert (weights_of(ours) - before).abs().max() > 0.03
    assert (metrics / count).tolist() == pytest.approx((expected / count).tolist(), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_td3_and_dqn_give_the_same_bits_in_one_thread_or_two(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = learner_of(algo, spaces.Box(-1, 1, (2,)) if algo == "td3" else ACTIONS["discrete"], learner="auto")
    drawn = transitions_for(400, 6, 2) if algo == "td3" else choices_for(400, weighted=True)
    outcomes = []
    for learner, threads in zip([first, *(copy.deepcopy(first) for _ in range(2))], (1, 2, 2), strict=True):
        name = f"envfleet.train.algorithms.compiled_{algo}.two_threads"
        monkeypatch.setattr(name, lambda threads=threads: threads == 2)
        torch.manual_seed(2)
        outcomes.append((learner.compiled_update(drawn, 4).tolist(), memory_of(learner)))
    for metrics, memory in outcomes[1:]:
        assert metrics == outcomes[0][0]
        assert all(map(torch.equal, memory, outcomes[0][1]))


@pytest.mark.parametrize(("algo", "what"), [("td3", "critic loss"), ("dqn", "actor loss")])
def test_td3_and_dqn_refuse_what_is_not_finite(algo: str, what: str) -> None:
    learner = learner_of(algo, spaces.Box(-1, 1, (2,)) if algo == "td3" else ACTIONS["discrete"], learner="auto")
    batch = transitions_for(32, 6, 2) if algo == "td3" else choices_for(32)
    batch.rewards[7] = float("nan")
    before = weights_of(learner)
    with pytest.raises(NonFiniteError, match=what):
        learner.compiled_update(batch, 1)
    assert torch.equal(weights_of(learner), before)


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_the_same_numbers_give_the_same_bits_in_one_thread_or_two(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = learner_of(algo, ACTIONS["box"])
    others = [copy.deepcopy(first) for _ in range(2)]
    batch = batch_for(first, 300)
    outcomes = []
    for learner, threads in zip([first, *others], (1, 2, 2), strict=True):
        monkeypatch.setattr(compiled, "two_threads", lambda threads=threads: threads == 2)
        torch.manual_seed(2)
        outcomes.append((compiled_updates(learner, batch, 3), memory_of(learner)))
    for metrics, memory in outcomes[1:]:
        assert metrics == outcomes[0][0]
        assert all(map(torch.equal, memory, outcomes[0][1]))


def test_sac_gives_the_same_bits_in_one_thread_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    first = learner_of("sac", spaces.Box(-1, 1, (2,)))
    drawn = transitions_for(400, 6, 2)
    outcomes = []
    for learner, threads in zip([first, *(copy.deepcopy(first) for _ in range(2))], (1, 2, 2), strict=True):
        monkeypatch.setattr("envfleet.train.algorithms.compiled_sac.two_threads", lambda threads=threads: threads == 2)
        torch.manual_seed(2)
        made = CompiledSAC(learner.config, learner.modules, learner.optimizers, -2.0)
        outcomes.append((made.updates(drawn, 4, 1.0).tolist(), memory_of(learner)))
    for metrics, memory in outcomes[1:]:
        assert metrics == outcomes[0][0]
        assert all(map(torch.equal, memory, outcomes[0][1]))


def poison_returns(batch: Batch) -> Batch:
    returns = batch.returns.clone()
    returns[3] = float("nan")
    return replace(batch, returns=returns)


def poison_advantages(batch: Batch) -> Batch:
    advantages = batch.advantages.clone()
    advantages[3] = float("inf")
    return replace(batch, advantages=advantages)


def overflowing_returns(batch: Batch) -> Batch:
    """The loss is finite, in float64, and its gradient is not in float32."""
    return replace(batch, returns=torch.full_like(batch.returns, 3e38))


@pytest.mark.parametrize("poison", [poison_returns, poison_advantages])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_what_is_not_finite_is_said_as_torch_says_it_before_a_weight_moves(
    algo: str, poison: Callable[[Batch], Batch]
) -> None:
    learner = learner_of(algo, ACTIONS["discrete"], **({"minibatch_size": 1000} if algo == "ppo" else {}))
    theirs = copy.deepcopy(learner)
    batch = poison(batch_for(learner, 80))
    named = "critic" if poison is poison_returns else "actor"
    before = [each.clone() for each in learner.modules[named].parameters()]
    with pytest.raises(NonFiniteError) as torchs:
        theirs.update(batch, 0.01)
    with pytest.raises(NonFiniteError) as ours:
        compiled_for(learner)(batch, 0.01)
    assert str(ours.value) == str(torchs.value)
    assert ours.value.quantity == torchs.value.quantity == f"{named} loss"
    assert all(map(torch.equal, before, learner.modules[named].parameters()))


def test_a_gradient_that_is_not_finite_is_noticed_before_a_weight_moves() -> None:
    learner = learner_of("a2c", ACTIONS["discrete"], max_grad_norm=0.0)
    before = [each.clone() for each in learner.critic.parameters()]
    with pytest.raises(NonFiniteError, match=r"critic gradient is (inf|nan)"):
        compiled_for(learner)(overflowing_returns(batch_for(learner, 80)), 0.01)
    assert all(map(torch.equal, before, learner.critic.parameters()))


def test_sac_notices_what_is_not_finite_before_a_weight_moves() -> None:
    learner = learner_of("sac", spaces.Box(-1, 1, (2,)))
    drawn = transitions_for(64, 6, 2)
    drawn.rewards[5] = float("inf")
    before = weights_of(learner)
    made = CompiledSAC(learner.config, learner.modules, learner.optimizers, -2.0)
    with pytest.raises(NonFiniteError, match="critic loss is inf") as raised:
        made.updates(drawn, 1, 1.0)
    assert raised.value.quantity == "critic loss"
    assert torch.equal(before, weights_of(learner))


def test_tensors_that_take_the_place_of_others_are_found() -> None:
    """Loading a state gives an optimiser other tensors, which are the ones to go on with."""
    learner = learner_of("ppo", ACTIONS["discrete"])
    batch = batch_for(learner, 50)
    update = compiled_for(learner)
    update(batch, 0.01)
    undisturbed = copy.deepcopy((learner, update))
    learner.actor_optimizer.load_state_dict(copy.deepcopy(learner.actor_optimizer.state_dict()))
    for updates in (update, undisturbed[1]):
        torch.manual_seed(1)
        updates(batch, 0.01)
    assert all(map(torch.equal, memory_of(learner), memory_of(undisturbed[0])))


@pytest.mark.parametrize("algo", ["a2c", "sac"])
def test_a_copy_of_a_learner_learns_for_itself(algo: str) -> None:
    learner = learner_of(algo, ACTIONS["box"], learner="compiled")
    other = copy.deepcopy(learner)
    before = weights_of(learner)
    if algo == "sac":
        other._compiled.updates(transitions_for(32, 6, 2), 2, 1.0)
    else:
        other._compiled(batch_for(other, 40), 0.01)
    assert torch.equal(weights_of(learner), before)
    assert not torch.equal(weights_of(other), before)


def test_wide_layers_are_left_to_many_threads_of_torchs() -> None:
    task = Task(spaces.Box(-9, 9, (6,)), spaces.Discrete(2), 2, CPU)
    wide = A2CConfig("x", hidden_sizes=(256, 256), torch_threads=8)
    assert a2c.A2C(wide, task).plan == "torch: its 8 threads share the work of wide layers"
    assert a2c.A2C(replace(wide, learner="compiled"), task).plan.startswith("compiled code")
    assert a2c.A2C(replace(wide, torch_threads=1), task).plan.startswith("compiled code")


def test_observations_of_other_types_are_taken() -> None:
    for space in (spaces.MultiBinary(4), spaces.Box(-9, 9, (2, 3), np.float64), spaces.Box(0, 9, (3,), np.int64)):
        config = PPOConfig("CartPole-v1", learner="torch", hidden_sizes=(9,), minibatch_size=10, target_kl=0.0)
        ours = ppo.PPO(config, Task(space, spaces.Discrete(2), 2, CPU))
        observations = torch.from_numpy(np.stack([space.sample() for _ in range(20)]))
        for network in ours.modules.values():
            observe(network, observations)
        theirs = copy.deepcopy(ours)
        batch = Batch(observations, torch.randint(2, (20,)), torch.randn(20), torch.randn(20), torch.zeros(20), 0.0)
        torch.manual_seed(0)
        torch_updates(theirs, batch, 2)
        torch.manual_seed(0)
        compiled_updates(ours, batch, 2)
        assert (weights_of(ours) - weights_of(theirs)).abs().max() < 1e-5
        values = compiled_for(ours).values(observations)
        assert torch.allclose(values, ours.critic(observations), atol=1e-5)


class Linear(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, outputs)

    def forward(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.layer(observations)
        return outputs


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_networks_of_ones_own_are_left_to_torch(algo: str) -> None:
    config: Any = {"a2c": A2CConfig, "ppo": PPOConfig}[algo]("CartPole-v1")
    made = {"a2c": a2c.A2C, "ppo": ppo.PPO}[algo]
    task = Task(spaces.Box(-9, 9, (6,)), spaces.Discrete(2), 2, CPU, Networks(Linear(2), Linear(1)))
    assert made(config, task).plan == "torch: the networks are not envfleet's (Linear)"
    with pytest.raises(ValueError, match="learner='compiled' is not possible: the networks are not envfleet's"):
        made(replace(config, learner="compiled"), task)


def test_the_plan_says_what_computes_the_updates() -> None:
    task = Task(spaces.Box(-9, 9, (6,)), spaces.Box(-1, 1, (2,)), 2, CPU)
    best = KERNELS[-1]
    assert a2c.A2C(A2CConfig("x"), task).plan == f"compiled code ({best})"
    assert sac.SAC(SACConfig("x"), task).plan == f"compiled code ({best})"
    assert td3.TD3(TD3Config("x"), task).plan == f"compiled code ({best})"
    choices = Task(spaces.Box(-9, 9, (6,)), spaces.Discrete(3), 2, CPU)
    assert dqn.DQN(DQNConfig("x"), choices).plan == f"compiled code ({best})"
    assert dqn.DQN(DQNConfig("x", dueling=True), choices).plan == "torch: it does not take the dueling network"
    with pytest.raises(ValueError, match="learner='compiled' is not possible: it does not take the dueling network"):
        dqn.DQN(DQNConfig("x", dueling=True, learner="compiled"), choices)
    assert ppo.PPO(PPOConfig("x", learner="torch"), task).plan == "torch: as told"
    images = Task(spaces.Box(0, 255, (40, 40, 3), np.uint8), spaces.Discrete(2), 2, CPU)
    assert ppo.PPO(PPOConfig("x"), images).plan == "torch: observations are no vectors of numbers"


def test_an_update_of_ones_own_is_not_replaced() -> None:
    class Mine(OnPolicyLearner[A2CConfig]):
        metrics = ("called",)

        def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
            raise NotImplementedError

    class Derived(a2c.A2C):  # type: ignore[misc]
        pass

    class DerivedSac(sac.SAC):
        pass

    task = Task(spaces.Box(-9, 9, (6,)), spaces.Box(-1, 1, (2,)), 2, CPU)
    for learner in (Mine(A2CConfig("x"), task), Derived(A2CConfig("x"), task), DerivedSac(SACConfig("x"), task)):
        assert learner.plan == "torch: the algorithm is not one of envfleet's"
        assert learner._compiled is None


def test_unknown_kernels_are_refused() -> None:
    learner = learner_of("a2c", ACTIONS["box"])
    with pytest.raises(ValueError, match='no kernels called "avx3"'):
        compiled_for(learner, "avx3")
