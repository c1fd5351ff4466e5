"""The table of backends: everybody reads it, and a line can be added from outside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.wrappers import TransformReward

import envfleet
from envfleet import NativeVectorEnv, SyncVectorEnv, UnsupportedError, backends, make_vec
from envfleet.backends import Backend, FleetRequest, from_functions
from envfleet.cli import main
from envfleet.errors import EnvRaisedError
from envfleet.testing.envs import CounterEnv
from envfleet.train.config import A2CConfig
from envfleet.tuning.setups import Setup
from envfleet.vector import FleetVectorEnv

ROOT = Path(__file__).parents[2]


@pytest.fixture
def own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds is gone after it."""
    monkeypatch.setattr(backends, "_table", dict(backends._table))


def backwards(env_fns: Sequence[Any], **vector_kwargs: Any) -> FleetVectorEnv:
    """A toy: the environments of SyncVectorEnv, the last one first."""
    envs = SyncVectorEnv(list(reversed(env_fns)), **vector_kwargs)
    envs.plan = "backwards: the last environment first."
    return envs


BACKWARDS = Backend("backwards", from_functions(backwards), "this thread, the last first", gymnasium_name="sdrawkcab")


# --- a backend from outside ------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_table")
def test_a_registered_backend_is_used_by_make_vec_and_by_its_spec() -> None:
    backends.register(BACKWARDS)
    with make_vec("CartPole-v1", 4, "backwards", {"copy": False}, max_episode_steps=7) as envs:
        assert envs.plan == "backwards: the last environment first."
        assert (envs.num_envs, envs.copy, envs.get_attr("_max_episode_steps")) == (4, False, (7,) * 4)
        assert envs.spec is not None
        assert envs.spec.kwargs["vectorization_mode"] == "sdrawkcab"
        with make_vec(envs.spec) as again:
            assert (again.plan, again.copy, again.spec) == (envs.plan, False, envs.spec)
    randomize = {"max_episode_steps": envfleet.choice([10, 20])}
    with make_vec("CartPole-v1", 6, "sdrawkcab", randomize=randomize, randomize_on="make") as envs:
        assert envs.parameters is not None
        drawn = envs.parameters["max_episode_steps"].tolist()
        assert envs.get_attr("_max_episode_steps") == tuple(reversed(drawn))


@pytest.mark.usefixtures("own_table")
def test_a_registered_backend_is_a_setting_of_training() -> None:
    with pytest.raises(ValueError, match="backend must be auto, native, sync, process, ray or jax, got 'backwards'"):
        A2CConfig("CartPole-v1", backend="backwards")
    backends.register(BACKWARDS)
    assert A2CConfig("CartPole-v1", backend="backwards").backend == "backwards"
    with pytest.raises(
        ValueError, match="backend must be auto, native, sync, process, ray, jax or backwards, got 'thread'"
    ):
        A2CConfig("CartPole-v1", backend="thread")


@pytest.mark.usefixtures("own_table")
def test_a_registered_backend_is_listed_where_names_are_refused() -> None:
    backends.register(BACKWARDS)
    with pytest.raises(
        ValueError, match="'ray', 'jax', 'backwards', 'sdrawkcab', 'vector_entry_point', got 'forwards'"
    ):
        make_vec(CounterEnv, 2, "forwards")
    assert backends.described().endswith('or "backwards" (this thread, the last first)')


@pytest.mark.usefixtures("own_table")
@pytest.mark.parametrize("taken", ["auto", "sync", "async", "vector_entry_point"])
def test_a_name_that_is_taken_is_refused(taken: str) -> None:
    for backend in Backend(taken, BACKWARDS.make, "nowhere"), Backend("new", BACKWARDS.make, "nowhere", taken):
        with pytest.raises(ValueError, match=f"There is a backend '{taken}' already"):
            backends.register(backend)
    assert "new" not in backends.names()


@pytest.mark.usefixtures("own_table")
def test_a_registered_backend_may_be_the_one_that_auto_takes() -> None:
    suits = {"suits": lambda spec: spec.id == "Pendulum-v1", "decided_by": frozenset(("slowly",))}
    backends.register(Backend("backwards", BACKWARDS.make, "this thread", **suits))  # type: ignore[arg-type]
    assert [backend.name for backend in backends.suitable(gym.spec("Pendulum-v1"))] == ["native", "backwards"]
    with make_vec("Pendulum-v1", 2, wrappers=[lambda env: env]) as envs:
        assert envs.plan == "backwards: the last environment first."
    with pytest.raises(TypeError, match="slowly"):  # it is asked, and does not know it either
        make_vec(CounterEnv, 2, vector_kwargs={"slowly": True})


