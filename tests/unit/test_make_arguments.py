"""The arguments of make_vec: those that have two names, two places or a wrong spelling."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import TimeLimit

from envfleet import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, UnsupportedError, backends, make_vec, uniform
from envfleet._fleet_arguments import DIRECT, OF_MAKE_VEC
from envfleet.testing.envs import CounterEnv


class Own(CounterEnv):
    """Has arguments that are called like those of fleets."""

    def __init__(self, num_workers: int = 0, threads: int = 0, n_envs: int = 0) -> None:
        super().__init__()
        self.got = (num_workers, threads, n_envs)


class Anything(CounterEnv):
    """Takes whatever it is given."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.kwargs = kwargs


# --- autoreset_mode --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("spelt", [lambda m: m, lambda m: m.value, lambda m: m.name, lambda m: m.name.lower()])
def test_an_autoreset_mode_may_be_spelt_in_any_way_in_both_places(mode: AutoresetMode, spelt: Any) -> None:
    for arguments in ({"autoreset_mode": spelt(mode)}, {"vector_kwargs": {"autoreset_mode": spelt(mode)}}):
        with make_vec(CounterEnv, 2, "sync", **arguments) as envs:
            assert envs.metadata["autoreset_mode"] is mode
            again = gym.make_vec(envs.spec)  # Gymnasium reads the spec, which it would not in every spelling
            assert again.metadata["autoreset_mode"] is mode
            again.close()


@pytest.mark.parametrize("mode", ["sometimes", 3, None])
def test_a_mode_that_does_not_exist_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="autoreset_mode must be one of"):
        make_vec(CounterEnv, 2, "sync", vector_kwargs={"autoreset_mode": mode})


def test_two_spellings_of_one_mode_agree_and_two_modes_do_not() -> None:
    make_vec(CounterEnv, 2, "sync", {"autoreset_mode": "SameStep"}, autoreset_mode="SAME_STEP").close()
    with pytest.raises(TypeError, match="contradicts vector_kwargs, which say 'Disabled'"):
        make_vec(CounterEnv, 2, "sync", {"autoreset_mode": "Disabled"}, autoreset_mode="SAME_STEP")


# --- one word for one thing ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["first_ready", "batch_size"])
@pytest.mark.parametrize("backend", ["native", "sync", "process"])
def test_first_ready_has_an_older_name(backend: str, name: str) -> None:
    for arguments in ({name: 3}, {"vector_kwargs": {name: 3}}):
        with make_vec("CartPole-v1", 4, backend, **arguments) as envs:
            assert (envs.first_ready, envs.batch_size) == (3, 3)
            with make_vec(envs.spec) as again:
                assert again.first_ready == 3


@pytest.mark.parametrize("vector_env", [SyncVectorEnv, AsyncVectorEnv])
def test_constructors_take_both_names(vector_env: Any) -> None:
    vector_env([CounterEnv] * 3, first_ready=2, batch_size=2).close()
    with pytest.raises(TypeError, match="first_ready=2 and batch_size=1 contradict each other"):
        vector_env([CounterEnv] * 3, first_ready=2, batch_size=1)


def test_both_names_must_say_the_same() -> None:
    make_vec(CounterEnv, 4, "sync", first_ready=2, batch_size=2).close()
    for arguments in ({"first_ready": 2, "batch_size": 3}, {"first_ready": 2, "vector_kwargs": {"batch_size": 3}}):
        with pytest.raises(TypeError, match="first_ready=2 and batch_size=3 contradict each other"):
            make_vec(CounterEnv, 4, "sync", **arguments)
    with pytest.raises(TypeError, match="first_ready=2 contradicts vector_kwargs, which say 3"):
        make_vec(CounterEnv, 4, "sync", {"first_ready": 3}, first_ready=2)


# --- arguments of fleets, given directly -----------------------------------------------------------------


def test_the_most_used_arguments_of_fleets_are_arguments_of_make_vec() -> None:
    with make_vec(CounterEnv, 4, num_workers=2, on_failure="restart", step_timeout=10, copy=False) as envs:
        assert type(envs) is AsyncVectorEnv
        assert (envs.num_workers, envs.copy) == (2, False)
        assert envs.spec is not None
        wanted = {"num_workers": 2, "on_failure": "restart", "step_timeout": 10, "copy": False}
        assert envs.spec.kwargs["vector_kwargs"] == wanted


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_what_an_environment_takes_itself_is_the_environments(backend: str) -> None:
    with make_vec(Own, 2, backend, num_workers=5, threads=6, n_envs=7) as envs:
        assert envs.get_attr("got") == ((5, 6, 7),) * 2
    with make_vec(Own, 2, "process", {"num_workers": 1}, num_workers=5) as envs:
        assert (envs.num_workers, envs.get_attr("got")) == (1, ((5, 0, 0),) * 2)
    with make_vec(Anything, 2, backend, num_env=3, max_restarts=4) as envs:
        assert envs.get_attr("kwargs") == ({"num_env": 3, "max_restarts": 4},) * 2


