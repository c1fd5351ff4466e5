"""How environments are shared out, and what travels between processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from process_fleets import NUM_ENVS, process_fleet

from envfleet.errors import WorkerError
from envfleet.testing.envs import CounterConfig, CounterEnv, EnvFn, Frame, PlaybackEnv, endless_fns
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


class CarrierEnv(CounterEnv):
    """Returns what is asked for, and what no pickle can carry."""

    def __init__(self) -> None:
        super().__init__(CounterConfig(ending="never"))

    def echo(self, value: Any) -> Any:
        return value

    def lock(self) -> Any:
        return threading.Lock()

    def function(self) -> Any:
        return lambda x: x + self.index


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (2, 2), (3, 3), (5, 5), (9, 5)])
def test_environments_are_shared_out_evenly_and_in_order(asked: int, got: int) -> None:
    with process_fleet(num_workers=asked) as envs:
        pids = envs.call("process_id")
        assert len(envs.processes) == got
        assert {process.pid for process in envs.processes} == set(pids)
        assert os.getpid() not in pids
        shares = [pids.count(pid) for pid in dict.fromkeys(pids)]
        assert max(shares) - min(shares) <= 1
        assert sum(left != right for left, right in pairwise(pids)) == got - 1


def test_a_working_caller_takes_a_share() -> None:
    with process_fleet(num_workers=2, caller_works=True) as envs:
        pids = envs.call("process_id")
        assert len(envs.processes) == 1
        assert 0 < pids.count(os.getpid()) < NUM_ENVS
        assert "caller" in envs.plan


def test_the_default_is_one_worker_a_usable_core() -> None:
    envs = AsyncVectorEnv(endless_fns(NUM_ENVS))
    assert 1 <= len(envs.processes) <= min(NUM_ENVS, len(os.sched_getaffinity(0)))
    envs.close()


def test_max_concurrency_limits_the_workers() -> None:
    envs = AsyncVectorEnv(endless_fns(NUM_ENVS), context="fork", max_concurrency=1)
    assert len(envs.processes) == 1
    envs.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_concurrency": 0},
        {"max_concurrency": 1.5},
        {"num_workers": 0},
        {"num_workers": -1},
        {"context": "teleport"},
        {"worker": lambda *arguments: None},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_concurrency|num_workers|teleport|Wrapper"):
        AsyncVectorEnv(endless_fns(NUM_ENVS), **wrong)


@pytest.mark.parametrize("daemon", [True, False])
def test_workers_are_daemons_as_asked(daemon: bool, start_method: str) -> None:
    with process_fleet(context=start_method, daemon=daemon) as envs:
        assert all(process.daemon is daemon for process in envs.processes)
        envs.reset()


def test_constructor_arguments_stand_in_gymnasiums_order() -> None:
    fns: Sequence[EnvFn] = endless_fns(2)
    envs = AsyncVectorEnv(fns, True, True, "fork", True, None, "same", "Disabled", 1)
    assert envs.metadata["autoreset_mode"].value == "Disabled"
    assert len(envs.processes) == 1
    envs.close()


def test_a_result_that_cannot_be_sent_is_an_error_and_no_more() -> None:
    with process_fleet([CarrierEnv] * NUM_ENVS) as envs:
        envs.reset()
        with pytest.raises(WorkerError, match="lock"):
            envs.call("lock")
        assert envs.get_attr("steps") == (0,) * NUM_ENVS
        envs.step([0] * NUM_ENVS)
        assert [function(1) for function in envs.call("function")] == [1] * NUM_ENVS


def test_an_info_that_cannot_be_sent_is_an_error_and_no_more() -> None:
    def with_lock() -> PlaybackEnv:
        return PlaybackEnv(spaces.Discrete(1), [Frame(0), Frame(0, info={"lock": threading.Lock()}), Frame(0)])

    with process_fleet([with_lock] * 3) as envs:
        envs.reset()
        with pytest.raises(WorkerError, match="lock") as caught:
            envs.step([0] * 3)
        assert caught.value.env_indices == (0,)
        envs.reset()
        envs.step([0] * 3)


def test_an_argument_that_cannot_be_sent_changes_nothing() -> None:
    with process_fleet([CarrierEnv] * NUM_ENVS) as envs:
        envs.reset()
        with pytest.raises(TypeError):
            envs.call("echo", threading.Lock())
        with pytest.raises(TypeError):
            envs.reset(options={"lock": threading.Lock()})
        assert envs.call("echo", 1) == (1,) * NUM_ENVS
        assert envs.step([0] * NUM_ENVS)[0][:, 1:3].tolist() == [[1, 1]] * NUM_ENVS


def test_large_values_travel_both_ways() -> None:
    large = np.arange(1_000_000)
    with process_fleet([CarrierEnv] * NUM_ENVS) as envs:
        for result in envs.call("echo", large):
            np.testing.assert_array_equal(result, large)
        envs.set_attr("tag", large)
        for tag in envs.get_attr("tag"):
            np.testing.assert_array_equal(tag, large)


def test_large_infos_travel() -> None:
    large: dict[str, Any] = {"pixels": np.arange(300_000), "text": "x" * 300_000}
    fns = [lambda: PlaybackEnv(spaces.Discrete(1), [Frame(0, info=large)])] * 3
    with process_fleet(fns) as envs:
        envs.reset()
        for _ in range(3):
            infos = envs.step([0] * 3)[4]
            np.testing.assert_array_equal(infos["pixels"], np.stack([large["pixels"]] * 3))
            assert list(infos["text"]) == [large["text"]] * 3


def test_large_observations_travel() -> None:
    space = spaces.Box(0, 255, (512, 512, 3), np.uint8)
    frames = [Frame(np.full(space.shape, t, np.uint8)) for t in range(4)]
    with process_fleet([lambda: PlaybackEnv(space, frames)] * 3) as envs:
        assert (envs.reset()[0] == 0).all()
        for step in range(1, 4):
            assert (envs.step([0] * 3)[0] == step).all()
