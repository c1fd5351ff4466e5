from __future__ import annotations

import io
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    DISABLED,
    MODES,
    NEXT_STEP,
    OBSERVATION_SPACES,
    SAME_STEP,
    VECTOR,
    AnyVectorEnv,
    Ending,
    FrozenOutputs,
    Maker,
    Play,
    env_fns,
    leaves,
    observe,
    patient,
    plays,
    run,
)

from envfleet.wrappers import NormalizeObservation

LONG = (Ending(100, False),)
KINDS = ["vector", "bounded", "image", "rgb", "dict", "tuple"]
ACTIONS = np.zeros((2, 2), dtype=np.float32)


def normalised(obs: Any, seen: npt.NDArray[np.float64], epsilon: float = 1e-8) -> npt.NDArray[Any]:
    """Return what the definition says, from all the observations seen so far."""
    return np.asarray((obs - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + epsilon), dtype=np.float32)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@patient
@given(play=plays(kinds=KINDS))
def test_statistics_are_those_of_every_observation_counted_once(make: Maker, play: Play) -> None:
    envs = NormalizeObservation(play.vector_env(make), epsilon=1e-6)
    seen: list[list[Any]] = []
    for operation, result in run(envs, play.operations):
        seen += [leaves(row.obs) for row in operation.rows if row.fresh]
        seen += [leaves(row.final) for row in operation.rows if row.final is not None]
        assert result[0] in envs.observation_space
        columns = [np.stack(leaf).astype(np.float64) for leaf in zip(*seen, strict=True)]
        for number, (moments, column) in enumerate(zip(leaf_moments(envs.obs_rms), columns, strict=True)):
            assert moments.count == len(column)
            np.testing.assert_allclose(moments.mean, column.mean(axis=0), rtol=1e-12, atol=1e-11)
            np.testing.assert_allclose(moments.var, column.var(axis=0), rtol=1e-9, atol=1e-11)
            for index, row in enumerate(operation.rows):
                want = normalised(leaves(row.obs)[number], column, 1e-6)
                close(leaves(result[0])[number][index], want)
                if row.final is not None:
                    got = result[-1]["final_obs"][index]
                    assert got in envs.single_observation_space
                    close(leaves(got)[number], normalised(leaves(row.final)[number], column, 1e-6))
    envs.close()


def leaf_moments(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaf_moments(value[key])]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaf_moments(item)]
    return [value]


class Replay(gym.Env[Any, Any]):
    """Shows the given observations one after the other."""

    action_space = spaces.Discrete(2)

    def __init__(self, observations: npt.NDArray[np.float64]) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, observations.shape[1:], np.float64)
        self._observations = iter(observations)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return next(self._observations), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return next(self._observations), 0.0, False, False, {}


def replayed(*streams: Any) -> NormalizeObservation:
    """Return a wrapper that has seen all of the streams, one per environment."""
    arrays = [np.asarray(stream, dtype=np.float64).reshape(len(stream), -1) for stream in streams]
    envs = NormalizeObservation(SyncVectorEnv([partial(Replay, array) for array in arrays]))
    envs.reset()
    for _ in range(len(arrays[0]) - 1):
        envs.step(np.zeros(len(arrays), dtype=np.int64))
    return envs


@given(
    offset=st.floats(-1e9, 1e9),
    values=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=60),
)
def test_far_from_zero_no_precision_is_lost(offset: float, values: list[tuple[float, float]]) -> None:
    shifted = np.array(values) + offset
    envs = replayed(*shifted.T)
    # Around the offset, floats lie this far apart; the textbook formula would be off by its square root.
    spacing = np.finfo(np.float64).eps * (1.0 + abs(offset))
    assert abs(envs.obs_rms.mean[0] - shifted.mean()) <= 20 * spacing
    assert abs(np.sqrt(envs.obs_rms.var[0]) - shifted.std()) <= 20 * spacing


