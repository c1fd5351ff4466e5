"""The contract on native environments: what test_backends.py asks of the others, asked of compiled ones."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import IDS, N, cart_poles, snapshots, trajectory

from envfleet import InvalidActionError, NativeVectorEnv, choice, make_vec
from envfleet.testing import RealEnvironmentsContract, assert_same
from envfleet.testing.envs import EnvFn


class TestNative(RealEnvironmentsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> NativeVectorEnv:
        (env_id,) = {fn.args[0] for fn in env_fns if isinstance(fn, partial)}
        return NativeVectorEnv(env_id, len(env_fns), **kwargs)


# --- what make_vec makes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_auto_takes_the_native_environment_and_says_so(env_id: str) -> None:
    with make_vec(env_id, 3) as envs:
        assert type(envs) is NativeVectorEnv
        assert envs.plan.startswith("native: ")
        with make_vec(envs.spec) as again:
            assert type(again) is NativeVectorEnv
            assert again.spec == envs.spec
            assert_same(trajectory(again, 5), trajectory(envs, 5))


UNSUPPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "wrappers around single environments": ("CartPole-v1", {"wrappers": [gym.wrappers.TimeAwareObservation]}),
    "the vector_kwargs argument 'observation_mode'": (
        "CartPole-v1",
        {"vector_kwargs": {"observation_mode": "different"}},
    ),
    "render_mode='human'": ("CartPole-v1", {"render_mode": "human"}),
    "render_mode='rgb_array_list'": ("CartPole-v1", {"render_mode": "rgb_array_list"}),
    "a random map": ("FrozenLake-v1", {"map_name": None}),
    "environments that differ in 'desc'": ("FrozenLake-v1", {"randomize": {"desc": choice([["SG"], ["SFG"]])}}),
    "success_rate=1, which is no float": ("FrozenLake-v1", {"success_rate": 1}),
    "rainy_probability=1, which is no float": ("Taxi-v4", {"rainy_probability": 1}),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_native_environments_cannot_do_is_refused_by_name(what: str) -> None:
    env_id, kwargs = UNSUPPORTED[what]
    with pytest.raises(TypeError, match=f"backend='native' does not support {what}"):
        make_vec(env_id, 2, "native", **kwargs)


@pytest.mark.parametrize("what", [name for name in UNSUPPORTED if "human" not in name and "differ in" not in name])
def test_and_auto_falls_back_and_the_plan_says_why(what: str) -> None:
    env_id, kwargs = UNSUPPORTED[what]
    with make_vec(env_id, 2, **kwargs) as envs:
        assert type(envs) is not NativeVectorEnv
        assert f"Not native, which does not support {what}" in envs.plan


def test_an_environment_that_is_not_compiled_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="does not support CarRacing-v3, which has not been written in C"):
        make_vec("CarRacing-v3", 2, "native")


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="the argument 'gravitation' of CartPole-v1"):
        make_vec("CartPole-v1", 2, "native", gravitation=3)


def test_another_class_under_the_same_id_is_not_replaced() -> None:
    gym.register("CartPoleOfMine-v1", entry_point=lambda: gym.make("CartPole-v1").unwrapped)
    try:
        with make_vec("CartPoleOfMine-v1", 2) as envs:
            assert type(envs) is not NativeVectorEnv
    finally:
        del gym.registry["CartPoleOfMine-v1"]


# --- what Gymnasium's make_vec makes ---------------------------------------------------------------------


def test_gymnasium_makes_native_fleets_too() -> None:
    envs = gym.make_vec("envfleet/FrozenLake-v1", 3, autoreset_mode="SameStep", is_slippery=False)
    assert type(envs) is NativeVectorEnv
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with make_vec("FrozenLake-v1", 3, "sync", {"autoreset_mode": "SameStep"}, is_slippery=False) as expected:
        assert_same(trajectory(envs), trajectory(expected))
    envs.close()


def test_a_program_without_an_import_names_the_module_in_the_id() -> None:
    program = """
import gymnasium

envs = gymnasium.make_vec("envfleet:envfleet/LunarLander-v3", num_envs=4, gravity=-5.0)
observations, _ = envs.reset(seed=7)
print(type(envs).__name__, observations.shape, envs.get_attr("gravity")[0])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stdout) == (0, "NativeVectorEnv (4, 8) -5.0\n"), ran.stderr


@pytest.mark.parametrize("env_id", [*IDS, "LunarLander-v3", "BipedalWalker-v3", "HalfCheetah-v5"])
def test_gymnasiums_fleet_is_that_of_make_vec(env_id: str) -> None:
    envs = gym.make_vec(f"envfleet/{env_id}", num_envs=4)
    with make_vec(env_id, 4, "native") as expected:
        assert_same(trajectory(envs, 20), trajectory(expected, 20))
    with gym.make_vec(envs.spec) as again:  # type: ignore[arg-type,attr-defined]
        assert_same(trajectory(again, 20), trajectory(envs, 20))
    envs.close()


