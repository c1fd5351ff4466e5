"""What fleets on a device have besides: arrays that stay there, states, parameters, rollouts, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional_envs import CounterFunctional, NestedFunctional

from envfleet import choice, loguniform, make_vec, normal, uniform
from envfleet.device.env import JaxVectorEnv
from envfleet.testing import assert_same

N = 6


def actions_at(step: int, num_envs: int = N) -> Any:
    return (np.arange(num_envs) * 7 + step * 3) % 10


def stepped(envs: Any, steps: int = 12) -> list[Any]:
    return [envs.step(actions_at(step)) for step in range(steps)]


# --- arrays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("arrays", ["jax", "torch"])
def test_arrays_on_the_device_hold_the_numbers_of_numpy(arrays: str, mode: str) -> None:
    limits = {"length": 99} if mode == "Disabled" else {}
    with (
        make_vec(NestedFunctional, 3, autoreset_mode=mode, **limits) as plain,
        make_vec(NestedFunctional, 3, autoreset_mode=mode, vector_kwargs={"arrays": arrays}, **limits) as envs,
    ):
        kept = [envs.reset(seed=5)[0]]
        expected = [plain.reset(seed=5)[0]]
        for step in range(9):
            actions = np.full((3, 2), step / 9, np.float32)
            given = jnp.asarray(actions) if arrays == "jax" else __import__("torch").from_numpy(actions)
            observations, rewards, terminated, truncated, infos = envs.step(given)
            theirs = plain.step(actions)
            assert type(rewards).__module__.startswith("jax" if arrays == "jax" else "torch")
            for mine, other in zip((rewards, terminated, truncated), theirs[1:4], strict=True):
                np.testing.assert_array_equal(np.asarray(mine), other)
            if mode == "SameStep":
                assert np.asarray(infos["_final_obs"]).tolist() == theirs[2].tolist()
            kept.append(observations)
            expected.append(theirs[0])
        for mine, other in zip(kept, expected, strict=True):  # only now: nothing may have been written over
            for key in ("place", "step"):
                np.testing.assert_array_equal(np.asarray(mine[key]), other[key])


def test_observations_that_are_the_state_outlive_it() -> None:
    """The state's memory is given to the next step; what the caller has must not lie there."""
    with make_vec("phys2d/CartPole-v1", 64, vector_kwargs={"arrays": "jax"}) as envs:
        kept = [envs.reset(seed=0)[0]]
        copies = [np.array(kept[0])]
        for _ in range(20):
            kept.append(envs.step(np.ones(64, np.int64))[0])
            copies.append(np.array(kept[-1]))
        for array, expected in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(np.asarray(array), expected)


def test_wrong_actions_on_the_device_are_refused() -> None:
    with make_vec(CounterFunctional, N) as envs:
        envs.reset(seed=0)
        for wrong in (jnp.zeros(N - 1, jnp.int32), jnp.zeros(N), jnp.zeros((N, 1), jnp.int32)):
            with pytest.raises(ValueError, match="Nothing was stepped"):
                envs.step(wrong)
        envs.step(jnp.zeros(N, jnp.int32))


def test_copied_observations_are_the_callers() -> None:
    with make_vec(CounterFunctional, N) as envs:
        observations, _ = envs.reset(seed=0)
        observations[:] = 0
        after, rewards, *_ = envs.step(actions_at(0))
        after[:], rewards[:] = 0, 0
    with make_vec(CounterFunctional, N) as again:
        again.reset(seed=0)
        again.step(actions_at(0))


# --- rollouts ------------------------------------------------------------------------------------------------


