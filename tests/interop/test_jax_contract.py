"""The contract on functional environments: whole trajectories, and what is allowed when.

The suite's own environments are Python objects that count their episodes, raise and hang: functional ones can do none
of that. So its oracle is asked about functional environments here, and its operations are done in any order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from functional_envs import CounterFunctional, CounterParams, NestedFunctional, Single
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

from envfleet import InvalidActionError, make_vec
from envfleet.device.env import JaxVectorEnv
from envfleet.randomize import ParameterTable
from envfleet.testing.compare import assert_reset, assert_step
from envfleet.testing.reference import ReferenceFleet
from envfleet.testing.trajectories import TrajectoriesContract, compare_trajectories

MODES = list(AutoresetMode)
N = 5


def counter(index: int, limit: int | None = None) -> gym.Env[Any, Any]:
    env = Single(CounterFunctional(), CounterParams(index, 2 + index))
    return env if limit is None else TimeLimit(env, limit)


def counters(num_envs: int = N, **kwargs: Any) -> JaxVectorEnv:
    """Environments that differ in two parameters."""
    index = np.arange(num_envs)
    return JaxVectorEnv(
        CounterFunctional, num_envs, varied=ParameterTable({"index": index, "length": index + 2}, num_envs), **kwargs
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize("copy", [True, False], ids=["copy", "live"])
def test_counters_equal_single_environments(copy: bool, limit: int | None, mode: AutoresetMode) -> None:
    reference = ReferenceFleet([partial(counter, i, limit) for i in range(N)], mode)
    with counters(autoreset_mode=mode, copy=copy, env_kwargs={"max_episode_steps": limit}) as envs:
        compare_trajectories(envs, reference, 25, seed=3)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_nested_spaces_equal_single_environments(mode: AutoresetMode) -> None:
    reference = ReferenceFleet([lambda: Single(NestedFunctional())] * 3, mode)
    with make_vec(NestedFunctional, 3, autoreset_mode=mode) as envs:
        assert type(envs) is JaxVectorEnv
        compare_trajectories(envs, reference, 15, seed=3)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_any_order_of_operations_equals_single_environments(mode: AutoresetMode) -> None:
    operate, rng = _Operations()._operate, np.random.default_rng(4)
    reference = ReferenceFleet([partial(counter, i) for i in range(N)], mode)
    with counters(autoreset_mode=mode) as envs:
        assert_reset(envs.reset(seed=1), reference.reset(range(1, 1 + N)), reference.observation_space)
        for name in rng.choice(["step", "step", "step", "reset", "seeded reset", "masked reset"], 60):
            operate(envs, reference, name, int(rng.integers(1, 2**N)))


class _Operations(TrajectoriesContract):
    """The operations only: the tests of the suite need Python environments."""

    __test__ = False
    num_envs = N


def test_an_episode_is_the_same_in_every_mode() -> None:
    seen = []
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        with counters(1, autoreset_mode=mode) as envs:
            rows = [envs.reset(seed=9)[0]] + [envs.step(np.zeros(1, int))[0] for _ in range(20)]
            seen.append([row[0].tolist() for row in rows if row[0, 1] == 0])
    assert seen[0] == seen[1][: len(seen[0])]
    assert len(seen[0]) > 3


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "actions", [np.zeros(N - 1, int), np.zeros((N, 1), int), np.zeros(N), None, np.array([0, 1, 10, 0, 0])], ids=repr
)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_wrong_actions_change_nothing(mode: AutoresetMode, actions: Any) -> None:
    reference = ReferenceFleet([partial(counter, i) for i in range(N)], mode)
    with counters(autoreset_mode=mode) as envs:
        assert_reset(envs.reset(seed=0), reference.reset(range(N)), reference.observation_space)
        with pytest.raises(InvalidActionError, match="Nothing was stepped"):
            envs.step(actions)
        assert_step(envs.step(np.ones(N, int)), reference.step(np.ones(N, int)), reference.observation_space)


def test_what_the_state_machine_refuses() -> None:
    envs = counters(autoreset_mode="Disabled")
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(np.zeros(N, int))
    envs.reset(seed=0)
    with pytest.raises(gym.error.NoAsyncCallError):
        envs.step_wait()
    envs.step_async(np.zeros(N, int))
    with pytest.raises(gym.error.AlreadyPendingCallError):
        envs.reset()
    envs.step_wait()
    while not (ended := envs._block.terminated).any():
        envs.step(np.zeros(N, int))
    with pytest.raises(gym.error.ResetNeeded, match=str(np.flatnonzero(ended)[0])):
        envs.step(np.zeros(N, int))
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        envs.reset()


def test_first_ready_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="none is ready before the others"):
        make_vec(CounterFunctional, 4, first_ready=2)
    with make_vec(CounterFunctional, 4) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match=r"Use step\(\) and reset\(\)"):
            envs.send(np.zeros(4, int))
        envs.step(np.zeros(4, int))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"wrappers": [gym.wrappers.TimeAwareObservation]}, TypeError, "no Python objects to wrap"),
        ({"backend": "sync"}, TypeError, "is functional: .* Use backend='jax'"),
        ({"lenght": 3}, TypeError, "has no parameter 'lenght'.*did you mean 'length'"),
        ({"vector_kwargs": {"arrays": "jaxx"}}, ValueError, "did you mean 'jax'"),
        ({"render_mode": "human"}, TypeError, "has 'rgb_array'"),
    ],
)
def test_what_cannot_be_had_is_said(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_vec(CounterFunctional, 2, **arguments)


class BadShape(CounterFunctional):
    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return super().observation(state, rng)[:3]


class Raises(CounterFunctional):
    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        raise ZeroDivisionError("an environment of mine")


def test_broken_environments_are_named_when_they_are_made() -> None:
    with pytest.raises(ValueError, match=r"expected the shape \(4,\).* got \(3,\)"):
        make_vec(BadShape, 2)
    with pytest.raises(ZeroDivisionError, match="traced by JAX"):
        make_vec(Raises, 2)


def test_reset_options_are_refused_by_name_and_change_nothing() -> None:
    with make_vec(CounterFunctional, 2) as envs:
        before = envs.reset(seed=0)[0]
        with pytest.raises(ValueError, match="Unknown reset option 'low'"):
            envs.reset(seed=1, options={"low": 3})
        assert envs.np_random_seed == (0, 1)
        np.testing.assert_array_equal(envs.reset(seed=0)[0], before)
