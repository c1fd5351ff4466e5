"""The state and the parameters of native environments: read, set, kept, put back, drawn, randomised."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import IDS, N, cart_poles, of_one, played, snapshots, trajectory

from envfleet import NativeVectorEnv, SyncVectorEnv, choice, make_vec, uniform
from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same

# --- attributes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "attributes"),
    [
        ("CartPole-v1", {"gravity": 5.0, "masspole": 0.3, "length": 0.7, "force_mag": 8, "tau": 0.01}),
        ("CartPole-v1", {"kinematics_integrator": "semi-implicit"}),
        ("MountainCar-v0", {"force": 0.002, "gravity": 0.003, "max_speed": 0.05}),
        ("Pendulum-v1", {"m": 1.7, "l": 0.6, "g": 3, "dt": 0.03}),
        ("Acrobot-v1", {"book_or_nips": "nips", "LINK_MASS_2": 0.8, "torque_noise_max": 0.3}),
        ("Blackjack-v1", {"sab": False, "natural": True}),
    ],
)
@pytest.mark.parametrize("indices", [None, [1, 3]], ids=["all", "some"])
def test_parameters_are_set_as_gymnasiums_attributes_are(
    env_id: str, attributes: dict[str, Any], indices: list[int] | None
) -> None:
    with make_vec(env_id, N, "native") as ours, make_vec(env_id, N, "sync") as theirs:
        for envs in (ours, theirs):
            for name, value in attributes.items():
                envs.set_attr(name, value if indices is None else [value] * 2, indices)
        for name in attributes:
            assert ours.get_attr(name) == theirs.get_attr(name)
        assert_same(trajectory(ours), trajectory(theirs))


def test_every_environment_can_have_a_value_of_its_own() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    with cart_poles() as envs:
        envs.set_attr("gravity", values)
        assert envs.get_attr("gravity") == tuple(values)
        assert envs.get_attr("gravity", indices=[4, 0]) == (5.0, 1.0)
        assert envs.call("gravity", indices=2) == (3.0,)


@pytest.mark.parametrize(("name", "value"), [("gravity", "heavy"), ("gravity", None), ("_sutton_barto_reward", 1.0)])
def test_a_value_of_the_wrong_kind_is_refused_by_name(name: str, value: Any) -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        before = envs.get_attr(name)
        with pytest.raises(EnvRaisedError, match=f"{name} must be a"):
            envs.set_attr(name, value)
        assert envs.get_attr(name) == before
        envs.step(np.zeros(N, np.int64))


ASKED = ("spec", "observation_space", "action_space", "render_mode", "metadata")


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_what_libraries_ask_environments_for_is_answered(backend: str) -> None:
    """The answers are those of Gymnasium's environments, whatever runs them."""
    with make_vec("CartPole-v1", 2, backend, max_episode_steps=9, render_mode="rgb_array") as envs:
        envs.reset(seed=3)
        alone = gymnasium.make("CartPole-v1", max_episode_steps=9, render_mode="rgb_array")
        for name in ASKED:
            assert envs.get_attr(name) == (getattr(alone, name),) * 2, name
        for name, known in (
            ("gravity", True),
            ("state", True),
            ("spec", True),
            ("render", True),
            ("gravitation", False),
        ):
            assert envs.call("has_wrapper_attr", name) == (known,) * 2
        assert envs.call("get_wrapper_attr", "gravity", indices=1) == (9.8,)
        for env, one in enumerate(envs.get_attr("unwrapped")):
            assert isinstance(one, gymnasium.Env)
            assert one.unwrapped is one
            assert one.has_wrapper_attr("length")
            assert (one.gravity, one.spec.id, one.render_mode) == (9.8, "CartPole-v1", "rgb_array")
            assert (one.observation_space, one.action_space) == (alone.observation_space, alone.action_space)
            assert_same(np.array(one.state, np.float32), np.array(envs.get_attr("state")[env], np.float32))
            assert one.np_random.random() == envs.get_attr("np_random")[env].random() or backend == "sync"
            assert_same(one.render(), envs.render()[env])
        alone.close()


def test_a_spec_tells_what_an_environment_was_made_with() -> None:
    lengths = [{"sutton_barto_reward": False}, {"sutton_barto_reward": True}]
    with NativeVectorEnv("CartPole-v1", 2, env_kwargs={"max_episode_steps": 9}, varied=lengths) as envs:
        for spec, own in zip(envs.get_attr("spec"), lengths, strict=True):
            assert spec.max_episode_steps == 9
            assert spec.kwargs.items() >= own.items()


def test_a_view_only_shows() -> None:
    with make_vec("CartPole-v1", 2, "native") as envs:
        envs.reset(seed=3)
        view = envs.get_attr("unwrapped")[1]
        assert "CartPole" in str(view)
        before = view.state
        envs.step(np.zeros(2, np.int64))
        assert tuple(view.state) != tuple(before)
        with pytest.raises(AttributeError, match=r"envs.set_attr\('gravity', …\)"):
            view.gravity = 3.0
        for refused in (lambda: view.step(0), view.reset):
            with pytest.raises(TypeError, match=r"use envs\.(step|reset)\(\)"):
                refused()
        with pytest.raises(TypeError, match="get_state"):
            pickle.dumps(view)


