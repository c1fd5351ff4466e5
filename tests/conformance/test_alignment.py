"""Arrays that are handed out begin on a cache line, so that libraries such as JAX need not copy them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet import AsyncVectorEnv, FleetVectorEnv, SyncVectorEnv, _core, make_vec
from envfleet.testing.envs import Frame, PlaybackEnv

LINE = 64
SPACE = spaces.Dict(
    {
        "few": spaces.Box(-1, 1, (3,), np.float32),
        "odd": spaces.Box(0, 255, (7, 11), np.uint8),
        "large": spaces.Box(-1, 1, (1000,), np.float64),
        "one": spaces.Discrete(5),
    }
)
N = 9


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """All arrays of a result but those in infos."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from arrays_in(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays_in(part)


def assert_aligned(*results: Any) -> None:
    for result in results:
        *columns, infos = result
        assert isinstance(infos, dict)
        for array in arrays_in(tuple(columns)):
            if array.nbytes >= LINE:
                assert array.ctypes.data % LINE == 0, f"{array.dtype}{array.shape} begins at {array.ctypes.data % LINE}"
                assert array.flags.c_contiguous
                assert array.flags.writeable


def played(envs: FleetVectorEnv, steps: int = 20) -> list[Any]:
    """What a fleet returns, all of it kept: memory that was used before is not given twice."""
    envs.action_space.seed(1)
    results: list[Any] = [envs.reset(seed=1)]
    for _ in range(steps):
        results.append(envs.step(envs.action_space.sample()))
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and (results[-1][2] | results[-1][3]).any():
            results.append(envs.reset())
    envs.async_reset(seed=2)
    for _ in range(steps):
        results.append(envs.recv())
        ids, ended = results[-1][4]["env_id"], results[-1][2] | results[-1][3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            envs.async_reset(env_ids=ids[ended])
            ids = ids[~ended]
        if len(ids):
            envs.send(envs.action_space.sample()[ids], ids)
    return results


def playback_fns(space: Any) -> list[Any]:
    space.seed(3)
    return [partial(PlaybackEnv, space, [Frame(space.sample()) for _ in range(60)]) for _ in range(N)]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("space", [SPACE, SPACE["odd"], SPACE["large"]], ids=["Dict", "odd", "large"])
@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)], ids=["sync", "process"])
def test_results_of_python_environments_begin_on_a_cache_line(make: Any, space: Any, mode: AutoresetMode) -> None:
    for options in ({}, {"on_failure": "restart"}):
        with make(playback_fns(space), autoreset_mode=mode, **options) as envs:
            assert_aligned(*played(envs))


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "Blackjack-v1", "Pendulum-v1"])
def test_results_of_native_environments_begin_on_a_cache_line(env_id: str, mode: AutoresetMode) -> None:
    with make_vec(env_id, 67, "native", autoreset_mode=mode, first_ready=33) as envs:
        assert_aligned(*played(envs, 40))


def test_such_arrays_are_like_any_other() -> None:
    """They own their memory, can be resized, and their memory is used again when they are gone."""
    column = np.arange(1000.0).reshape(100, 10)
    array = _core.fresh_copy(column)
    assert array.flags.owndata
    assert array.base is None
    np.testing.assert_array_equal(array, column)
    array.resize((300, 10), refcheck=False)
    np.testing.assert_array_equal(array[:100], column)
    assert not array[100:].any()
    array.resize((5, 10), refcheck=False)
    np.testing.assert_array_equal(array, column[:5])
    some = _core.fresh_rows(column, np.array([7, 7, 99]))
    np.testing.assert_array_equal(some, column[[7, 7, 99]])
    assert _core.fresh_rows(column, np.array([], np.intp)).shape == (0, 10)
    with pytest.raises(IndexError):
        _core.fresh_rows(column, np.array([100]))
    large, places = np.zeros(2**20), set()
    for _ in range(50):
        fresh = _core.fresh_copy(large)
        places.add(fresh.ctypes.data)
        del fresh
    gc.collect()
    assert len(places) < 25