def policy(params: Any, observations: Any, key: Any) -> Any:
    actions = (observations[:, 1] * params + jax.random.randint(key, (len(observations),), 0, 5)) % 10
    return actions, {"seen": observations[:, 3]}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_rollout_has_the_numbers_of_steps(mode: str) -> None:
    arguments: dict[str, Any] = {"autoreset_mode": mode, "max_episode_steps": 4}
    with make_vec(CounterFunctional, N, **arguments) as scanned, make_vec(CounterFunctional, N, **arguments) as single:
        assert isinstance(scanned, JaxVectorEnv)
        scanned.reset(seed=3)
        observations = single.reset(seed=3)[0]
        for number in range(2):  # the second goes on where the first stopped
            rollout = scanned.rollout(policy, 3, 10, seed=number)
            for step in range(10):
                key = jax.random.fold_in(jax.random.PRNGKey(number), step)
                actions, extras = policy(3, jnp.asarray(observations), key)
                np.testing.assert_array_equal(np.asarray(rollout.observations[step]), observations)
                np.testing.assert_array_equal(rollout.actions[step], actions)
                np.testing.assert_array_equal(rollout.extras["seen"][step], extras["seen"])
                observations, rewards, terminated, truncated, infos = single.step(np.asarray(actions))
                for mine, other in (
                    (rollout.rewards, rewards),
                    (rollout.terminated, terminated),
                    (rollout.truncated, truncated),
                ):
                    np.testing.assert_array_equal(mine[step], other)
                if mode == "SameStep":
                    for row in np.flatnonzero(terminated | truncated):
                        np.testing.assert_array_equal(rollout.final_observations[step, row], infos["final_obs"][row])
            np.testing.assert_array_equal(rollout.last_observations, observations)
        assert_same(scanned.step(actions_at(0)), single.step(actions_at(0)))


def test_a_rollout_without_autoreset_is_refused() -> None:
    with make_vec(CounterFunctional, N, autoreset_mode="Disabled") as envs:
        assert isinstance(envs, JaxVectorEnv)
        envs.reset()
        with pytest.raises(TypeError, match="make it with 'NextStep' or 'SameStep'"):
            envs.rollout(policy, 3, 10)


# --- parameters ----------------------------------------------------------------------------------------------


def test_parameters_are_drawn_once_as_on_other_backends() -> None:
    drawn = {"weight": uniform(1, 2), "length": choice([2, 5])}
    with make_vec(CounterFunctional, N, randomize=drawn, randomize_on="make", randomize_seed=4) as envs:
        table = envs.parameters
        assert table is not None
        envs.reset(seed=0)
        rewards = envs.step(actions_at(0))[1]
        np.testing.assert_allclose(rewards, table["weight"], rtol=1e-6)
        assert envs.get_attr("length") == tuple(table["length"])
        with make_vec(envs.spec) as again:
            assert again.parameters == table


def test_every_episode_draws_its_own_parameters() -> None:
    drawn = {"weight": uniform(1, 2), "length": choice([2, 5])}
    seen = []
    for mode in ("NextStep", "SameStep"):
        with make_vec(CounterFunctional, N, randomize=drawn, autoreset_mode=mode) as envs:
            envs.reset(seed=0)
            weights: list[set[float]] = [set() for _ in range(N)]
            for step in range(30):
                table = envs.parameters
                assert table is not None
                began = envs.step(actions_at(step))
                fresh = (began[1] != 0) & (np.round(began[1] / table["weight"]) == 1)
                for row in np.flatnonzero(fresh):
                    np.testing.assert_allclose(began[1][row], table["weight"][row], rtol=1e-6)
                    weights[row].add(float(table["weight"][row]))
            assert all(len(values) >= 4 for values in weights)
            assert all(1 <= value <= 2 for values in weights for value in values)
            seen.append(weights)
    assert all(len(one & other) >= 4 for one, other in zip(*seen, strict=True))  # the same episodes in both modes


def test_all_distributions_can_be_drawn_on_the_device() -> None:
    for distribution, least, most, middle in (
        (loguniform(0.5, 4), 0.5, 4, np.sqrt(2)),
        (normal(3, 1, clip=(2, 4)), 2, 4, 3),
        (uniform(-1, 1), -1, 1, 0),
    ):
        with make_vec(CounterFunctional, 512, randomize={"weight": distribution}) as envs:
            envs.reset(seed=0)
            table = envs.parameters
            assert table is not None
            assert least <= table["weight"].min() < least + 0.1
            assert most - 0.1 < table["weight"].max() <= most
            assert abs(np.median(table["weight"]) - middle) < 0.2


def test_what_cannot_be_drawn_on_a_device_is_said() -> None:
    with pytest.raises(TypeError, match="all options must be numbers"):
        make_vec(CounterFunctional, 2, randomize={"weight": choice(["a", "b"])})
    with pytest.raises(TypeError, match="has no parameter 'gravity'"):
        make_vec(CounterFunctional, 2, randomize={"gravity": uniform(1, 2)})


