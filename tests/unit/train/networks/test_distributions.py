"""Our distributions against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_envs import ACTION_SPACES
from torch import Tensor, distributions

from envfleet.train.networks.distributions import ActionDistribution, distribution_for

BATCH = 5
MANY = 40_000
SPACES = pytest.mark.parametrize("name", list(ACTION_SPACES))


@pytest.fixture(autouse=True)
def _seeded() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def outputs_for(distribution: ActionDistribution, batch: int = BATCH) -> Tensor:
    return torch.randn(batch, distribution.outputs)


def reference(space: spaces.Space[Any], outputs: Tensor) -> list[Any]:
    """Torch's own distributions, one a component in the order of the flattened action."""
    if isinstance(space, spaces.Discrete):
        return [distributions.Categorical(logits=outputs)]
    if isinstance(space, spaces.MultiDiscrete):
        parts = torch.split(outputs, space.nvec.ravel().tolist(), -1)
        return [distributions.Categorical(logits=logits) for logits in parts]
    if isinstance(space, spaces.MultiBinary):
        return [distributions.Bernoulli(logits=column) for column in outputs.unbind(-1)]
    mean, log_std = outputs.chunk(2, -1)
    return [distributions.Normal(m, s.exp()) for m, s in zip(mean.unbind(-1), log_std.unbind(-1), strict=True)]


def components(space: spaces.Space[Any], actions: Tensor) -> tuple[Tensor, ...]:
    """Flattened and counted from 0, as torch counts."""
    start = torch.from_numpy(np.ravel(getattr(space, "start", 0)))
    return (actions.reshape(len(actions), -1) - start).unbind(-1)


@SPACES
def test_log_probabilities_and_entropies(name: str) -> None:
    space = ACTION_SPACES[name]
    distribution = distribution_for(space)
    outputs = outputs_for(distribution)
    actions = distribution.sample(outputs)
    theirs = reference(space, outputs)
    pairs = zip(theirs, components(space, actions), strict=True)
    log_prob = sum(each.log_prob(part.to(torch.float32)) for each, part in pairs)
    torch.testing.assert_close(distribution.log_prob(outputs, actions), log_prob)
    torch.testing.assert_close(distribution.entropy(outputs), sum(each.entropy() for each in theirs))
    assert log_prob.shape == (BATCH,)


@SPACES
def test_actions_look_like_the_space_s(name: str) -> None:
    space = ACTION_SPACES[name]
    distribution = distribution_for(space)
    outputs = outputs_for(distribution)
    for actions in (distribution.sample(outputs).numpy(), distribution.mode(outputs).numpy()):
        assert actions.shape == (BATCH, *space.shape)
        if isinstance(space, spaces.Box):
            assert actions.dtype == np.float32
        else:
            assert actions.dtype == space.dtype
            assert all(space.contains(action) for action in actions)


@SPACES
def test_samples_are_as_frequent_as_they_should_be(name: str) -> None:
    space = ACTION_SPACES[name]
    distribution = distribution_for(space)
    row = outputs_for(distribution, 1)
    parts = components(space, distribution.sample(row.expand(MANY, -1)))
    for each, drawn in zip(reference(space, row), parts, strict=True):
        if isinstance(each, distributions.Categorical):
            frequencies = torch.bincount(drawn, minlength=each.probs.shape[-1]) / MANY
            torch.testing.assert_close(frequencies, each.probs[0], atol=0.012, rtol=0)
        else:
            numbers = drawn.float()
            torch.testing.assert_close(numbers.mean(), each.mean[0], atol=0.03 * each.stddev.item(), rtol=0)
            torch.testing.assert_close(numbers.std(), each.stddev[0], atol=0, rtol=0.03)


@pytest.mark.parametrize("name", ["multi-discrete", "multi-binary", "box"])
def test_components_are_drawn_independently(name: str) -> None:
    space = ACTION_SPACES[name]
    distribution = distribution_for(space)
    drawn = torch.stack(components(space, distribution.sample(torch.zeros(MANY, distribution.outputs)))).float()
    correlations = torch.corrcoef(drawn) - torch.eye(len(drawn))
    assert correlations.abs().max() < 0.03


