"""`collect`: what a rollout holds, in both autoreset modes, against the same episodes played by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tiny_envs import (
    EXAMPLE,
    NEXT_STEP,
    SAME_STEP,
    Script,
    ScriptedEnv,
    counting_policy,
    scripted_fleet,
)

from envfleet.train.collecting import Rollout, begin, collect

SCRIPTS = (EXAMPLE, EXAMPLE[1:], ((5, "truncated"),))
MODES = pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=["NEXT_STEP", "SAME_STEP"])
Transition = tuple[Any, ...]


def leaf(observations: Any) -> np.ndarray:
    return observations["inner"]["moment"] if isinstance(observations, dict) else observations


def transitions(rollout: Rollout) -> list[list[Transition]]:
    """By environment: moment before, action, reward, flags, moment after; reset rows left out."""
    seen, ends = leaf(rollout.observations)[..., 0], leaf(rollout.end.observations)[None, :, 0]
    after = np.concatenate([seen[1:], ends])
    after[rollout.done] = leaf(rollout.final_observations)[:, 0]
    found: list[list[Transition]] = [[] for _ in range(rollout.rewards.shape[1])]
    columns = (seen, rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated, after)
    for step, env in zip(*np.nonzero(rollout.valid), strict=True):
        found[env].append(tuple(column[step, env].item() for column in columns))
    return found


def by_hand(script: Script, env: int, actions: list[int]) -> list[Transition]:
    single = ScriptedEnv(script, env)
    observation, _ = single.reset(seed=0)
    found = []
    for action in actions:
        after, reward, terminated, truncated, _ = single.step(action)
        found.append((observation[0], action, reward, terminated, truncated, after[0]))
        observation = single.reset()[0] if terminated or truncated else after
    return found


def rollouts(mode: AutoresetMode, lengths: tuple[int, ...], **kwargs: Any) -> list[Rollout]:
    with scripted_fleet(mode, SCRIPTS, **kwargs) as envs:
        position, policy = begin(envs, seed=3), counting_policy(len(SCRIPTS))
        found = []
        for steps in lengths:
            found.append(collect(envs, policy, steps, position))
            position = found[-1].end
        return found


@MODES
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("lengths", [(30,), (1,) * 30, (7, 3, 20)])
def test_transitions_are_those_of_single_environments(
    mode: AutoresetMode, lengths: tuple[int, ...], nested: bool, copy: bool
) -> None:
    parts = [transitions(rollout) for rollout in rollouts(mode, lengths, nested=nested, copy=copy)]
    for env, script in enumerate(SCRIPTS):
        found = [transition for part in parts for transition in part[env]]
        assert found == by_hand(script, env, [action for _, action, *_ in found])


@MODES
def test_only_reset_rows_are_left_out(mode: AutoresetMode) -> None:
    (rollout,) = rollouts(mode, (30,))
    lost = 0 if mode is SAME_STEP else np.count_nonzero(rollout.done[:-1])
    assert rollout.transitions == rollout.valid.sum() == 30 * len(SCRIPTS) - lost
    if mode is NEXT_STEP:
        np.testing.assert_array_equal(rollout.valid[1:], ~rollout.done[:-1])
        np.testing.assert_array_equal(rollout.end.resetting, rollout.done[-1])
    assert rollout.valid[0].all()


def test_a_rollout_that_ends_with_an_episode_leaves_the_reset_to_the_next() -> None:
    first, second = rollouts(NEXT_STEP, (3, 2))
    assert first.end.resetting.tolist() == [True, False, False]
    assert second.valid.tolist() == [[False, True, True], [True, False, True]]


@MODES
def test_shapes_and_dtypes(mode: AutoresetMode) -> None:
    (rollout,) = rollouts(mode, (4,))
    assert leaf(rollout.observations).shape == (4, 3, 2)
    assert rollout.actions.shape == rollout.rewards.shape == rollout.valid.shape == (4, 3)
    assert rollout.actions.dtype == np.int64
    assert rollout.rewards.dtype == np.float64
    assert rollout.terminated.dtype == rollout.truncated.dtype == rollout.valid.dtype == np.bool_
    assert leaf(rollout.final_observations).shape == (np.count_nonzero(rollout.done), 2)
    assert leaf(rollout.final_observations).dtype == leaf(rollout.observations).dtype


@MODES
@pytest.mark.parametrize("nested", [False, True])
def test_nothing_ended_nothing_final(mode: AutoresetMode, nested: bool) -> None:
    with scripted_fleet(mode, (((9, "truncated"),),), nested=nested) as envs:
        rollout = collect(envs, counting_policy(1), 2, begin(envs, 0))
    assert leaf(rollout.final_observations).shape == (0, 2)


@MODES
def test_later_steps_do_not_overwrite_a_rollout(mode: AutoresetMode) -> None:
    with scripted_fleet(mode, SCRIPTS, copy=False) as envs:
        start = begin(envs, seed=3)
        at_start = start.observations.copy()
        rollout = collect(envs, counting_policy(3), 5, start)
        arrays = (rollout.observations, rollout.final_observations, rollout.end.observations, rollout.end.resetting)
        before = [array.copy() for array in arrays]
        collect(envs, counting_policy(3), 5, rollout.end)
    np.testing.assert_array_equal(start.observations, at_start)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@MODES
def test_the_policy_sees_what_the_rollout_says(mode: AutoresetMode) -> None:
    seen = []

    def policy(observations: Any) -> np.ndarray:
        seen.append(observations.copy())
        return np.zeros(3, np.int64)

    with scripted_fleet(mode, SCRIPTS, copy=False) as envs:
        rollout = collect(envs, policy, 6, begin(envs, 0))
    np.testing.assert_array_equal(rollout.observations, np.stack(seen))


def test_gymnasiums_own_vector_environments_will_do() -> None:
    for mode in (NEXT_STEP, SAME_STEP):
        envs = gym.vector.SyncVectorEnv([lambda: ScriptedEnv(EXAMPLE, 0)], autoreset_mode=mode)
        rollout = collect(envs, counting_policy(1), 12, begin(envs, 0))
        (found,) = transitions(rollout)
        assert found == by_hand(EXAMPLE, 0, [action for _, action, *_ in found])


def test_environments_that_do_not_reset_themselves_are_refused() -> None:
    with scripted_fleet(AutoresetMode.DISABLED) as envs:
        start = begin(envs, 0)
        with pytest.raises(ValueError, match=r"got autoreset_mode DISABLED; make them with AutoresetMode\.SAME_STEP"):
            collect(envs, counting_policy(2), 1, start)
