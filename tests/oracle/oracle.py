"""Native environments and Gymnasium's own, side by side: same seeds, same actions, what must be equal is equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import pytest
import record
from gymnasium.vector import AutoresetMode
from selection import left_to_test_all

from envfleet import NativeVectorEnv
from envfleet.testing import ReferenceFleet
from envfleet.testing.compare import assert_reset, assert_step
from envfleet.testing.reference import stack_items

Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class Case:
    """An environment with constructor arguments, and how long it is compared."""

    env_id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    seeds: int = 20
    steps: int = 1000
    ends: int = 10
    """Episodes that must end on the way, in all environments together."""

    def __str__(self) -> str:
        return ", ".join([self.env_id, *(f"{name}={value}" for name, value in self.kwargs.items())])


def in_modes_by_turns(cases: Sequence[Case]) -> Callable[[Test], Test]:
    """Gives a test each case in each mode.

    A mode says when an environment is reset, not what it does: for `make test` the first case is compared in all modes
    and the others in one each, by turns.
    """
    modes = list(AutoresetMode)

    def is_anothers_turn(given: dict[str, Any]) -> bool:
        number = cases.index(given["case"])
        return number > 0 and given["mode"] is not modes[number % len(modes)]

    def parametrized(test: Test) -> Test:
        test = pytest.mark.parametrize("case", cases, ids=str)(test)
        test = pytest.mark.parametrize("mode", modes, ids=lambda mode: mode.value)(test)
        return left_to_test_all(is_anothers_turn)(test)

    return parametrized


Pilot = Callable[[gym.Env[Any, Any], Any], Any]
"""From an environment and its observation to an action."""


def compare(
    case: Case, mode: AutoresetMode, first_seed: int = 0, pilot: Callable[[], Pilot] | None = None, **native: Any
) -> None:
    """Steps both with the same actions, random ones unless pilots steer, and asserts that every bit is the same.

    Whether it was goes into the record, from which the table in the docs is made.
    """
    found = record.Comparison(case.env_id, case.kwargs, mode.value, case.seeds, case.steps, pilot is not None)
    record.COMPARISONS.append(found)
    reference = ReferenceFleet([lambda: gym.make(gym.spec(case.env_id), **case.kwargs)] * case.seeds, mode)
    try:
        with NativeVectorEnv(case.env_id, case.seeds, autoreset_mode=mode, env_kwargs=case.kwargs, **native) as envs:
            _step_both(envs, reference, found, first_seed, pilot)
    finally:
        for env in reference.envs:
            env.close()
    assert found.episodes >= case.ends
    found.equal = True


def _step_both(
    envs: NativeVectorEnv,
    reference: ReferenceFleet,
    found: record.Comparison,
    first_seed: int,
    pilot: Callable[[], Pilot] | None,
) -> None:
    space, seeds = reference.observation_space, range(first_seed, first_seed + envs.num_envs)
    assert envs.single_observation_space == space
    assert envs.single_action_space == reference.action_space
    actions = Actions(reference.action_space, envs.num_envs, first_seed)
    pilots = [pilot() for _ in seeds] if pilot is not None else []
    actual, rows = envs.reset(seed=first_seed), reference.reset(seeds)
    assert_reset(actual, rows, space)
    found.count(actual)
    for _ in range(found.steps):
        steered = zip(pilots, reference.envs, rows.observations, strict=True) if pilots else []
        batch = [steer(env, observation) for steer, env, observation in steered] or actions.next()
        rows, stepped = reference.step(batch), envs.step(stack_items(reference.action_space, batch))
        assert_step(stepped, rows, space)
        found.count(stepped)
        finished = np.logical_or(rows.terminated, rows.truncated)
        found.episodes += int(finished.sum())
        if reference.mode is AutoresetMode.DISABLED and finished.any():
            actual, rows = envs.reset(options={"reset_mask": finished}), reference.reset(mask=finished)
            assert_reset(actual, rows, space)
            found.count(actual)


class Actions:
    """Random actions that keep to a direction for a while: pure noise never leaves the valley it starts in."""

    def __init__(self, space: gym.Space[Any], count: int, seed: int) -> None:
        self._space, self._rng = space, np.random.default_rng(seed)
        space.seed(seed)
        self._held = [space.sample() for _ in range(count)]
        self._stickiness = np.linspace(0, 0.97, count)

    def next(self) -> list[Any]:
        """One action per environment; the later ones change it less often."""
        changes = self._rng.random(len(self._held)) >= self._stickiness
        self._held = [self._space.sample() if new else old for new, old in zip(changes, self._held, strict=True)]
        return list(self._held)