def test_no_environment_of_gymnasium_has_such_an_argument() -> None:
    """So that they need not be imported to know."""
    ours = {*DIRECT, *OF_MAKE_VEC, *backends.options()}
    for entry_point in {spec.entry_point for spec in gym.registry.values()}:
        if str(entry_point).startswith("gymnasium.envs.") and "box2d" not in str(entry_point):
            try:
                constructor = load_env_creator(str(entry_point))
            except (gym.error.DependencyNotInstalled, ModuleNotFoundError):
                continue
            assert not ours & set(inspect.signature(constructor).parameters), entry_point


def test_the_direct_ones_are_those_of_the_signature() -> None:
    parameters = set(inspect.signature(make_vec).parameters)
    assert set(DIRECT) == parameters & set(backends.options())
    assert set(OF_MAKE_VEC) <= parameters


# --- wrong names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num_env", "num_envs"),
        ("n_envs", "num_envs"),
        ("numenvs", "num_envs"),
        ("backed", "backend"),
        ("on_failures", "on_failure"),
        ("steptimeout", "step_timeout"),
        ("workers", "num_workers"),
        ("vector_kwarg", "vector_kwargs"),
        ("wrapper", "wrappers"),
        ("randomise", "randomize"),
        ("autoreset", "autoreset_mode"),
    ],
)
@pytest.mark.parametrize("what", ["CartPole-v1", CounterEnv])
def test_a_misspelt_argument_is_told_what_was_meant(what: Any, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^Neither make_vec nor .* {name!r} \(did you mean {meant!r}\?\)\.$"):
        make_vec(what, **{name: 4})


def test_an_argument_of_vector_kwargs_is_told_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"'max_restarts'; write vector_kwargs={'max_restarts': 3}\.$"):
        make_vec("CartPole-v1", 2, max_restarts=3)
    with pytest.raises(TypeError, match=r"\(did you mean 'check_nan'\?\); write vector_kwargs={'check_nan': True}\.$"):
        make_vec(CounterEnv, 2, check_nans=True)


@pytest.mark.parametrize("backend", ["auto", "sync", "process", "native"])
def test_a_misspelt_key_of_vector_kwargs_is_told_what_was_meant(backend: str) -> None:
    with pytest.raises(TypeError, match=r"no argument 'autoreset_mod' \(did you mean 'autoreset_mode'\?\); it takes "):
        make_vec("CartPole-v1", 2, backend, {"autoreset_mod": "SameStep"})


def test_what_another_backend_takes_is_told_which() -> None:
    with pytest.raises(UnsupportedError, match=r"'sync' does not support .* 'num_workers'\. Use 'process' or 'ray'\."):
        make_vec(CounterEnv, 2, "sync", num_workers=2)
    with pytest.raises(UnsupportedError, match=r"does not support .* 'threads'\. Use 'native'\."):
        make_vec(CounterEnv, 1, vector_kwargs={"threads": 2})


def test_a_misspelt_backend_is_told_what_was_meant() -> None:
    with pytest.raises(ValueError, match=r"got 'proces' \(did you mean 'process'\?\)"):
        make_vec(CounterEnv, 2, backend="proces")  # type: ignore[call-overload]


# --- the right things in the wrong places ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((8,), {}, "is no environment: expected a registered id"),
        ((None,), {}, "is no environment: expected a registered id"),
        ((CounterEnv, "process"), {}, r"num_envs must be .* got 'process'\. Write .*backend='process'\)"),
        ((CounterEnv, "8"), {}, "num_envs must be a positive integer, got '8'"),
        ((CounterEnv, 2, {"copy": False}), {}, "backend must be one of .*, got {'copy': False}"),
        ((CounterEnv, 2, SyncVectorEnv), {}, "backend must be one of"),
        ((CounterEnv, 2, "sync", "copy"), {}, "vector_kwargs must be a dict .* got 'copy'"),
        ((CounterEnv, 2), {"wrappers": TimeLimit}, r"wrappers must be a list .* got TimeLimit: write \[TimeLimit\]"),
        ((CounterEnv, 2), {"wrappers": 3}, "wrappers must be a list of functions"),
        ((CounterEnv, 2), {"wrappers": ["TimeLimit"]}, r"wrappers\[0\] must be a function .* got 'TimeLimit'"),
        ((CounterEnv, 2), {"randomize": [uniform(0, 1)]}, "randomize must be a dict .* such as"),
        ((CounterEnv, 2), {"randomize": {"config": (0, 1)}}, "config"),
    ],
)
def test_a_wrong_thing_is_answered_with_a_sentence(arguments: Any, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_vec(*arguments, **keywords)