def test_an_unknown_attribute_is_refused_and_the_known_ones_are_named() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        for call in (
            lambda: envs.get_attr("gravitation"),
            lambda: envs.set_attr("gravitation", 1.0),
            lambda: envs.call("gravity", 3),
        ):
            with pytest.raises(AttributeError, match="gravity, masscart"):
                call()
        with pytest.raises(AttributeError, match="cannot be set"):
            envs.set_attr("np_random_seed", 1)
        envs.step(np.zeros(N, np.int64))


def test_a_state_can_be_set_and_shows_at_once() -> None:
    with cart_poles(copy=False) as envs:
        observations, _ = envs.reset(seed=1)
        envs.set_attr("state", [[0.5, 0.0, -0.1, 0.25]], indices=[2])
        assert observations[2].tolist() == np.array([0.5, 0.0, -0.1, 0.25], np.float32).tolist()
        with pytest.raises(EnvRaisedError, match="state must be a sequence of 4 numbers"):
            envs.set_attr("state", [[0.5, 0.0]], indices=[2])
    with make_vec("Taxi-v4", 2, "native") as taxis:
        taxis.reset(seed=1)
        before = taxis.get_attr("s")
        with pytest.raises(EnvRaisedError, match="s must lie in 0 to 499"):
            taxis.set_attr("s", [500, 3])
        assert taxis.get_attr("s") == (before[0], 3)


@pytest.mark.parametrize("env_id", IDS)
def test_rendering_shows_what_gymnasium_shows(env_id: str) -> None:
    pytest.importorskip("pygame")
    kwargs = {"render_mode": "rgb_array"}
    with make_vec(env_id, 2, "native", **kwargs) as ours, make_vec(env_id, 2, "sync", **kwargs) as theirs:
        ours.action_space.seed(5)
        ours.reset(seed=5)
        theirs.reset(seed=5)
        for _ in range(3):
            actions = ours.action_space.sample()
            ours.step(actions)
            theirs.step(actions)
            for frame, expected in zip(ours.render(), theirs.render(), strict=True):
                assert frame.dtype == np.uint8
                assert np.array_equal(frame, expected)


@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4"])
def test_rendering_as_text_says_what_gymnasium_says(env_id: str) -> None:
    kwargs = {"render_mode": "ansi"}
    with make_vec(env_id, 3, "native", **kwargs) as ours, make_vec(env_id, 3, "sync", **kwargs) as theirs:
        ours.action_space.seed(5)
        for envs in (ours, theirs):
            envs.reset(seed=5)
        texts = set()
        for _ in range(12):
            actions = ours.action_space.sample()
            for envs in (ours, theirs):
                envs.step(actions)
            texts.update(ours.render())
            assert ours.render() == theirs.render()
        assert all(isinstance(text, str) for text in texts)
        assert len(texts) > 3  # the player moved


def test_rendering_without_a_mode_says_what_to_do() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvRaisedError, match="render_mode='rgb_array'"):
            envs.render()


# --- snapshots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken_after", [17, 30], ids=["within an episode", "at its end"])
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_a_snapshot_is_replayed_number_for_number(env_id: str, mode: AutoresetMode, taken_after: int) -> None:
    kwargs: Any = {"autoreset_mode": mode, "env_kwargs": {"max_episode_steps": 30}}
    with NativeVectorEnv(env_id, N, **kwargs) as envs, NativeVectorEnv(env_id, 2, **kwargs) as other:
        envs.action_space.seed(6)
        actions = [np.asarray(envs.action_space.sample()) for _ in range(80)]
        envs.reset(seed=6)
        other.reset(seed=99)
        played(envs, actions[:taken_after])
        kept = snapshots(envs)
        first = played(envs, actions[taken_after:])
        for env, state in enumerate(kept):
            envs.set_state(env, state)
        assert snapshots(envs) == kept
        assert_same(played(envs, actions[taken_after:]), first)
        other.set_state(1, kept[3])
        elsewhere = played(other, [batch[[0, 3]] for batch in actions[taken_after:]])
        assert_same(of_one(elsewhere, 1), of_one(first, 3))


def test_only_snapshots_of_the_same_kind_are_taken() -> None:
    with cart_poles() as envs, make_vec("Pendulum-v1", 1, "native") as pendulums:
        assert isinstance(pendulums, NativeVectorEnv)
        with pytest.raises(TypeError, match="needs a state of CartPole"):
            envs.set_state(0, pendulums.get_state(0))
        with pytest.raises(IndexError):
            envs.get_state(N)


# --- randomisation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "randomize"),
    [
        ("Pendulum-v1", {"g": uniform(5, 15)}),
        ("FrozenLake-v1", {"is_slippery": choice([True, False]), "success_rate": uniform(0.2, 0.9)}),
        ("CartPole-v1", {"sutton_barto_reward": choice([True, False]), "max_episode_steps": choice([3, 9, 20])}),
        ("Taxi-v4", {"fickle_passenger": choice([True, False]), "is_rainy": choice([True, False])}),
    ],
)
def test_randomised_parameters_are_those_of_the_other_backends(env_id: str, randomize: Any) -> None:
    arguments = {"randomize": randomize, "randomize_seed": 8}
    with make_vec(env_id, 12, "native", **arguments) as ours, make_vec(env_id, 12, "sync", **arguments) as theirs:
        assert type(theirs) is SyncVectorEnv
        assert ours.parameters == theirs.parameters
        assert_same(trajectory(ours), trajectory(theirs))
