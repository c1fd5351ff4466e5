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

IDS = (
    "CartPole-v1",
    "Taxi-v4",
    "FrozenLake-v1",
    "Blackjack-v1",
    "MountainCarContinuous-v0",
    "LunarLander-v3",
    "Hopper-v5",
)


class TestNativeTickets(RefusedTickets):
    steps_attribute = "_elapsed_steps"

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> NativeVectorEnv:
        return cart_poles(len(env_fns), **kwargs)


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("batch_size", "order"), [(1, []), (3, [2, 0, 1] * 20), (None, [1, 2, 0] * 20)])
@pytest.mark.usefixtures("box2d")
@pytest.mark.parametrize("env_id", IDS)
def test_trajectories_are_those_of_gymnasium(
    env_id: str, batch_size: int | None, order: list[int], mode: AutoresetMode, threads: int | None
) -> None:
    fns = [partial(gymnasium.make, env_id, max_episode_steps=30) for _ in range(5)]
    arguments: dict[str, Any] = {"autoreset_mode": mode, "batch_size": batch_size, "threads": threads}
    with NativeVectorEnv(env_id, 5, **arguments, env_kwargs={"max_episode_steps": 30}) as envs:
        FirstReadyContract()._play(envs, fns, mode, 70, order)