def test_output_has_mean_zero_and_variance_one() -> None:
    stream = np.random.default_rng(3).normal(40.0, 0.02, size=(2000, 3))
    envs = replayed(stream)
    envs.update_running_mean = False
    moments = envs.obs_rms
    scaled = (stream - moments.mean) / np.sqrt(moments.var + envs.epsilon)
    assert abs(scaled.mean()) < 1e-6
    assert abs(scaled.std() - 1.0) < 1e-4


def test_dtypes_and_spaces(make: Maker) -> None:
    envs = NormalizeObservation(make(env_fns([LONG, LONG], "image")), clip=2.5)
    obs, _ = envs.reset()
    assert obs.dtype == np.float32
    assert envs.single_observation_space == spaces.Box(-2.5, 2.5, (4, 5, 2), np.float32)
    assert envs.observation_space == spaces.Box(-2.5, 2.5, (2, 4, 5, 2), np.float32)
    assert envs.obs_rms.mean.dtype == envs.obs_rms.var.dtype == np.float64
    envs.close()


def test_clip_limits_observations_and_final_observations(make: Maker) -> None:
    scripts = [(Ending(1, False),), LONG]
    envs = NormalizeObservation(make(env_fns(scripts), autoreset_mode=SAME_STEP), clip=0.25)
    wide = NormalizeObservation(make(env_fns(scripts), autoreset_mode=SAME_STEP))
    envs.reset(), wide.reset()
    obs, *_, infos = envs.step(ACTIONS)
    wide_obs, *_, wide_infos = wide.step(ACTIONS)
    assert np.abs(wide_obs).max() > 0.25
    np.testing.assert_array_equal(obs, np.clip(wide_obs, -0.25, 0.25))
    np.testing.assert_array_equal(infos["final_obs"][0], np.clip(wide_infos["final_obs"][0], -0.25, 0.25))
    envs.close()
    wide.close()


def stepped(make: Maker, mode: AutoresetMode = NEXT_STEP, kind: str = "vector") -> NormalizeObservation:
    envs = NormalizeObservation(make(env_fns([LONG, LONG], kind), autoreset_mode=mode))
    envs.reset()
    for _ in range(3):
        envs.step(ACTIONS)
    return envs


@pytest.mark.parametrize("mode", MODES)
def test_frozen_statistics_do_not_move_but_are_used(make: Maker, mode: AutoresetMode) -> None:
    envs = stepped(make, mode)
    before = envs.obs_rms
    assert envs.update_running_mean is True
    envs.update_running_mean = False
    obs, *_ = envs.step(ACTIONS)
    raw = np.stack([observe(VECTOR, index, 0, 4) for index in range(2)])
    close(obs, (raw - before.mean) / np.sqrt(before.var + 1e-8))
    envs.reset()
    assert envs.obs_rms.count == before.count == 8
    envs.update_running_mean = True
    envs.step(ACTIONS)
    assert envs.obs_rms.count == 10
    envs.close()


def test_frozen_from_the_start_passes_observations_unscaled(make: Maker) -> None:
    envs = NormalizeObservation(make(env_fns([LONG, LONG])))
    envs.update_running_mean = False
    obs, _ = envs.reset()
    close(obs, np.stack([observe(VECTOR, index, 0, 0) for index in range(2)]))
    assert envs.obs_rms.count == 0
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_masked_reset_counts_the_masked_rows_only(make: Maker, mode: AutoresetMode) -> None:
    envs = stepped(make, mode)
    options = {"reset_mask": np.array([False, True])}
    obs, _ = envs.reset(options=options)
    assert envs.obs_rms.count == 9
    assert list(options) == ["reset_mask"]
    raw = np.stack([observe(VECTOR, 0, 0, 3), observe(VECTOR, 1, 1, 0)])
    close(obs, (raw - envs.obs_rms.mean) / np.sqrt(envs.obs_rms.var + 1e-8))
    envs.close()


