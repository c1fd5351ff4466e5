"""Tickets of native environments: the rules that hold for every backend, and Gymnasium's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import N, cart_poles, snapshots

from envfleet import NativeVectorEnv, make_vec
from envfleet.testing import assert_same
from envfleet.testing.envs import EnvFn
from envfleet.testing.tickets import MODES, Tickets

IDS = (
    "CartPole-v1",
    "Taxi-v4",
    "FrozenLake-v1",
    "Blackjack-v1",
    "MountainCarContinuous-v0",
    "LunarLander-v3",
    "Hopper-v5",
)


LENGTHS = (3, 4, 6, 3, 5)


class TestNativeTickets(Tickets):
    steps_attribute = "_elapsed_steps"
    threads: int | None = None

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> NativeVectorEnv:
        lengths = [{"max_episode_steps": length} for length in LENGTHS[: len(env_fns)]]
        return cart_poles(len(env_fns), varied=lengths, threads=self.threads, **kwargs)

    def ending_fns(self) -> list[EnvFn]:
        return [partial(gymnasium.make, "CartPole-v1", max_episode_steps=length) for length in LENGTHS]


class TestNativeTicketsOnThreads(TestNativeTickets):
    threads = 3


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
        Tickets()._play(envs, fns, mode, 70, order)


def received(envs: NativeVectorEnv) -> tuple[Any, Any]:
    """Observations and rewards of all, in the order of the environments."""
    observations, rewards = [None] * N, [0.0] * N
    while any(row is None for row in observations):
        batch, batch_rewards, *_, infos = envs.recv()
        for place, env in enumerate(infos["env_id"].tolist()):
            observations[env], rewards[env] = batch[place], batch_rewards[place]
    return np.stack(observations), rewards  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize(
    "options", [{"low": -0.2, "high": 0.3}, [{"low": 0.01 * i} if i < 3 else None for i in range(N)]]
)
def test_an_async_reset_takes_options_once(options: Any, threads: int | None) -> None:
    with cart_poles(batch_size=2, threads=threads) as ours, make_vec("CartPole-v1", N, "sync") as theirs:
        for given in (options, None):
            ours.async_reset(seed=5, options=given)
            observations, rewards = received(ours)
            assert_same(observations, theirs.reset(seed=5, options=given)[0])
            assert not any(rewards)


def test_a_wrong_option_of_an_async_reset_changes_nothing() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        before = snapshots(envs)
        with pytest.raises(ValueError, match="unknown reset option 'lowest'"):
            envs.async_reset(seed=9, options={"lowest": 1.0})
        assert snapshots(envs) == before
        envs.send(np.zeros(N, np.int64))
        envs.recv()
