"""Generalised advantages against their definition, with episodes ending anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from envfleet.train.algorithms.returns import gae

NUMBERS = st.floats(-100, 100, width=32)
SHARES = st.floats(0, 1)
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Case:
    rewards: Floats
    values: Floats
    next_values: Floats
    terminated: Bools
    done: Bools
    gamma: float
    lam: float

    def gae(self) -> Floats:
        arrays = (self.rewards, self.values, self.next_values, self.terminated, self.done)
        return gae(*arrays, self.gamma, self.lam)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 3)))
    floats = stn.arrays(np.float64, shape, elements=NUMBERS)
    flags = stn.arrays(np.bool_, shape)
    terminated = draw(flags)
    done = terminated | draw(flags)
    return Case(draw(floats), draw(floats), draw(floats), terminated, done, draw(SHARES), draw(SHARES))


def by_definition(case: Case) -> Floats:
    """The sum of (gamma · lam)^k · delta over the steps k ahead, up to the episode's or the rollout's end."""
    steps, num_envs = case.rewards.shape
    advantages = np.zeros((steps, num_envs))
    for env in range(num_envs):
        for start in range(steps):
            for step in range(start, steps):
                following = 0.0 if case.terminated[step, env] else case.next_values[step, env]
                delta = case.rewards[step, env] + case.gamma * following - case.values[step, env]
                advantages[start, env] += (case.gamma * case.lam) ** (step - start) * delta
                if case.done[step, env]:
                    break
    return advantages


@given(cases())
def test_it_is_the_definition(case: Case) -> None:
    np.testing.assert_allclose(case.gae(), by_definition(case), rtol=1e-9, atol=1e-9)


@given(cases(), st.integers(0, 2), NUMBERS)
def test_environments_do_not_mix(case: Case, env: int, number: float) -> None:
    env %= case.rewards.shape[1]
    before = case.gae()
    case.rewards[:, env] = number
    case.values[:, env] = -number
    np.testing.assert_array_equal(np.delete(case.gae(), env, 1), np.delete(before, env, 1))


@given(cases())
def test_arguments_are_left_alone(case: Case) -> None:
    arrays = (case.rewards, case.values, case.next_values, case.terminated, case.done)
    before = [array.copy() for array in arrays]
    case.gae()
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
