from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    DISABLED,
    IMAGE,
    MODES,
    NEXT_STEP,
    OBSERVATION_SPACES,
    SAME_STEP,
    Ending,
    FrozenOutputs,
    Maker,
    Play,
    Row,
    env_fns,
    leaves,
    patient,
    plays,
    run,
)

from envfleet.wrappers import FrameStackObservation

LONG = (Ending(100, False),)


class StackByHand:
    """One environment's stack, kept in a deque of whole observations."""

    def __init__(self, stack_size: int, padding: str, low: list[Any], high: list[Any]) -> None:
        self._size, self._padding = stack_size, padding
        self._zero = [np.clip(np.zeros_like(lo), lo, hi) for lo, hi in zip(low, high, strict=True)]
        self._frames: deque[list[Any]] = deque(maxlen=stack_size)

    def advance(self, row: Row) -> tuple[list[Any], list[Any] | None]:
        """Return the stack and the final stack after `row`, each as stacked leaves."""
        final = None
        if row.final is not None:
            final = self._stacked([*self._frames, leaves(row.final)][-self._size :])
        if row.fresh and row.first:
            filler = leaves(row.obs) if self._padding == "reset" else self._zero
            self._frames.extend([filler] * self._size)
            self._frames[-1] = leaves(row.obs)
        elif row.fresh:
            self._frames.append(leaves(row.obs))
        return self._stacked(list(self._frames)), final

    @staticmethod
    def _stacked(frames: list[list[Any]]) -> list[Any]:
        return [np.stack(leaf) for leaf in zip(*frames, strict=True)]


def bounds(space: spaces.Space[Any]) -> tuple[list[Any], list[Any]]:
    low, high = [], []
    pair: tuple[Any, Any]
    for leaf in leaf_spaces(space):
        if isinstance(leaf, spaces.Box):
            pair = leaf.low, leaf.high
        elif isinstance(leaf, spaces.Discrete):
            pair = np.array(leaf.start), np.array(leaf.start + leaf.n - 1)
        elif isinstance(leaf, spaces.MultiDiscrete):
            pair = leaf.start, leaf.start + leaf.nvec - 1
        else:
            assert isinstance(leaf, spaces.MultiBinary)
            pair = np.zeros(leaf.shape, np.int8), np.ones(leaf.shape, np.int8)
        low.append(pair[0])
        high.append(pair[1])
    return low, high