def test_seeds_and_options_for_each_environment_pass_through(make_ours: Maker) -> None:
    envs = NormalizeObservation(make_ours(env_fns([LONG, LONG])))
    options = [{"level": 3}, None]
    envs.reset(seed=[7, None], options=options)
    assert envs.obs_rms.count == 2
    assert options == [{"level": 3}, None]
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_arrays_of_the_environment_are_left_alone(make: Maker, mode: AutoresetMode) -> None:
    inner = FrozenOutputs(make(env_fns([(Ending(1, False),), LONG], "dict"), autoreset_mode=mode))
    envs = NormalizeObservation(inner)
    options = {"reset_mask": np.array([True, False])}
    for operation in (envs.reset, lambda: envs.step(ACTIONS), lambda: envs.reset(options=options)):
        infos = operation()[-1]
        inner.check_untouched()
        assert set(infos) == set(inner.infos)
    envs.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_state_continues_to_the_bit(make: Maker, kind: str) -> None:
    envs = stepped(make, kind=kind)
    file = io.BytesIO()
    np.savez(file, **envs.state_dict())
    file.seek(0)
    other = NormalizeObservation(make(env_fns([LONG, LONG], kind)))
    other.load_state_dict(dict(np.load(file)))
    for got, want in zip(leaf_moments(other.obs_rms), leaf_moments(envs.obs_rms), strict=True):
        assert type(got.count) is int
        assert got.count == want.count
        assert got.mean.tobytes() == want.mean.tobytes()
        assert got.var.tobytes() == want.var.tobytes()
    for got, want in zip(leaves(other.reset()[0]), leaves(envs.reset()[0]), strict=True):
        assert np.isfinite(got).all()
        assert got.shape == want.shape
    envs.close()
    other.close()


def test_state_is_flat_and_a_copy(make: Maker) -> None:
    envs = stepped(make, kind="dict")
    state = envs.state_dict()
    assert set(state) == {
        f"{path}/{name}" for path in ("eye", "body/joints", "body/mass") for name in ("count", "mean", "m2")
    }
    assert state["eye/count"] == 8
    state["eye/mean"][:] = np.nan
    state["eye/m2"][:] = np.nan
    assert np.isfinite(envs.obs_rms["eye"].mean).all()
    assert np.isfinite(envs.obs_rms["eye"].var).all()
    fresh = envs.state_dict()
    envs.load_state_dict(fresh)
    fresh["eye/m2"][:] = np.nan
    assert np.isfinite(envs.obs_rms["eye"].var).all()
    envs.close()


