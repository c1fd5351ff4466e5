"""Time steps of dm_env for any fleet."""

from __future__ import annotations

import sys
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

import envfleet
from envfleet.adapters.dm_env import as_dm_env, spec_of_space

FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)


@pytest.mark.parametrize("backend", ["native", "process", "sync"])
def test_first_mid_and_last_steps(backend: str) -> None:
    env = as_dm_env(envfleet.make_vec("CartPole-v1", 2, backend, max_episode_steps=3))
    assert isinstance(env, dm_env.Environment)
    found = [env.reset(), *(env.step(np.array([0, 1])) for _ in range(5))]
    assert [step.step_type.tolist() for step in found] == [[kind] * 2 for kind in (FIRST, MID, MID, LAST, FIRST, MID)]
    assert [step.reward.tolist() for step in found] == [[number] * 2 for number in (0, 1, 1, 1, 0, 1)]
    assert all((step.discount == 1.0).all() for step in found), "a truncated episode might have gone on"
    env.close()


def test_the_discount_is_0_where_an_episode_terminates() -> None:
    env = as_dm_env(envfleet.make_vec("CartPole-v1", 3))
    env.reset()
    lasts = []
    for _ in range(60):
        step = env.step(np.ones(3, int))
        np.testing.assert_array_equal(step.discount == 0.0, step.step_type == LAST)
        lasts.append(int((step.step_type == LAST).sum()))
    assert sum(lasts) > 6
    env.close()


def test_a_reset_begins_anew_whatever_was_before() -> None:
    env = as_dm_env(envfleet.make_vec("CartPole-v1", 2, max_episode_steps=1))
    env.reset()
    assert env.step(np.zeros(2, int)).step_type.tolist() == [LAST, LAST]
    assert env.reset().step_type.tolist() == [FIRST, FIRST]
    assert env.step(np.zeros(2, int)).step_type.tolist() == [LAST, LAST]
    env.close()


def test_specs_describe_one_environment() -> None:
    env = as_dm_env(envfleet.make_vec("Pendulum-v1", 2))
    step = env.reset()
    env.observation_spec().validate(step.observation[0])
    env.reward_spec().validate(step.reward[0])
    env.discount_spec().validate(step.discount[0])
    assert (env.action_spec().minimum, env.action_spec().maximum) == (-2.0, 2.0)
    env.close()


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.Discrete(3), specs.DiscreteArray(3, np.int64, "it")),
        (spaces.Discrete(3, start=2), specs.BoundedArray((), np.int64, 2, 4, "it")),
        (spaces.MultiDiscrete([2, 3]), specs.BoundedArray((2,), np.int64, 0, [1, 2], "it")),
        (spaces.MultiBinary(4), specs.BoundedArray((4,), np.int8, 0, 1, "it")),
        (spaces.Box(-np.inf, np.inf, (2,)), specs.Array((2,), np.float32, "it")),
        (spaces.Box(0, 255, (2, 3), np.uint8), specs.BoundedArray((2, 3), np.uint8, 0, 255, "it")),
        (spaces.Tuple([spaces.Discrete(2)]), (specs.DiscreteArray(2, np.int64, "it0"),)),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": specs.DiscreteArray(2, np.int64, "a")}),
    ],
)
def test_specs_say_what_spaces_say(space: Any, spec: Any) -> None:
    found = spec_of_space(space, "it")
    assert type(found) is type(spec)
    if isinstance(spec, specs.BoundedArray):
        np.testing.assert_array_equal(found.minimum, np.broadcast_to(spec.minimum, space.shape))
        np.testing.assert_array_equal(found.maximum, np.broadcast_to(spec.maximum, space.shape))
        assert (found.shape, found.dtype, found.name) == (spec.shape, spec.dtype, spec.name)
    else:
        assert found == spec


def test_spaces_that_are_no_arrays_are_refused() -> None:
    with pytest.raises(envfleet.UnsupportedError, match="Text"):
        spec_of_space(spaces.Text(3))


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_other_autoreset_modes_are_refused(mode: str) -> None:
    with (
        envfleet.make_vec("CartPole-v1", 2, vector_kwargs={"autoreset_mode": mode}) as envs,
        pytest.raises(ValueError, match="NEXT_STEP, the default"),
    ):
        as_dm_env(envs)


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dm_env", None)
    monkeypatch.delitem(sys.modules, "envfleet.adapters.dm_env")
    with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[dm\]"'):
        import envfleet.adapters.dm_env  # noqa: F401
