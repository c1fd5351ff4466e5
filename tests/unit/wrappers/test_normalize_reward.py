from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    DISABLED,
    MODES,
    NEXT_STEP,
    Ending,
    FrozenOutputs,
    Maker,
    Play,
    ScriptedEnv,
    env_fns,
    patient,
    plays,
    reward_of,
    run,
)

from envfleet.wrappers import NormalizeReward

LONG = (Ending(100, False),)
ACTIONS = np.zeros((2, 2), dtype=np.float32)


@patient
@given(play=plays(), gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_rewards_are_divided_by_the_deviation_of_the_returns(make: Maker, play: Play, gamma: float) -> None:
    envs = NormalizeReward(play.vector_env(make), gamma=gamma, epsilon=1e-6)
    returns = [0.0] * len(play.scripts)
    counted: list[float] = []
    for operation, result in run(envs, play.operations):
        for index, row in enumerate(operation.rows):
            if row.fresh and row.first and row.final is None:
                returns[index] = 0.0
            if row.played:
                returns[index] = gamma * returns[index] + row.reward
                counted.append(returns[index])
            if row.done:
                returns[index] = 0.0
        assert envs.return_rms.count == len(counted)
        if operation.mask is None and np.std(counted) > 1e-9:
            np.testing.assert_allclose(envs.return_rms.mean, np.mean(counted), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(envs.return_rms.var, np.var(counted), rtol=1e-9, atol=1e-12)
            want = np.array([row.reward for row in operation.rows]) / np.sqrt(np.var(counted) + 1e-6)
            np.testing.assert_allclose(result[1], want, rtol=1e-6)
            assert result[1].dtype == np.float64
    envs.close()


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_an_episode_clears_the_return(make: Maker, mode: AutoresetMode, truncated: bool) -> None:
    envs = NormalizeReward(make(env_fns([(Ending(2, truncated),)]), autoreset_mode=mode), gamma=1.0)
    envs.reset()
    envs.step(ACTIONS[:1]), envs.step(ACTIONS[:1])
    if mode is DISABLED:
        envs.reset()
    if mode is NEXT_STEP:
        envs.step(ACTIONS[:1])
    envs.step(ACTIONS[:1])
    r = [reward_of(0, 0, 1), reward_of(0, 0, 2), reward_of(0, 1, 1)]
    assert envs.return_rms.count == 3
    np.testing.assert_allclose(envs.return_rms.mean, np.mean([r[0], r[0] + r[1], r[2]]))
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_masked_reset_clears_the_masked_returns_only(make: Maker, mode: AutoresetMode) -> None:
    envs = NormalizeReward(make(env_fns([LONG, LONG]), autoreset_mode=mode), gamma=1.0)
    envs.reset()
    envs.step(ACTIONS)
    options = {"reset_mask": np.array([True, False])}
    envs.reset(options=options)
    envs.step(ACTIONS)
    counted = [
        *(reward_of(0, 0, 1), reward_of(1, 0, 1)),
        *(reward_of(0, 1, 1), reward_of(1, 0, 1) + reward_of(1, 0, 2)),
    ]
    assert envs.return_rms.count == 4
    np.testing.assert_allclose(envs.return_rms.var, np.var(counted))
    assert list(options) == ["reset_mask"]
    envs.close()


@pytest.mark.parametrize("mask", [None, np.array([True, False])])
def test_a_reset_takes_the_place_of_the_autoreset(make: Maker, mask: Any) -> None:
    envs = NormalizeReward(make(env_fns([(Ending(1, False), Ending(9, False)), LONG])), gamma=0.0)
    envs.reset()
    envs.step(ACTIONS)
    envs.reset(options=None if mask is None else {"reset_mask": mask})
    envs.step(ACTIONS)
    assert envs.return_rms.count == 4
    envs.close()


class Constant(ScriptedEnv):
    """Earns 0.1 in every step; summing equal floats rounds, so their variance is not quite zero."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 0.1, *rest


def test_equal_returns_leave_rewards_unscaled() -> None:
    envs = NormalizeReward(SyncVectorEnv([partial(Constant, index, LONG) for index in range(7)]), gamma=0.0)
    envs.reset()
    for _ in range(50):
        _, rewards, *_ = envs.step(np.zeros((7, 2), np.float32))
        np.testing.assert_array_equal(rewards, np.full(7, 0.1))


@pytest.mark.parametrize("mode", MODES)
def test_frozen_statistics_do_not_move_but_are_used(make: Maker, mode: AutoresetMode) -> None:
    envs = NormalizeReward(make(env_fns([LONG, LONG]), autoreset_mode=mode))
    envs.reset()
    envs.step(ACTIONS)
    before = envs.return_rms
    assert envs.update_running_mean is True
    envs.update_running_mean = False
    _, rewards, *_ = envs.step(ACTIONS)
    assert envs.return_rms is before
    raw = np.array([reward_of(0, 0, 2), reward_of(1, 0, 2)])
    np.testing.assert_allclose(rewards, raw / np.sqrt(before.var + 1e-8))
    envs.update_running_mean = True
    envs.step(ACTIONS)
    # The third return contains the rewards that came while the statistics were frozen.
    third = [sum(0.99 ** (3 - step) * reward_of(index, 0, step) for step in (1, 2, 3)) for index in range(2)]
    first = [reward_of(index, 0, 1) for index in range(2)]
    np.testing.assert_allclose(envs.return_rms.mean, np.mean(first + third))
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_arrays_of_the_environment_are_left_alone(make: Maker, mode: AutoresetMode) -> None:
    inner = FrozenOutputs(make(env_fns([(Ending(1, False),), LONG]), autoreset_mode=mode))
    envs = NormalizeReward(inner)
    options = {"reset_mask": np.array([True, False])}
    for operation in (envs.reset, lambda: envs.step(ACTIONS), lambda: envs.reset(options=options)):
        infos = operation()[-1]
        inner.check_untouched()
        assert infos is inner.infos
    envs.close()


def test_a_saved_state_continues_to_the_bit(make: Maker) -> None:
    envs = NormalizeReward(make(env_fns([LONG, LONG])))
    envs.reset()
    for _ in range(5):
        envs.step(ACTIONS)
    state = envs.state_dict()
    assert set(state) == {"count", "mean", "m2"}
    other = NormalizeReward(make(env_fns([LONG])))
    other.load_state_dict(state)
    assert other.return_rms.count == 10
    assert other.return_rms.mean.tobytes() == envs.return_rms.mean.tobytes()
    assert other.return_rms.var.tobytes() == envs.return_rms.var.tobytes()
    state["m2"][...] = 0.0
    assert other.return_rms.var > 0.0
    envs.close()
    other.close()


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        ({"count": 1}, ValueError, r"this NormalizeReward: missing keys \['m2', 'mean'\]"),
        ({"count": 1, "mean": np.zeros(1), "m2": np.zeros(())}, ValueError, r"mean must have shape \(\)"),
        ({"count": 1, "mean": 0.5, "m2": np.zeros(())}, TypeError, "mean must be a float64 NumPy array"),
        ("state", TypeError, "NormalizeReward.load_state_dict needs a dict, got str"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state: Any, error: type[Exception], words: str) -> None:
    envs = NormalizeReward(SyncVectorEnv(env_fns([LONG])))
    with pytest.raises(error, match=words):
        envs.load_state_dict(state)
    assert envs.return_rms.count == 0


def test_a_reward_that_is_not_finite_is_refused_and_not_counted() -> None:
    class Broken(ScriptedEnv):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, np.nan if self._step == 2 else 1.0, *rest

    envs = NormalizeReward(SyncVectorEnv([lambda: ScriptedEnv(0, LONG), lambda: Broken(1, LONG)]))
    envs.reset()
    envs.step(ACTIONS)
    with pytest.raises(ValueError, match="discounted return of environment 1 has a value that is not finite"):
        envs.step(ACTIONS)
    assert envs.return_rms.count == 2
    assert np.isfinite(envs.step(ACTIONS)[1]).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"gamma": 1.5}, ValueError, "gamma must be from 0 to 1, got 1.5"),
        ({"gamma": -0.1}, ValueError, "gamma must be from 0 to 1, got -0.1"),
        ({"gamma": np.nan}, ValueError, "gamma must be from 0 to 1, got nan"),
        ({"gamma": None}, TypeError, "gamma must be a number, got None"),
        ({"epsilon": 0}, ValueError, "epsilon must be a finite number greater than 0, got 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        NormalizeReward(SyncVectorEnv(env_fns([LONG])), **arguments)


def test_the_switch_must_be_a_bool() -> None:
    envs = NormalizeReward(SyncVectorEnv(env_fns([LONG])))
    with pytest.raises(TypeError, match="update_running_mean must be True or False, got None"):
        envs.update_running_mean = None  # type: ignore[assignment]
