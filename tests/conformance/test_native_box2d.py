"""Native environments on Box2D: chosen, missing, refused, kept and put back, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import N, of_one, played, snapshots, trajectory

from envfleet import NativeVectorEnv, SyncVectorEnv, choice, make_vec
from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same

pytestmark = pytest.mark.usefixtures("box2d")

IDS = ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3"]


# --- what make_vec makes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_auto_takes_the_native_environment_and_says_so(env_id: str) -> None:
    with make_vec(env_id, 2) as envs:
        assert type(envs) is NativeVectorEnv
        assert envs.plan.startswith("native: ")
        with make_vec(envs.spec) as again:
            assert type(again) is NativeVectorEnv
            assert_same(trajectory(again, 5), trajectory(envs, 5))


def test_without_box2ds_sources_native_says_what_is_missing_and_auto_goes_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("envfleet._native.kinds", lambda: ["CartPole"])
    with pytest.raises(TypeError, match=r"LunarLander-v3 in this installation: it needs the sources of Box2D"):
        make_vec("LunarLander-v3", 2, "native")
    with make_vec("LunarLander-v3", 2) as envs:
        assert type(envs) is not NativeVectorEnv
        assert "it needs the sources of Box2D" in envs.plan


def test_discrete_and_continuous_landers_do_not_share_a_fleet() -> None:
    with pytest.raises(TypeError, match="environments that differ in 'continuous'"):
        make_vec("LunarLander-v3", 2, "native", randomize={"continuous": choice([True, False])})


def test_gravity_is_refused_where_gymnasium_refuses_it() -> None:
    with pytest.raises(AssertionError, match="must be between -12 and 0"):
        make_vec("LunarLander-v3", 2, "native", gravity=1.0)
    with pytest.raises(ValueError, match="gravity must be between -12 and 0, got 3"):
        NativeVectorEnv("LunarLander-v3", 2, varied=[{"gravity": -5.0}, {"gravity": 3.0}])


# --- attributes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "attributes"),
    [
        ("LunarLander-v3", {"gravity": -2.5, "enable_wind": True, "wind_power": 4.0, "turbulence_power": 0.3}),
        ("BipedalWalker-v3", {"hardcore": True}),
    ],
)
def test_parameters_are_set_as_gymnasiums_attributes_are(env_id: str, attributes: dict[str, Any]) -> None:
    with make_vec(env_id, N, "native") as ours, make_vec(env_id, N, "sync") as theirs:
        for envs in (ours, theirs):
            for name, value in attributes.items():
                envs.set_attr(name, value)
        assert_same(trajectory(ours), trajectory(theirs))
        for name in (*attributes, "game_over", "prev_shaping"):
            assert ours.get_attr(name) == theirs.get_attr(name)


def test_what_follows_from_the_actions_cannot_be_set() -> None:
    with make_vec("LunarLander-v3", 2, "native") as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvRaisedError, match="game_over must be left alone"):
            envs.set_attr("game_over", True)


def test_an_action_that_is_no_number_is_refused_and_the_fleet_goes_on() -> None:
    with make_vec("BipedalWalker-v3", 3, "native") as envs:
        envs.reset(seed=1)
        actions = np.zeros((3, 4), np.float32)
        actions[1, 2] = np.nan
        with pytest.raises(EnvRaisedError, match="the action holds NaN") as caught:
            envs.step(actions)
        assert caught.value.env_indices == (1,)
        envs.reset(seed=1)
        envs.step(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("env_id", IDS)
def test_threads_change_nothing(env_id: str) -> None:
    with NativeVectorEnv(env_id, 8, threads=1) as alone, NativeVectorEnv(env_id, 8, threads=4) as shared:
        assert_same(trajectory(shared, 120), trajectory(alone, 120))


# --- snapshots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("env_id", IDS)
def test_a_snapshot_is_replayed_number_for_number(env_id: str, mode: AutoresetMode) -> None:
    """Taken in a later episode: a walker's world remembers the earlier ones."""
    kwargs: Any = {"autoreset_mode": mode, "env_kwargs": {"max_episode_steps": 90}}
    with NativeVectorEnv(env_id, 3, **kwargs) as envs, NativeVectorEnv(env_id, 2, **kwargs) as other:
        envs.action_space.seed(3)
        actions = [np.asarray(envs.action_space.sample()) for _ in range(400)]
        envs.reset(seed=6)
        other.reset(seed=99)
        played(envs, actions[:200])
        kept = snapshots(envs)
        first = played(envs, actions[200:])
        for env, state in enumerate(kept):
            envs.set_state(env, state)
        assert snapshots(envs) == kept
        assert_same(played(envs, actions[200:]), first)
        other.set_state(1, kept[2])
        elsewhere = played(other, [batch[[0, 2]] for batch in actions[200:]])
        assert_same(of_one(elsewhere, 1), of_one(first, 2))


def test_a_snapshot_keeps_the_parameters_that_led_to_it() -> None:
    kwargs: Any = {"env_kwargs": {"enable_wind": True, "wind_power": 20.0}}
    with NativeVectorEnv("LunarLander-v3", 1, **kwargs) as envs:
        envs.reset(seed=1)
        for _ in range(20):
            envs.step(np.array([2]))
        envs.set_attr("wind_power", 0.0)
        expected, *_ = envs.step(np.array([2]))
        kept = envs.get_state(0)
        envs.reset(seed=2)
        assert_same(envs.set_state(0, kept), expected)


@pytest.mark.parametrize("env_id", IDS)
def test_a_snapshot_from_before_the_first_reset_is_one_too(env_id: str) -> None:
    with NativeVectorEnv(env_id, 1) as envs:
        unborn = envs.get_state(0)
        before = trajectory(envs, 40)
        envs.set_state(0, unborn)
        assert_same(trajectory(envs, 40), before)


# --- drawing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "action"),
    [
        ("LunarLander-v3", 0),
        ("LunarLanderContinuous-v3", [-1.0, 0.0]),
        ("BipedalWalker-v3", [0.5, -0.3, 0.9, 0.1]),
        ("BipedalWalkerHardcore-v3", [0.1, 0.9, -0.5, 0.2]),
    ],
)
def test_rendering_shows_what_gymnasium_shows(env_id: str, action: Any) -> None:
    """But for the sparks of a lander's engines, which here are off."""
    pytest.importorskip("pygame")
    kwargs = {"render_mode": "rgb_array"}
    with make_vec(env_id, 2, "native", **kwargs) as ours, make_vec(env_id, 2, "sync", **kwargs) as theirs:
        assert type(theirs) is SyncVectorEnv
        ours.reset(seed=5)
        theirs.reset(seed=5)
        actions = np.asarray([action, action], ours.single_action_space.dtype)
        for _ in range(30):
            assert_same(ours.step(actions), theirs.step(actions))
        for frame, expected in zip(ours.render(), theirs.render(), strict=True):
            assert frame.dtype == np.uint8
            assert np.array_equal(frame, expected)


def test_rendering_before_the_first_reset_says_what_to_do() -> None:
    envs = make_vec("BipedalWalker-v3", 1, "native", render_mode="rgb_array")
    with envs, pytest.raises(EnvRaisedError, match="before the first reset"):
        envs.render()


def test_rendering_follows_the_environment_into_its_next_episode() -> None:
    pytest.importorskip("pygame")
    kwargs: Any = {"render_mode": "rgb_array"}
    with make_vec("LunarLander-v3", 1, "native", **kwargs) as envs:
        envs.reset(seed=1)
        (first,) = envs.render()
        envs.reset()
        (second,) = envs.render()
        envs.reset(seed=1)
        (again,) = envs.render()
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again)