def leaf_spaces(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return [leaf for key in sorted(space.spaces) for leaf in leaf_spaces(space.spaces[key])]
    if isinstance(space, spaces.Tuple):
        return [leaf for sub in space.spaces for leaf in leaf_spaces(sub)]
    return [space]


@patient
@given(
    play=plays(kinds=list(OBSERVATION_SPACES)), stack_size=st.integers(1, 4), padding=st.sampled_from(["reset", "zero"])
)
def test_stacks_equal_those_kept_by_hand(make: Maker, play: Play, stack_size: int, padding: Any) -> None:
    envs = FrameStackObservation(play.vector_env(make), stack_size, padding=padding)
    by_hand = [StackByHand(stack_size, padding, *bounds(OBSERVATION_SPACES[play.kind])) for _ in play.scripts]
    results = list(run(envs, play.operations))
    for operation, result in results:
        assert result[0] in envs.observation_space
        for index, (row, stack) in enumerate(zip(operation.rows, by_hand, strict=True)):
            expected, final = stack.advance(row)
            for got, want in zip(leaves(result[0]), expected, strict=True):
                np.testing.assert_array_equal(got[index], want)
            check_final(result[-1], index, final, envs.single_observation_space)
    envs.close()


def check_final(infos: dict[str, Any], index: int, final: list[Any] | None, space: spaces.Space[Any]) -> None:
    if final is None:
        assert not infos.get("_final_obs", np.zeros(index + 1))[index]
        return
    assert infos["_final_obs"][index]
    assert infos["final_obs"][index] in space
    for got, want in zip(leaves(infos["final_obs"][index]), final, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", OBSERVATION_SPACES)
def test_spaces_have_the_new_axis(make: Maker, kind: str) -> None:
    inner = make(env_fns([LONG, LONG], kind))
    envs = FrameStackObservation(inner, 3)
    for before, single, batched in zip(
        leaf_spaces(inner.single_observation_space),
        leaf_spaces(envs.single_observation_space),
        leaf_spaces(envs.observation_space),
        strict=True,
    ):
        assert single.shape == (3, *(before.shape or ()))
        assert batched.shape == (2, 3, *(before.shape or ()))
        assert single.dtype == batched.dtype == before.dtype
    assert envs.observation_space == gym.vector.utils.batch_space(envs.single_observation_space, 2)
    envs.close()


def test_environments_with_different_bounds_keep_them() -> None:
    class Bounded(gym.Env[Any, Any]):
        action_space = spaces.Discrete(2)

        def __init__(self, low: float) -> None:
            self.observation_space = spaces.Box(low, low + 1.0, (2,), np.float32)
            self._shown = self.observation_space.high

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return self._shown.copy(), {}

    inner = SyncVectorEnv([lambda: Bounded(3.0), lambda: Bounded(-7.0)], observation_mode="different")
    envs = FrameStackObservation(inner, 2, padding="zero")
    stacks, _ = envs.reset()
    np.testing.assert_array_equal(stacks[:, :, 0], [[3.0, 4.0], [-6.0, -6.0]])
    assert stacks in envs.observation_space


@pytest.mark.parametrize("mode", MODES)
def test_returned_stacks_belong_to_the_caller(make: Maker, mode: AutoresetMode) -> None:
    script = (Ending(3, False),)
    envs = FrameStackObservation(make(env_fns([script]), copy=False, autoreset_mode=mode), 2)
    undisturbed = FrameStackObservation(make(env_fns([script]), copy=False, autoreset_mode=mode), 2)
    actions = np.zeros((1, 2), dtype=np.float32)
    stacks, _ = envs.reset()
    undisturbed.reset()
    for _ in range(3):
        stacks[:] = np.nan
        stacks, *_, infos = envs.step(actions)
        expected, *_, expected_infos = undisturbed.step(actions)
        np.testing.assert_array_equal(stacks, expected)
        if "final_obs" in infos:
            np.testing.assert_array_equal(infos["final_obs"][0], expected_infos["final_obs"][0])
    envs.close()
    undisturbed.close()


@pytest.mark.parametrize("mode", MODES)
def test_arrays_of_the_environment_are_left_alone(make: Maker, mode: AutoresetMode) -> None:
    inner = FrozenOutputs(make(env_fns([(Ending(1, False),), LONG], "dict"), autoreset_mode=mode))
    envs = FrameStackObservation(inner, 2)
    options = {"reset_mask": np.array([True, False]), "level": 3}
    for operation in (envs.reset, lambda: envs.step(np.zeros((2, 2), np.float32)), lambda: envs.reset(options=options)):
        infos = operation()[-1]
        inner.check_untouched()
        assert set(infos) == set(inner.infos)
    assert list(options) == ["reset_mask", "level"]
    envs.close()


def test_final_observations_may_come_as_one_batch(make: Maker) -> None:
    class Batched(FrozenOutputs):
        def step(self, actions: Any) -> Any:
            *rest, infos = self.env.step(actions)
            infos["final_obs"] = np.stack([infos["final_obs"][0], np.zeros(3, np.float32)])
            del infos["_final_obs"]
            return *rest, infos

    inner = Batched(make(env_fns([(Ending(1, False),), LONG]), autoreset_mode=SAME_STEP))
    envs = FrameStackObservation(inner, 2)
    first, _ = envs.reset()
    *_, infos = envs.step(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(infos["_final_obs"], [True, False])
    np.testing.assert_array_equal(infos["final_obs"][0][0], first[0, 1])
    assert infos["final_obs"][1] is None
    envs.close()


@pytest.mark.parametrize(
    ("stack_size", "padding", "error", "words"),
    [
        (0, "reset", ValueError, "stack_size must be at least 1, got 0"),
        (2.0, "reset", TypeError, "stack_size must be an integer"),
        (True, "reset", TypeError, "stack_size must be an integer"),
        (2, "mirror", ValueError, "padding must be 'reset' or 'zero', got 'mirror'"),
    ],
)
def test_arguments_are_checked(stack_size: Any, padding: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        FrameStackObservation(SyncVectorEnv(env_fns([LONG])), stack_size, padding=padding)


def test_unsupported_spaces_are_refused_by_name() -> None:
    class Talker(gym.Env[Any, Any]):
        action_space = spaces.Discrete(2)
        observation_space = spaces.Dict({"eye": IMAGE, "ear": spaces.Tuple((spaces.Text(5),))})

    with pytest.raises(TypeError, match=r"'ear/0', a Text space.*Box, Discrete.*FilterObservation"):
        FrameStackObservation(SyncVectorEnv([Talker]), 2)


def test_an_environment_without_autoreset_mode_is_refused() -> None:
    inner = SyncVectorEnv(env_fns([LONG]))
    inner.metadata = {}
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\], got nothing"):
        FrameStackObservation(inner, 2)
    inner.metadata = {"autoreset_mode": "NextStep"}
    with pytest.raises(ValueError, match=r"got 'NextStep' of type str"):
        FrameStackObservation(inner, 2)


def test_list_infos_inside_are_refused_where_final_observations_are_needed() -> None:
    inner = SyncVectorEnv(env_fns([LONG]), autoreset_mode=SAME_STEP)
    envs = FrameStackObservation(gym.wrappers.vector.DictInfoToList(inner), 2)
    envs.reset()
    with pytest.raises(TypeError, match="DictInfoToList, around FrameStackObservation and not inside"):
        envs.step(np.zeros((1, 2), np.float32))


@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
def test_list_infos_inside_pass_where_nobody_reads_them(mode: AutoresetMode) -> None:
    inner = SyncVectorEnv(env_fns([(Ending(1, False),)]), autoreset_mode=mode)
    envs = FrameStackObservation(gym.wrappers.vector.DictInfoToList(inner), 2)
    envs.reset()
    infos: Any = envs.step(np.zeros((1, 2), np.float32))[-1]
    assert infos[0]["step_number"] == 1
