"""What native environments return, from how many threads, and in which order they may be asked."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import IDS, N, cart_poles, snapshots, trajectory
from native_gate import FAIL, QUICK, Gate

from envfleet import NativeVectorEnv, make_vec
from envfleet.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    EnvRaisedError,
    NoAsyncCallError,
    ResetNeeded,
)
from envfleet.testing import assert_same

# --- results ---------------------------------------------------------------------------------------------


def test_copied_observations_are_the_callers_and_live_ones_are_not() -> None:
    with cart_poles() as envs:
        kept, _ = envs.reset(seed=1)
        value = kept.copy()
        envs.step(np.zeros(N, np.int64))
        assert np.array_equal(kept, value)
    with cart_poles(copy=False) as envs:
        first, _ = envs.reset(seed=1)
        second = envs.step(np.zeros(N, np.int64))[0]
        assert np.shares_memory(first, second)
        assert np.array_equal(first, second)


def test_a_live_view_outlives_its_fleet() -> None:
    envs = cart_poles(copy=False)
    view, _ = envs.reset(seed=1)
    value = view.copy()
    envs.close()
    del envs
    gc.collect()
    assert np.array_equal(view, value)


def test_rewards_flags_and_infos_are_fresh_each_step() -> None:
    with make_vec("Taxi-v4", N, "native", {"copy": False}) as envs:
        envs.reset(seed=1)
        first = envs.step(np.zeros(N, np.int64))[1:]
        kept = copy.deepcopy(first)
        second = envs.step(np.ones(N, np.int64))[1:]
        for old, new in zip((*first[:3], *first[3].values()), (*second[:3], *second[3].values()), strict=True):
            assert not np.shares_memory(old, new)
        assert_same(first, kept)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", list(AutoresetMode)[:2], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("num_envs", "threads"), [(1, None), (7, 2), (33, 3), (130, 2)])
def test_threads_change_nothing(env_id: str, mode: AutoresetMode, num_envs: int, threads: int | None) -> None:
    with (
        NativeVectorEnv(env_id, num_envs, autoreset_mode=mode, threads=threads) as envs,
        NativeVectorEnv(env_id, num_envs, autoreset_mode=mode, threads=1) as alone,
    ):
        assert_same(trajectory(envs, 40), trajectory(alone, 40))


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_a_wrong_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads must be a positive integer or None"):
        cart_poles(threads=threads)


# --- the asynchronous half, and disorder -----------------------------------------------------------------


def test_async_and_wait_are_the_same_as_the_whole() -> None:
    with cart_poles() as envs, cart_poles() as whole:
        envs.reset_async(seed=2)
        assert_same(envs.reset_wait(), whole.reset(seed=2))
        for actions in np.random.default_rng(0).integers(0, 2, (60, N)):
            sent = actions.copy()
            envs.step_async(sent)
            sent[:] = 1 - sent
            assert_same(envs.step_wait(timeout=5), whole.step(actions))


def test_calls_in_disorder_are_refused() -> None:
    zeros = np.zeros(N, np.int64)
    with cart_poles() as envs:
        with pytest.raises(ResetNeeded, match="not been reset yet"):
            envs.step(zeros)
        with pytest.raises(NoAsyncCallError):
            envs.step_wait()
        envs.reset(seed=1)
        envs.step_async(zeros)
        for call in (lambda: envs.step(zeros), envs.reset, lambda: envs.get_attr("state"), lambda: envs.get_state(0)):
            with pytest.raises(AlreadyPendingCallError):
                call()
        envs.step_wait()
        envs.step(zeros)


def test_a_finished_environment_is_not_stepped_without_autoreset() -> None:
    zeros = np.zeros(2, np.int64)
    with cart_poles(2, autoreset_mode="Disabled", env_kwargs={"max_episode_steps": 3}) as envs:
        envs.reset(seed=1)
        for _ in range(3):
            truncated = envs.step(zeros)[3]
        assert truncated.all()
        before = snapshots(envs)
        with pytest.raises(ResetNeeded, match=r"environments \[0, 1\] have ended"):
            envs.step(zeros)
        assert snapshots(envs) == before
        envs.reset(options={"reset_mask": np.array([True, False])})
        with pytest.raises(ResetNeeded, match=r"environments \[1\] have ended"):
            envs.step(zeros)
        envs.reset(options={"reset_mask": np.array([False, True])})
        envs.step(zeros)


def test_a_closed_fleet_refuses_everything_and_closes_again() -> None:
    envs = cart_poles()
    envs.reset(seed=1)
    with envs:
        pass
    envs.close(timeout=1, terminate=True)
    zeros = np.zeros(N, np.int64)
    for call in (
        envs.reset,
        lambda: envs.step(zeros),
        lambda: envs.step_async(zeros),
        lambda: envs.get_attr("state"),
        lambda: envs.set_attr("gravity", 1.0),
        lambda: envs.get_state(0),
        envs.render,
    ):
        with pytest.raises(ClosedEnvironmentError):
            call()


def test_an_exception_in_an_environment_names_it_and_a_reset_heals(gate: Gate) -> None:
    envs, quick = gate.envs, np.full(4, QUICK)
    with pytest.raises(EnvRaisedError, match=r"Environment 3 .* in step\(\)") as caught:
        envs.step(np.array([QUICK, QUICK, QUICK, FAIL]))
    assert caught.value.env_indices == (3,)
    with pytest.raises(ResetNeeded, match="Environment 3 failed"):
        envs.step(quick)
    envs.reset(seed=1)
    envs.step(quick)


def test_fleets_step_in_threads_side_by_side() -> None:
    expected = [trajectory(cart_poles(64, threads=2), 200, seed) for seed in range(3)]
    results: dict[int, list[Any]] = {}

    def run(seed: int) -> None:
        with cart_poles(64, threads=2) as envs:
            results[seed] = trajectory(envs, 200, seed)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for seed in range(3):
        assert_same(results[seed], expected[seed])