@SPACES
def test_the_mode_is_the_likeliest_action(name: str) -> None:
    distribution = distribution_for(ACTION_SPACES[name])
    outputs = outputs_for(distribution)
    best = distribution.log_prob(outputs, distribution.mode(outputs))
    for _ in range(50):
        assert (distribution.log_prob(outputs, distribution.sample(outputs)) <= best + 1e-5).all()


@SPACES
def test_log_probabilities_and_entropies_have_gradients(name: str) -> None:
    distribution = distribution_for(ACTION_SPACES[name])
    outputs = outputs_for(distribution).requires_grad_()
    actions = distribution.sample(outputs).detach()
    distribution.log_prob(outputs, actions).sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["discrete", "multi-discrete", "multi-binary"])
def test_certainty_has_no_entropy_and_no_infinities(name: str) -> None:
    distribution = distribution_for(ACTION_SPACES[name])
    outputs = outputs_for(distribution).sign() * 1e4 + torch.arange(distribution.outputs) * 100
    entropies = distribution.entropy(outputs)
    torch.testing.assert_close(entropies, torch.zeros(BATCH))
    torch.testing.assert_close(distribution.log_prob(outputs, distribution.mode(outputs)), torch.zeros(BATCH))


class TestSquashedNormal:
    space = spaces.Box(-2.0, 2.0, (2, 2), np.float32)

    def theirs(self, outputs: Tensor) -> Any:
        mean, log_std = outputs.chunk(2, -1)
        base = distributions.Normal(mean, log_std.exp())
        squashed = distributions.TransformedDistribution(base, [distributions.TanhTransform()])
        return distributions.Independent(squashed, 1)

    def test_log_probabilities(self) -> None:
        distribution = distribution_for(self.space, squashed=True)
        outputs = outputs_for(distribution) * 0.5
        actions, log_prob = distribution.sample_with_log_prob(outputs)  # type: ignore[attr-defined]
        assert actions.shape == (BATCH, 2, 2)
        expected = self.theirs(outputs).log_prob(actions.flatten(1))
        torch.testing.assert_close(log_prob, expected, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(distribution.log_prob(outputs, actions), expected, atol=1e-3, rtol=1e-3)

    def test_actions_stay_within_bounds_and_their_log_probabilities_finite(self) -> None:
        distribution = distribution_for(self.space, squashed=True)
        outputs = outputs_for(distribution) * 100
        actions, log_prob = distribution.sample_with_log_prob(outputs)  # type: ignore[attr-defined]
        assert actions.abs().max() <= 1
        assert torch.isfinite(log_prob).all()
        assert torch.isfinite(distribution.log_prob(outputs, actions)).all()

    def test_the_mode_is_the_squashed_mean(self) -> None:
        distribution = distribution_for(self.space, squashed=True)
        outputs = outputs_for(distribution)
        torch.testing.assert_close(distribution.mode(outputs).flatten(1), outputs[:, :4].tanh())

    def test_the_entropy_is_estimated_without_bias(self) -> None:
        distribution = distribution_for(self.space, squashed=True)
        row = torch.full((1, distribution.outputs), -1.0)
        estimate = distribution.entropy(row.expand(MANY, -1)).mean()
        expected = -self.theirs(row).log_prob(self.theirs(row).sample((MANY,))).mean()
        torch.testing.assert_close(estimate, expected, atol=0.05, rtol=0)

    @pytest.mark.parametrize("name", [name for name in ACTION_SPACES if not name.startswith("box")])
    def test_discrete_actions_are_refused(self, name: str) -> None:
        with pytest.raises(TypeError, match=r"(?s)SAC needs continuous actions .* use (DQN, )?A2C or PPO"):
            distribution_for(ACTION_SPACES[name], squashed=True)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 5, (2,), np.int64),
        spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]),
        spaces.Dict({"a": spaces.Box(0, 5, (2,), np.int64)}),
        spaces.Text(3),
    ],
    ids=lambda space: type(space).__name__,
)
def test_other_actions_are_refused_with_a_sentence(space: spaces.Space[Any]) -> None:
    with pytest.raises(TypeError, match=r"Actions must be Discrete, .* got .*; wrap the environment"):
        distribution_for(space)