def test_a_spec_that_was_saved_under_the_former_name_of_the_module_is_made() -> None:
    spec = copy.deepcopy(gym.spec("envfleet/CartPole-v1"))
    spec.vector_entry_point = "envfleet.native.fleets:CartPole-v1"
    with gym.make_vec(spec, num_envs=2, vectorization_mode="vector_entry_point") as envs:  # type: ignore[arg-type]
        assert type(envs) is NativeVectorEnv


def test_the_arguments_of_the_fleet_pass_through_gymnasium() -> None:
    envs: Any = gym.make_vec(
        "envfleet/CartPole-v1", 8, copy=False, threads=2, batch_size=3, autoreset_mode=AutoresetMode.DISABLED
    )
    observations, _ = envs.reset(seed=1)
    assert np.shares_memory(observations, envs.step(np.zeros(8, np.int64))[0])
    assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    envs.send(np.zeros(8, np.int64))
    assert len(envs.recv()[0]) == envs.batch_size == 3
    envs.close()
    with pytest.raises(ValueError, match="threads must be a positive integer or None, got 0"):
        gym.make_vec("envfleet/CartPole-v1", 8, threads=0)
    with pytest.raises(ValueError, match=r"first_ready. must be between 1 and .* 8, got 9"):
        gym.make_vec("envfleet/CartPole-v1", 8, batch_size=9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_workers": 2}, TypeError, "envfleet/CartPole-v1 does not support the argument 'num_workers'"),
        ({"observation_mode": "same"}, TypeError, "does not support the argument 'observation_mode'"),
        ({"render_mode": "human"}, TypeError, "does not support render_mode='human'"),
        ({"vector_kwargs": {"copy": False}}, gym.error.Error, "`vector_kwargs` is not empty"),
        ({"wrappers": [gym.wrappers.TimeAwareObservation]}, gym.error.Error, "with the wrappers argument"),
    ],
)
def test_what_gymnasium_cannot_pass_on_is_refused_by_name(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gym.make_vec("envfleet/CartPole-v1", 2, **arguments)


# --- seeds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, 7, 2**32 - 1, 2**32, 2**64 + 1, 10**40, [1, 2**70, 3, None, 0], np.int64(5), np.arange(5)], ids=repr
)
def test_any_seed_gives_gymnasiums_generator(seed: Any) -> None:
    with cart_poles() as ours, make_vec("CartPole-v1", N, "sync") as theirs:
        for envs in (ours, theirs):
            envs.reset(seed=11)
        assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
        assert ours.np_random_seed == theirs.np_random_seed
        for one, other in zip(ours.np_random, theirs.np_random, strict=True):
            assert one.bit_generator.state == other.bit_generator.state
            assert one.normal() == other.normal()


def test_half_a_number_drawn_is_kept_as_numpy_keeps_it() -> None:
    with make_vec("Blackjack-v1", N, "native") as ours, make_vec("Blackjack-v1", N, "sync") as theirs:
        for envs in (ours, theirs):
            envs.reset(seed=2)
        for one, other in zip(ours.np_random, theirs.np_random, strict=True):
            assert one.bit_generator.state == other.bit_generator.state


def test_unseeded_fleets_differ() -> None:
    with cart_poles() as one, cart_poles() as other:
        assert not np.array_equal(one.reset()[0], other.reset()[0])


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, [1, 2], [1, 2, 3, 4, -5]], ids=repr)
def test_a_wrong_seed_is_refused_and_changes_nothing(seed: Any) -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        before = snapshots(envs)
        with pytest.raises((TypeError, ValueError), match="seed"):
            envs.reset(seed=seed)
        assert snapshots(envs) == before
        envs.step(np.zeros(N, np.int64))