@pytest.mark.parametrize("given", [{}, {"weight": 1.0}], ids=["constant", "given"])
def test_parameters_can_be_set(given: dict[str, float]) -> None:
    with make_vec(CounterFunctional, 3, **given) as envs:
        envs.reset(seed=0)
        assert envs.get_attr("weight") == (given.get("weight", 0.125),) * 3
        envs.set_attr("weight", [1.0, 2.0, 3.0])
        assert envs.step(np.zeros(3, int))[1].tolist() == [1, 2, 3]
        with pytest.raises(AttributeError, match="it has index, length, weight"):
            envs.set_attr("colour", 3)
        with pytest.raises(AttributeError, match="functional"):
            envs.call("jump", 3)


# --- states and copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_state_put_back_gives_the_same_trajectory(mode: str) -> None:
    with make_vec(CounterFunctional, N, autoreset_mode=mode, randomize={"weight": uniform(1, 2)}) as envs:
        assert isinstance(envs, JaxVectorEnv)
        envs.reset(seed=3)
        stepped(envs, 5)
        states = pickle.loads(pickle.dumps([envs.get_state(i) for i in range(N)]))
        expected = stepped(envs)
        for i, state in enumerate(states):
            envs.set_state(i, state)
        assert_same(stepped(envs), expected)
        with pytest.raises(TypeError, match="needs a state"):
            envs.set_state(0, 3)  # type: ignore[arg-type]


def test_one_state_moves_only_its_environment() -> None:
    with make_vec(CounterFunctional, N) as envs:
        assert isinstance(envs, JaxVectorEnv)
        first = envs.reset(seed=3)[0]
        state = envs.get_state(2)
        after = envs.step(actions_at(0))[0]
        observations = envs.set_state(2, state)
        assert_same(observations[2], first[2])
        assert_same(np.delete(observations, 2, 0), np.delete(after, 2, 0))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))], ids=["copy", "pickle"])
def test_a_copy_is_a_fleet_of_its_own(way: Any) -> None:
    with make_vec(CounterFunctional, N, length=4) as envs:
        envs.reset(seed=1)
        with way(envs) as other, make_vec(envs.spec) as third:
            assert other.spec == envs.spec
            other.reset(seed=2), envs.reset(seed=2), third.reset(seed=2)
            expected = stepped(envs)
            assert_same(stepped(other), expected)
            assert_same(stepped(third), expected)


def test_seeds() -> None:
    with make_vec(CounterFunctional, 3) as envs, make_vec(CounterFunctional, 3) as other:
        rows = envs.reset(seed=7)[0]
        np.testing.assert_array_equal(rows[1:, 3], other.reset(seed=8)[0][:2, 3])
        np.testing.assert_array_equal(envs.reset(seed=[9, 7, 2**70])[0][1, 3], rows[0, 3])
        assert not np.array_equal(envs.reset(seed=2**40)[0][:, 3], envs.reset(seed=0)[0][:, 3])
        assert not np.array_equal(envs.reset()[0][:, 3], envs.reset()[0][:, 3])
        assert not np.array_equal(make_vec(CounterFunctional, 3).reset()[0], make_vec(CounterFunctional, 3).reset()[0])


def test_an_interrupted_step_asks_for_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_vec(CounterFunctional, N) as envs:
        assert isinstance(envs, JaxVectorEnv)
        envs.reset(seed=0)
        envs.step(actions_at(0))
        step = envs._batch.kernels.step

        def interrupted(*args: Any) -> Any:
            step(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(envs._batch.kernels, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            envs.step(actions_at(1))
        monkeypatch.undo()
        with pytest.raises(Exception, match="reset"):
            envs.step(actions_at(1))
        envs.reset(seed=0)
        with make_vec(CounterFunctional, N) as fresh:
            fresh.reset(seed=0)
            assert_same(stepped(envs), stepped(fresh))


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU: not yet run on one")
@pytest.mark.parametrize("arrays", ["numpy", "jax", "torch"])
def test_a_fleet_on_a_gpu_has_the_numbers_of_the_cpu(arrays: str) -> None:
    with (
        make_vec(CounterFunctional, N, vector_kwargs={"device": "gpu", "arrays": arrays}) as there,
        make_vec(CounterFunctional, N, vector_kwargs={"device": "cpu"}) as here,
    ):
        there.reset(seed=0), here.reset(seed=0)
        for mine, other in zip(stepped(there), stepped(here), strict=True):
            for one, expected in zip(mine[:4], other[:4], strict=True):
                np.testing.assert_allclose(np.asarray(one if arrays != "torch" else one.cpu()), expected, rtol=1e-6)