def test_a_state_loads_into_another_number_of_environments(make: Maker) -> None:
    envs = stepped(make)
    one = NormalizeObservation(make(env_fns([LONG])))
    one.load_state_dict(envs.state_dict())
    assert one.obs_rms.count == 8
    envs.close()
    one.close()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"mean": None}, ValueError, r"missing keys \['mean'\]"),
        ({"std": 1.0}, ValueError, r"unknown keys \['std'\]"),
        ({"mean": np.zeros(4)}, ValueError, r"mean must have shape \(3,\), got \(4,\)"),
        ({"mean": np.zeros(3, np.float32)}, TypeError, "mean must be a float64 NumPy array .* got an array of float32"),
        ({"m2": [0.0, 0.0, 0.0]}, TypeError, "m2 must be a float64 NumPy array .* got list"),
        ({"m2": np.array([0.0, np.nan, 0.0])}, ValueError, "m2 must be finite"),
        ({"m2": np.array([0.0, -1.0, 0.0])}, ValueError, "m2 is a sum of squares and cannot be negative"),
        ({"count": 2.5}, TypeError, "count must be an integer, got 2.5"),
        ({"count": -1}, ValueError, "count must not be negative, got -1"),
        ({"count": True}, TypeError, "count must be an integer, got True"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    envs = stepped(SyncVectorEnv)
    before = envs.state_dict()
    state = {key: value for key, value in {**before, **change}.items() if value is not None}
    with pytest.raises(error, match=words):
        envs.load_state_dict(state)
    after = envs.state_dict()
    assert after["count"] == before["count"]
    np.testing.assert_array_equal(after["mean"], before["mean"])


def test_a_state_must_be_a_dict() -> None:
    with pytest.raises(TypeError, match="load_state_dict needs a dict, got list"):
        stepped(SyncVectorEnv).load_state_dict([1, 2])  # type: ignore[arg-type]


def test_a_later_leaf_that_does_not_fit_changes_no_earlier_one() -> None:
    envs = stepped(SyncVectorEnv, kind="dict")
    state = {key: value * 0 for key, value in envs.state_dict().items()}
    with pytest.raises(ValueError, match="eye/mean must have shape"):
        envs.load_state_dict({**state, "eye/mean": np.zeros(1)})
    assert envs.obs_rms["body"]["joints"].count == 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_is_refused_and_not_counted(bad: float) -> None:
    streams = np.ones((2, 3, 1))
    streams[1, 1] = bad
    envs = NormalizeObservation(SyncVectorEnv([partial(Replay, stream) for stream in streams]))
    envs.reset()
    with pytest.raises(ValueError, match="observation of environment 1 has a value that is not finite"):
        envs.step(np.zeros(2, dtype=np.int64))
    assert envs.obs_rms.count == 2
    obs, *_ = envs.step(np.zeros(2, dtype=np.int64))
    assert np.isfinite(obs).all()


def test_an_observation_too_large_to_square_is_refused() -> None:
    with pytest.raises(ValueError, match="observation is too large for a variance in float64"):
        replayed([1.0, 1e200])


def test_frozen_statistics_let_odd_values_pass() -> None:
    envs = NormalizeObservation(SyncVectorEnv([lambda: Replay(np.full((1, 1), np.nan))]))
    envs.update_running_mean = False
    assert np.isnan(envs.reset()[0]).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be a finite number greater than 0, got 0.0"),
        ({"epsilon": np.nan}, ValueError, "epsilon must be a finite number"),
        ({"epsilon": "small"}, TypeError, "epsilon must be a number, got 'small'"),
        ({"clip": -1}, ValueError, "clip must be a finite number greater than 0, got -1"),
        ({"clip": True}, TypeError, "clip must be a number, got True"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        NormalizeObservation(SyncVectorEnv(env_fns([LONG])), **arguments)


def test_the_switch_must_be_a_bool() -> None:
    envs = NormalizeObservation(SyncVectorEnv(env_fns([LONG])))
    with pytest.raises(TypeError, match="update_running_mean must be True or False, got 0"):
        envs.update_running_mean = 0  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Discrete(3), "the observation, a Discrete space.*supports Box.*FlattenObservation"),
        (spaces.Dict({"b": VECTOR, "a": spaces.MultiBinary(2)}), "'a', a MultiBinary space.*FilterObservation"),
    ],
)
def test_unsupported_spaces_are_refused_by_name(space: spaces.Space[Any], words: str) -> None:
    class Odd(gym.Env[Any, Any]):
        action_space = spaces.Discrete(2)
        observation_space = space

    with pytest.raises(TypeError, match=words):
        NormalizeObservation(SyncVectorEnv([Odd]))


def test_paths_that_look_the_same_are_refused() -> None:
    class Confusing(gym.Env[Any, Any]):
        action_space = spaces.Discrete(2)
        observation_space = spaces.Dict({"a/b": VECTOR, "a": spaces.Dict({"b": VECTOR})})

    with pytest.raises(ValueError, match="same path"):
        NormalizeObservation(SyncVectorEnv([Confusing]))


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        ([True, False], TypeError, "got list"),
        (np.array([1, 0]), TypeError, "got dtype int64"),
        (np.array([True]), ValueError, r"got shape \(1,\)"),
        (np.array([False, False]), ValueError, "at least one True"),
    ],
)
def test_a_wrong_mask_is_refused_before_anything_happens(mask: Any, error: type[Exception], words: str) -> None:
    envs: AnyVectorEnv = stepped(SyncVectorEnv, DISABLED)
    with pytest.raises(error, match=words):
        envs.reset(options={"reset_mask": mask})
    assert envs.obs_rms.count == 8  # type: ignore[attr-defined]


def test_every_kind_of_space_is_played() -> None:
    assert set(KINDS) | {"finite"} == set(OBSERVATION_SPACES)