# --- options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {"low": -0.2, "high": 0.3}),
        ("CartPole-v1", [{"low": 0.01 * i} if i < 3 else None for i in range(N)]),
        ("MountainCar-v0", {"high": np.float32(-0.1)}),
        ("MountainCarContinuous-v0", {"low": -1}),
        ("Acrobot-v1", {"low": 0.09}),
        ("Pendulum-v1", {"x_init": 0.5, "y_init": 3}),
    ],
)
def test_reset_options_are_honoured_once(env_id: str, options: Any) -> None:
    with make_vec(env_id, N, "native") as ours, make_vec(env_id, N, "sync") as theirs:
        given = copy.deepcopy(options)
        assert_same(ours.reset(seed=5, options=given), theirs.reset(seed=5, options=options))
        assert given == options
        assert_same(ours.reset(), theirs.reset())


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("CartPole-v1", {"lowest": 1.0}, "unknown reset option 'lowest'; this environment knows: low, high"),
        ("FrozenLake-v1", {"low": 1.0}, "unknown reset option 'low'; this environment knows: none"),
        ("CartPole-v1", {"low": 0.3}, "low must not be above high"),
        ("CartPole-v1", {"low": "wide"}, "low must be a number"),
        ("Pendulum-v1", {"x_init": float("inf")}, "must be finite"),
        ("CartPole-v1", [None, {"high": None}, None, None, None], "high must be a number"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_changes_nothing(env_id: str, options: Any, message: str) -> None:
    with make_vec(env_id, N, "native") as envs:
        assert isinstance(envs, NativeVectorEnv)
        envs.reset(seed=1)
        before, seeds = snapshots(envs), envs.np_random_seed
        with pytest.raises(ValueError, match=message):
            envs.reset(seed=9, options=options)
        assert snapshots(envs) == before
        assert envs.np_random_seed == seeds
        envs.step(envs.action_space.sample())


def test_a_masked_reset_leaves_the_others_alone() -> None:
    mask = np.array([True, False, False, True, False])
    with cart_poles() as envs:
        envs.reset(seed=1)
        envs.step(np.ones(N, np.int64))
        before, states = envs.step(np.ones(N, np.int64))[0], snapshots(envs)
        after, _ = envs.reset(seed=40, options={"reset_mask": mask})
        assert np.array_equal(after[~mask], before[~mask])
        assert [state for state, reset in zip(snapshots(envs), mask, strict=True) if not reset] == [
            state for state, reset in zip(states, mask, strict=True) if not reset
        ]
        assert envs.np_random_seed == (40, 2, 3, 43, 5)


# --- actions ---------------------------------------------------------------------------------------------

WRONG_ACTIONS: dict[str, Any] = {
    "too few": np.zeros(N - 1, np.int64),
    "too many": np.zeros(N + 1, np.int64),
    "two axes": np.zeros((N, 1), np.int64),
    "floats": np.zeros(N),
    "none": None,
    "a number": 0,
    "out of range": np.array([0, 1, 2, 0, 0]),
    "negative": np.array([0, 1, 0, 0, -1]),
    "strings": ["0"] * N,
}


@pytest.mark.parametrize("name", WRONG_ACTIONS)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_wrong_actions_are_refused_and_change_nothing(name: str, mode: AutoresetMode) -> None:
    with cart_poles(autoreset_mode=mode) as envs:
        envs.reset(seed=1)
        before = snapshots(envs)
        with pytest.raises(InvalidActionError, match=r"Nothing was stepped"):
            envs.step(WRONG_ACTIONS[name])
        assert snapshots(envs) == before
        envs.step(np.zeros(N, np.int64))


def test_an_action_out_of_range_names_its_environment() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        with pytest.raises(InvalidActionError, match=r"action\[2\]: expected 0 to 1, got 7"):
            envs.step(np.array([0, 1, 7, 0, 9]))


def test_a_row_that_is_to_be_reset_ignores_its_action() -> None:
    with cart_poles(2, env_kwargs={"max_episode_steps": 1}) as envs:
        envs.reset(seed=1)
        assert envs.step(np.array([0, 1]))[3].all()
        _, rewards, terminated, truncated, _ = envs.step(np.array([-5, 99]))
        assert (rewards.tolist(), terminated.any(), truncated.any()) == ([0.0, 0.0], False, False)


FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "int32": lambda a: a.astype(np.int32),
    "uint8": lambda a: a.astype(np.uint8),
    "strided": lambda a: np.repeat(a, 2)[::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), np.int64),
    "swapped": lambda a: a.astype(">i8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_actions_may_come_in_any_equivalent_form(form: str) -> None:
    with cart_poles() as envs, cart_poles() as plain:
        envs.reset(seed=4)
        plain.reset(seed=4)
        for actions in np.random.default_rng(0).integers(0, 2, (30, N)):
            assert_same(envs.step(FORMS[form](actions)), plain.step(actions))


def test_continuous_actions_may_come_in_double_precision() -> None:
    with make_vec("Pendulum-v1", N, "native") as envs, make_vec("Pendulum-v1", N, "sync") as theirs:
        envs.reset(seed=4)
        theirs.reset(seed=4)
        actions = np.random.default_rng(0).uniform(-3, 3, (N, 1))
        assert_same(envs.step(actions), theirs.step(actions))
