"""Native environments and Gymnasium's own, side by side: same seeds, same actions, what must be equal is equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet import NativeVectorEnv
from envfleet.testing import ReferenceFleet
from envfleet.testing.compare import assert_reset, assert_step
from envfleet.testing.reference import stack_items


@dataclass(frozen=True)
class Case:
    """An environment with constructor arguments, and how long it is compared."""

    env_id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    seeds: int = 20
    steps: int = 1000

    def __str__(self) -> str:
        return ", ".join([self.env_id, *(f"{name}={value}" for name, value in self.kwargs.items())])


Pilot = Callable[[gym.Env[Any, Any], Any], Any]
"""From an environment and its observation to an action."""


def compare(
    case: Case, mode: AutoresetMode, first_seed: int = 0, pilot: Callable[[], Pilot] | None = None, **native: Any
) -> int:
    """Steps both with the same actions, random ones unless pilots steer, and asserts that every number is the same.

    Returns:
        How many episodes ended on the way.
    """
    reference = ReferenceFleet([lambda: gym.make(gym.spec(case.env_id), **case.kwargs)] * case.seeds, mode)
    space, seeds = reference.observation_space, range(first_seed, first_seed + case.seeds)
    actions = Actions(reference.action_space, case.seeds, first_seed)
    pilots = [pilot() for _ in range(case.seeds)] if pilot is not None else []
    ended = 0
    with NativeVectorEnv(case.env_id, case.seeds, autoreset_mode=mode, env_kwargs=case.kwargs, **native) as envs:
        assert envs.single_observation_space == space
        assert envs.single_action_space == reference.action_space
        rows = reference.reset(seeds)
        assert_reset(envs.reset(seed=first_seed), rows, space)
        for _ in range(case.steps):
            steered = zip(pilots, reference.envs, rows.observations, strict=True) if pilots else []
            batch = [steer(env, observation) for steer, env, observation in steered] or actions.next()
            rows = reference.step(batch)
            assert_step(envs.step(stack_items(reference.action_space, batch)), rows, space)
            finished = np.logical_or(rows.terminated, rows.truncated)
            ended += int(finished.sum())
            if mode is AutoresetMode.DISABLED and finished.any():
                actual, rows = envs.reset(options={"reset_mask": finished}), reference.reset(mask=finished)
                assert_reset(actual, rows, space)
    for env in reference.envs:
        env.close()
    return ended


class Actions:
    """Random actions that keep to a direction for a while: pure noise never leaves the valley it starts in."""

    def __init__(self, space: gym.Space[Any], count: int, seed: int) -> None:
        self._space, self._rng = space, np.random.default_rng(seed)
        space.seed(seed)
        self._held = [space.sample() for _ in range(count)]
        self._stickiness = np.linspace(0, 0.97, count)

    def next(self) -> list[Any]:
        """One action an environment; the later ones change it less often."""
        changes = self._rng.random(len(self._held)) >= self._stickiness
        self._held = [self._space.sample() if new else old for new, old in zip(changes, self._held, strict=True)]
        return list(self._held)
