"""Tickets of native environments: the rules that hold for every backend, and Gymnasium's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import cart_poles

from envfleet import NativeVectorEnv
from envfleet.testing.envs import EnvFn
from envfleet.testing.first_ready import MODES, FirstReadyContract
from envfleet.testing.refused_tickets import RefusedTickets


class TestNativeTickets(RefusedTickets):
    steps_attribute = "_elapsed_steps"

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> NativeVectorEnv:
        return cart_poles(len(env_fns), **kwargs)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("batch_size", "order"), [(1, []), (3, [2, 0, 1] * 20), (None, [1, 2, 0] * 20)])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Taxi-v4", "MountainCarContinuous-v0"])
def test_trajectories_are_those_of_gymnasium(
    env_id: str, batch_size: int | None, order: list[int], mode: AutoresetMode
) -> None:
    fns = [partial(gymnasium.make, env_id, max_episode_steps=30) for _ in range(5)]
    kwargs = {"max_episode_steps": 30}
    with NativeVectorEnv(env_id, 5, autoreset_mode=mode, batch_size=batch_size, env_kwargs=kwargs) as envs:
        FirstReadyContract()._play(envs, fns, mode, 70, order)
