"""Advantages in closed form; the property test compares them with the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envfleet.train.algorithms.returns import discounted_so_far, explained_variance, gae

GAMMA = 0.9
REWARDS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
VALUES = np.array([[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]])
NEXT_VALUES = np.array([[2.5, 3.5], [4.5, 5.5], [7.0, 8.0]])
NOWHERE = np.zeros((3, 2), np.bool_)


def at(step: int, env: int) -> np.ndarray:
    mask = NOWHERE.copy()
    mask[step, env] = True
    return mask


def test_lambda_0_gives_temporal_differences() -> None:
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, NOWHERE, NOWHERE, GAMMA, 0.0)
    np.testing.assert_allclose(advantages, REWARDS + GAMMA * NEXT_VALUES - VALUES)
    assert advantages.dtype == np.float64


def test_lambda_1_gives_discounted_returns_minus_values() -> None:
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, NOWHERE, NOWHERE, GAMMA, 1.0)
    returns = np.empty((3, 2))
    returns[2] = REWARDS[2] + GAMMA * NEXT_VALUES[2]
    returns[1] = REWARDS[1] + GAMMA * returns[2]
    returns[0] = REWARDS[0] + GAMMA * returns[1]
    np.testing.assert_allclose(advantages, returns - VALUES)


def test_lambda_1_with_the_whole_episode_needs_no_values() -> None:
    end = at(2, 0) | at(2, 1)
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, end, end, GAMMA, 1.0)
    np.testing.assert_allclose((advantages + VALUES)[0], REWARDS[0] + GAMMA * REWARDS[1] + GAMMA**2 * REWARDS[2])


def test_the_last_step_counts_the_value_of_where_it_led() -> None:
    for lam in (0.0, 0.5, 1.0):
        last = gae(REWARDS, VALUES, NEXT_VALUES, NOWHERE, NOWHERE, GAMMA, lam)[-1]
        np.testing.assert_allclose(last, REWARDS[-1] + GAMMA * NEXT_VALUES[-1] - VALUES[-1])


def test_nothing_follows_a_termination() -> None:
    ended = at(1, 0)
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, ended, ended, GAMMA, 0.7)
    assert advantages[1, 0] == REWARDS[1, 0] - VALUES[1, 0]


def test_a_truncation_is_valued_but_the_next_episode_is_not() -> None:
    advantages = gae(REWARDS, VALUES, NEXT_VALUES, NOWHERE, at(1, 0), GAMMA, 0.7)
    assert advantages[1, 0] == pytest.approx(REWARDS[1, 0] + GAMMA * NEXT_VALUES[1, 0] - VALUES[1, 0])
    elsewhere = REWARDS.copy()
    elsewhere[2, 0] = 1e9
    again = gae(elsewhere, VALUES, NEXT_VALUES, NOWHERE, at(1, 0), GAMMA, 0.7)
    np.testing.assert_array_equal(again[:2], advantages[:2])


def test_an_end_in_one_environment_is_none_in_another() -> None:
    whole = gae(REWARDS, VALUES, NEXT_VALUES, NOWHERE, NOWHERE, GAMMA, 0.7)
    ended = gae(REWARDS, VALUES, NEXT_VALUES, at(1, 0), at(1, 0), GAMMA, 0.7)
    np.testing.assert_array_equal(ended[:, 1], whole[:, 1])


def test_the_value_after_a_termination_may_be_anything() -> None:
    strange = NEXT_VALUES.copy()
    strange[1, 0] = math.nan
    advantages = gae(REWARDS, VALUES, strange, at(1, 0), at(1, 0), GAMMA, 0.7)
    assert np.isfinite(advantages).all()


@pytest.mark.parametrize(
    ("predicted", "share"), [([1.0, 2.0, 3.0], 1.0), ([2.0, 2.0, 2.0], 0.0), ([3.0, 2.0, 1.0], -3.0)]
)
def test_explained_variance(predicted: list[float], share: float) -> None:
    assert explained_variance(np.array(predicted), np.array([1.0, 2.0, 3.0])) == pytest.approx(share)


def test_explained_variance_of_a_constant_is_not_a_number() -> None:
    assert math.isnan(explained_variance(np.array([1.0, 2.0]), np.array([5.0, 5.0])))


def test_compiled_sums_have_the_bits_of_numpys() -> None:
    """Step by step in NumPy, rounded twice in each: that is what earlier versions did."""
    generator = np.random.default_rng(0)
    rewards, values, following = generator.normal(size=(3, 50, 7))
    done = generator.random((50, 7)) < 0.1
    advantages, after = np.empty((50, 7)), np.zeros(7)
    deltas = rewards + 0.99 * np.where(done, 0.0, following) - values
    for step in range(49, -1, -1):
        after = deltas[step] + 0.99 * 0.95 * ~done[step] * after
        advantages[step] = after
    np.testing.assert_array_equal(gae(rewards, values, following, done, done, 0.99, 0.95), advantages)
    so_far, carried = np.empty((50, 7)), generator.normal(size=7)
    found, end = discounted_so_far(rewards, ~done, done, 0.99, carried)
    for step in range(50):
        so_far[step] = np.where(~done[step], rewards[step], 0.0) + np.where(~done[step], 0.99, 1.0) * carried
        carried = so_far[step] * ~done[step]
    np.testing.assert_array_equal(found, so_far)
    np.testing.assert_array_equal(end, carried)
