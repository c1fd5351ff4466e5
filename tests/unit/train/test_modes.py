"""Training and evaluation mode: whoever looks at a policy in the middle of its training changes nothing of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import EVERY, changed, outcome
from torch import Tensor, nn

from envfleet.train import Networks, Progress, evaluate, load_agent, resume, train
from envfleet.train.networks.modes import TrainingMode, depends_on_mode, evaluation_mode

Part = Callable[[int], nn.Module]
PARTS: dict[str, Part] = {"batch normalisation": nn.BatchNorm1d, "dropout": lambda _: nn.Dropout(0.5)}
OBSERVED, DISCRETE, COMPONENTS = 3, 3, 2
"""Numbers in an observation, in a choice, and in a continuous action of the small runs."""


class StateAndAction(nn.Module):
    """Two estimates of a state and an action, for SAC."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.layers = body(part, OBSERVED + COMPONENTS, 2)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = self.layers(torch.cat([observations, actions], -1))
        return values


def body(part: Part, inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), part(8), nn.ReLU(), nn.Linear(8, outputs))


def networks(algo: str, part: Part) -> Networks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        if algo in ("sac", "td3"):
            outputs = 2 * COMPONENTS if algo == "sac" else COMPONENTS
            return Networks(body(part, OBSERVED, outputs), StateAndAction(part))
        if algo == "dqn":
            return Networks(body(part, OBSERVED, DISCRETE))
        return Networks(body(part, OBSERVED, DISCRETE), body(part, OBSERVED, 1))


def now_and_then() -> Callable[[Progress], None]:
    """A callback that looks after the first update and after every tenth from then on."""
    updates = itertools.count()
    return lambda progress: None if next(updates) % 10 else looks(progress)


def looks(progress: Progress) -> None:
    """All that a callback may do with the agent of its training."""
    first = evaluate(progress.agent, episodes=2, num_envs=2, backend="sync")
    assert evaluate(progress.agent, episodes=2, num_envs=2, backend="sync") == first
    evaluate(progress.agent, episodes=2, num_envs=2, backend="sync", deterministic=False)
    progress.agent.act(np.zeros((4, OBSERVED), np.float32), deterministic=False)


@EVERY
@pytest.mark.parametrize("part", PARTS)
def test_a_callback_that_evaluates_changes_nothing_of_the_training(algo: str, part: str, tmp_path: Path) -> None:
    config = changed(algo)
    for name, callback in (("alone", None), ("watched", now_and_then())):
        train(config, run_dir=tmp_path / name, networks=networks(algo, PARTS[part]), callback=callback, progress=False)
    np.testing.assert_equal(outcome(tmp_path / "watched"), outcome(tmp_path / "alone"))


@EVERY
def test_the_same_with_our_own_networks(algo: str, tmp_path: Path) -> None:
    config = changed(algo, normalize_observations=True)
    for name, callback in (("alone", None), ("watched", now_and_then())):
        train(config, run_dir=tmp_path / name, callback=callback, progress=False)
    np.testing.assert_equal(outcome(tmp_path / "watched"), outcome(tmp_path / "alone"))


@EVERY
@pytest.mark.parametrize("part", PARTS)
def test_a_run_with_such_networks_goes_on_exactly(algo: str, part: str, tmp_path: Path) -> None:
    config = changed(algo)
    train(config, run_dir=tmp_path / "whole", networks=networks(algo, PARTS[part]), progress=False)
    train(
        config,
        run_dir=tmp_path / "run",
        networks=networks(algo, PARTS[part]),
        callback=lambda progress: progress.step < config.total_steps // 2,
        progress=False,
    )
    resume(tmp_path / "run", networks=networks(algo, PARTS[part]), progress=False)
    np.testing.assert_equal(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))


class Noting(nn.Module):
    """Gives what its layer gives, and notes for every pass whether it was in training mode and recorded gradients."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self._layer = layer
        self.passes: list[tuple[bool, bool]] = []

    def forward(self, *given: Any) -> Any:
        self.passes.append((self.training, torch.is_grad_enabled()))
        return self._layer(*given)


@EVERY
def test_training_mode_is_for_losses_alone(algo: str, tmp_path: Path) -> None:
    plain = networks(algo, lambda _: nn.Tanh())
    noting = Networks(Noting(plain.actor), Noting(plain.critic) if plain.critic else None)
    train(changed(algo), run_dir=tmp_path / "run", networks=noting, progress=False)
    for network in (noting.actor, noting.critic) if noting.critic else (noting.actor,):
        assert isinstance(network, Noting)
        # SAC and TD3 ask their critics for the actor's gradient too, which does not move the critic.
        expected = {(True, True), (False, False)} | ({(False, True)} if algo in ("sac", "td3") else set())
        assert set(network.passes) <= expected
        assert (True, True) in network.passes
        assert not network.training


def test_our_own_networks_are_left_alone() -> None:
    own = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
    assert not depends_on_mode(own)
    with TrainingMode(own):
        assert not own.training


def test_evaluation_mode_puts_every_part_back() -> None:
    frozen = nn.BatchNorm1d(2).eval()
    network = nn.Sequential(frozen, nn.Dropout())
    with evaluation_mode(network):
        assert not any(part.training for part in network.modules())
    assert [part.training for part in network.modules()] == [True, False, True]


def test_an_agent_draws_from_a_generator_of_its_own(tmp_path: Path) -> None:
    train(changed("a2c"), run_dir=tmp_path / "run", progress=False)
    agent, seen = load_agent(tmp_path / "run"), np.zeros((50, OBSERVED), np.float32)
    before = torch.get_rng_state()
    with agent.seeded(1):
        first = agent.act(seen, deterministic=False)
    with agent.seeded(1):
        np.testing.assert_array_equal(agent.act(seen, deterministic=False), first)
        assert not np.array_equal(agent.act(seen, deterministic=False), first)
    assert torch.equal(torch.get_rng_state(), before)