@pytest.mark.usefixtures("own_table")
def test_a_backend_says_what_it_does_not_support() -> None:
    def make(request: FleetRequest) -> FleetVectorEnv:
        raise UnsupportedError(f"{request.num_envs} environments")

    backends.register(Backend("few", make, "nowhere"))
    with pytest.raises(UnsupportedError, match=r"backend='few' does not support 3 environments\. Use 'sync'"):
        make_vec(CounterEnv, 3, "few")


class UnsupportingEnv(CounterEnv):
    def __init__(self) -> None:
        raise UnsupportedError("anything")


def test_what_an_environment_does_not_support_is_its_own_error() -> None:
    with pytest.raises(EnvRaisedError, match=r"^Environment 0 .* raised UnsupportedError in .*: anything") as caught:
        make_vec(UnsupportingEnv, 2, "sync")
    assert isinstance(caught.value, UnsupportedError)
    assert caught.value.method == "make"


# --- who reads the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_the_command_line_offers_every_backend_and_says_what_it_is(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert "{auto,native,sync,process,ray,jax}" in text
    assert '"ray" (actors on several machines) or "jax" (one compiled step on a device)' in text


@pytest.mark.usefixtures("own_table")
@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_the_command_line_offers_what_was_registered(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert backends.register(BACKWARDS) == "backwards"
    assert main([command, "--help"]) == 0
    assert "{auto,native,sync,process,ray,jax,backwards}" in capsys.readouterr().out


def test_training_and_make_vec_draw_parameters_at_the_same_time() -> None:
    assert A2CConfig("CartPole-v1").randomize_on == inspect.signature(make_vec).parameters["randomize_on"].default


def test_the_readme_lists_every_backend() -> None:
    rows = re.findall(r'^\| `"(\w+)"` \|', (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(backends.names()) - {"auto"} <= set(rows)


def test_tune_tries_what_suits_the_environment() -> None:
    found = envfleet.tune("CartPole-v1", 2, seconds=6, first_ready=False)
    assert Setup(2, "native") in [candidate.setup for candidate in found.candidates]


# --- what is broken is told ------------------------------------------------------------------------------


@pytest.fixture
def broken_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled environments cannot be made, though nothing was asked that they do not support."""

    def make(*args: Any) -> None:
        raise RuntimeError("the pool is out of order.")

    monkeypatch.setattr("envfleet._native.make", make)


@pytest.mark.usefixtures("broken_pool")
def test_auto_says_in_the_plan_that_native_environments_are_broken() -> None:
    with make_vec("CartPole-v1", 1) as envs:
        assert type(envs) is SyncVectorEnv
        assert envs.plan == (
            "sync: with one environment there is nothing to run side by side. "
            "Not native, which failed: RuntimeError: the pool is out of order."
        )


@pytest.mark.usefixtures("broken_pool")
def test_who_asks_for_native_environments_gets_what_is_broken_about_them() -> None:
    with pytest.raises(RuntimeError, match="the pool is out of order") as caught:
        make_vec("CartPole-v1", 2, "native")
    assert type(caught.value) is RuntimeError


def test_what_is_not_supported_is_no_failure() -> None:
    with make_vec("CartPole-v1", 1, wrappers=[lambda env: TransformReward(env, abs)]) as envs:
        assert envs.plan.endswith("Not native, which does not support wrappers around single environments.")
    with make_vec("CartPole-v1", 1) as envs:
        assert type(envs) is NativeVectorEnv


@pytest.mark.parametrize(
    ("env_id", "arguments", "text"),
    [("FrozenLake-v1", {"map_name": "5x5"}, "5x5"), ("Pendulum-v1", {"gravitation": 3}, "gravitation")],
)
def test_arguments_that_the_environment_refuses_are_the_environments_error(
    env_id: str, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(EnvRaisedError, match=text) as caught:
        make_vec(env_id, 2, **arguments)
    assert caught.value.method == "make"
