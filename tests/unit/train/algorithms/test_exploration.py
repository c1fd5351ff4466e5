"""Noise that persists: standard normal at every step, alike from one to the next, of every environment its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from envfleet.train.algorithms.exploration import PersistentNoise, uniform

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def path(correlation: float, steps: int = 20_000) -> torch.Tensor:
    noise = PersistentNoise(2, 3, correlation, CPU)
    return torch.stack([noise.draw() for _ in range(steps)])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_every_step_is_standard_normal_and_like_the_one_before(correlation: float) -> None:
    steps = path(correlation)
    assert steps.shape == (20_000, 2, 3)
    torch.testing.assert_close(steps.mean(0), torch.zeros(2, 3), atol=0.12, rtol=0)
    torch.testing.assert_close(steps.std(0), torch.ones(2, 3), atol=0.06, rtol=0)
    for lag in (1, 2, 5):
        alike = (steps[lag:] * steps[:-lag]).mean(0)
        torch.testing.assert_close(alike, torch.full((2, 3), correlation**lag), atol=0.1, rtol=0)


def test_environments_and_components_have_their_own() -> None:
    correlations = np.corrcoef(path(0.9).reshape(-1, 6).T)
    assert np.abs(correlations - np.eye(6)).max() < 0.12


def test_only_those_that_act_get_new_noise() -> None:
    noise = PersistentNoise(4, 1, 0.9, CPU)
    before = noise.state()
    drawn = noise.draw(np.array([3, 1]))
    after = noise.state()
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]], atol=0, rtol=0)
    torch.testing.assert_close(after[[3, 1]], drawn, atol=0, rtol=0)
    assert (after[[3, 1]] != before[[3, 1]]).all()


def test_drawing_does_not_change_what_was_given_before() -> None:
    noise = PersistentNoise(2, 1, 0.9, CPU)
    state, drawn = noise.state(), noise.draw()
    copies = state.clone(), drawn.clone()
    noise.draw()
    assert torch.equal(state, copies[0])
    assert torch.equal(drawn, copies[1])


def test_a_loaded_state_goes_on_alike() -> None:
    one, other = (PersistentNoise(2, 3, 0.9, CPU) for _ in range(2))
    one.draw()
    other.load_state(one.state())
    random = torch.get_rng_state()
    expected = [one.draw() for _ in range(3)]
    torch.set_rng_state(random)
    assert all(torch.equal(other.draw(), step) for step in expected)


def test_uniform_noise_fills_the_range_evenly() -> None:
    values = uniform(torch.randn(100_000))
    shares = torch.histc(values, bins=10, min=-1, max=1) / len(values)
    torch.testing.assert_close(shares, torch.full((10,), 0.1), atol=0.005, rtol=0)
