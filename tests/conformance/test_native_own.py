"""Environments of one's own on the native pool: from C, from Python, and as ordinary environments the same."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from native_fleets import N, snapshots, trajectory
from own_environments import COMPILED, SOURCES, build

from envfleet import InvalidActionError, NativeVectorEnv, choice, make_vec, native, uniform
from envfleet.errors import EnvRaisedError, ResetNeeded
from envfleet.native.own.environment import OwnEnvironment
from envfleet.testing import ReferenceFleet, assert_same
from envfleet.testing.trajectories import compare_trajectories

MODES = list(AutoresetMode)
FORMS = [*(f"compiled {name}" for name in COMPILED), *(f"C {name}" for name in SOURCES)]
BOTH = [form for form in FORMS if form.split()[1] in SOURCES]
OFF_THE_TABLE = np.array([[0, 1], [1, 0], [1, 1], [2, 3], [2, 3]])


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OwnEnvironment]:
    folder = tmp_path_factory.mktemp("libraries")
    return {name: native.load(build(source, folder / f"{name}.so")) for name, source in SOURCES.items()}


@pytest.fixture
def own(request: pytest.FixtureRequest) -> OwnEnvironment:
    """The environment that the test's parameter names; numba's ones are skipped where there is no numba."""
    form, name = request.param.split()
    if form == "C":
        return request.getfixturevalue("libraries")[name]  # type: ignore[no-any-return]
    pytest.importorskip("numba")
    return COMPILED[name]  # type: ignore[no-any-return]


every_form = pytest.mark.parametrize("own", FORMS, indirect=True)
dice = pytest.mark.parametrize("own", ["compiled Dice", "C Dice"], indirect=True)


def fleet(own: OwnEnvironment, num_envs: int = N, backend: str = "native", **kwargs: Any) -> NativeVectorEnv:
    envs = make_vec(own, num_envs, backend, kwargs)
    assert isinstance(envs, NativeVectorEnv)
    return envs


# --- the same results, whoever runs it -------------------------------------------------------------------


@every_form
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_trajectories_are_those_of_the_ordinary_environment(own: OwnEnvironment, mode: AutoresetMode) -> None:
    fns = [partial(gym.make, own.spec, max_episode_steps=12) for _ in range(N)]
    reference = ReferenceFleet(fns, mode)
    if own.description.name == "Dice":
        reference.action_space = gym.spaces.MultiDiscrete([3, 3])  # no dice fall off the table
    with make_vec(own, N, "native", {"autoreset_mode": mode}, max_episode_steps=12) as envs:
        compare_trajectories(envs, reference, 150, seed=7)


@pytest.mark.parametrize("name", SOURCES)
def test_c_and_python_give_the_same_bits(name: str, libraries: dict[str, OwnEnvironment]) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(5)
    space = COMPILED[name].description.action_space
    changes = rng.integers(0, 8 if name == "Pond" else 3, (8, N, *space.shape))
    actions = np.repeat(changes, 60, axis=0)  # a duckling that keeps to a direction gets ashore
    told = []
    for environment, backend in ((libraries[name], "native"), (COMPILED[name], "native"), (COMPILED[name], "sync")):
        with make_vec(environment, N, backend, {"autoreset_mode": "SameStep"}) as envs:
            told.append([envs.reset(seed=3), *(envs.step(batch) for batch in actions)])
    ended = sum(int((step[2] | step[3]).sum()) for step in told[0][1:])
    assert ended > 5
    assert_same(told[1], told[0])
    assert_same(told[2], told[0])


@every_form
def test_threads_change_nothing(own: OwnEnvironment) -> None:
    actions = [np.zeros((33, *own.description.action_space.shape), own.description.action_space.dtype)] * 60  # type: ignore[misc]
    with fleet(own, 33, threads=3) as envs, fleet(own, 33, threads=1) as alone:
        assert_same(envs.reset(seed=1), alone.reset(seed=1))
        for batch in actions:
            assert_same(envs.step(batch), alone.step(batch))


@every_form
def test_first_ready_gives_every_environment_its_own_trajectory(own: OwnEnvironment) -> None:
    action = np.zeros(own.description.action_space.shape, own.description.action_space.dtype)
    with fleet(own) as whole, fleet(own, batch_size=2) as envs:
        expected = [whole.reset(seed=4)[0], *(whole.step(np.stack([action] * N))[0] for _ in range(20))]
        envs.async_reset(seed=4)
        told = [0] * N
        for _ in range(40):
            observations, *_, infos = envs.recv()
            for env, observation in zip(infos["env_id"].tolist(), observations, strict=True):
                assert_same(observation, expected[told[env]][env])
                told[env] += 1
            envs.send(np.stack([action] * len(infos["env_id"])), infos["env_id"])
    assert min(told) > 10


def test_compiled_it_takes_a_small_part_of_the_time() -> None:
    """The docs say how small, as measured on a quiet machine; of processor time on one thread, this holds anywhere."""
    pytest.importorskip("numba")
    pond = COMPILED["Pond"]
    with make_vec(pond, 1024, "native", {"threads": 1}) as envs:
        compiled = _seconds_a_step(envs, 100)
    ordinary = gym.vector.SyncVectorEnv([pond] * 64)
    assert _seconds_a_step(ordinary, 20) > 30 * compiled
    ordinary.close()


def _seconds_a_step(envs: gym.vector.VectorEnv[Any, Any, Any], steps: int) -> float:
    """This thread's processor time a step of one environment: the least of three attempts."""
    envs.reset(seed=1)
    actions = np.zeros(envs.num_envs, np.int64)
    envs.step(actions)
    attempts = []
    for _ in range(3):
        begin = time.thread_time()
        for _ in range(steps):
            envs.step(actions)
        attempts.append((time.thread_time() - begin) / (steps * envs.num_envs))
    return min(attempts)


def test_auto_takes_the_pool_and_the_spec_makes_it_again(libraries: dict[str, OwnEnvironment]) -> None:
    with make_vec(libraries["Pond"], 3, fox_speed=2.0) as envs:
        assert type(envs) is NativeVectorEnv
        assert envs.plan == "native: Pond is compiled."
        with make_vec(envs.spec) as again:
            assert again.get_attr("fox_speed") == (2.0,) * 3
            assert_same(trajectory(again), trajectory(envs))


def test_it_can_be_registered_under_an_id(libraries: dict[str, OwnEnvironment]) -> None:
    gym.register("PondOfMine-v0", entry_point=libraries["Pond"], max_episode_steps=9)  # type: ignore[arg-type]
    try:
        with make_vec("PondOfMine-v0", 2) as envs:
            assert type(envs) is NativeVectorEnv
            assert envs.get_attr("_max_episode_steps") == (9, 9)
    finally:
        del gym.registry["PondOfMine-v0"]


@every_form
def test_worker_processes_run_it_too(own: OwnEnvironment) -> None:
    with make_vec(own, 2, "process") as envs, make_vec(own, 2, "sync") as alone:
        assert_same(envs.reset(seed=2), alone.reset(seed=2))


# --- parameters and state --------------------------------------------------------------------------------


@every_form
def test_parameters_differ_between_environments_as_on_other_backends(own: OwnEnvironment) -> None:
    name = {"Pond": "fox_speed", "Dice": "bonus", "Drift": "pull"}[own.description.name]
    arguments: Any = {"randomize": {name: uniform(0.1, 0.9)}, "randomize_seed": 8}
    action = np.zeros((N, *own.description.action_space.shape), own.description.action_space.dtype)  # type: ignore[misc]
    with make_vec(own, N, "native", **arguments) as envs, make_vec(own, N, "sync", **arguments) as plain:
        assert len(set(envs.get_attr(name))) == N
        for each in (envs, plain):
            each.set_attr(name, [0.5], indices=[2])
        assert envs.get_attr(name) == plain.get_attr(name)
        assert_same(envs.reset(seed=1), plain.reset(seed=1))
        for _ in range(50):
            assert_same(envs.step(action), plain.step(action))


@dice
def test_parameters_keep_their_types(own: OwnEnvironment) -> None:
    with make_vec(own, 2, "native", loaded=True, sides=np.int64(4), bonus=1) as envs:
        assert envs.get_attr("loaded") == (True, True)
        assert envs.get_attr("sides") == (4, 4)
        assert [type(value) for value in envs.get_attr("bonus")] == [float, float]
        with pytest.raises(EnvRaisedError, match="sides must be an integer"):
            envs.set_attr("sides", 2.5)
        with pytest.raises(AttributeError, match="it has sides, loaded, bonus"):
            envs.set_attr("size", 3)
        for hidden in ("_environment", "_state_words"):
            with pytest.raises((AttributeError, ValueError)):
                envs.set_attr(hidden, 0)


@dice
@pytest.mark.parametrize(("name", "value", "expected"), [("sides", 2.5, "an integer"), ("loaded", 1, "a bool")])
@pytest.mark.parametrize("backend", ["auto", "native", "sync"])
def test_wrong_parameters_are_refused(own: OwnEnvironment, backend: str, name: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be {expected}, got {value}"):
        make_vec(own, 2, backend, **{name: value})


@dice
def test_an_unknown_parameter_is_refused_by_name(own: OwnEnvironment) -> None:
    with pytest.raises(TypeError, match="the argument 'size' of own/Dice-v0"):
        make_vec(own, 2, "native", size=3)
    with pytest.raises(TypeError, match=r"Dice has no parameter 'size'; it has: sides, loaded, bonus\."):
        make_vec(own, 2, "sync", size=3)


@every_form
def test_a_snapshot_is_replayed_number_for_number(own: OwnEnvironment) -> None:
    action = np.zeros((N, *own.description.action_space.shape), own.description.action_space.dtype)  # type: ignore[misc]
    with fleet(own) as envs, fleet(own, 2) as other:
        envs.reset(seed=6)
        other.reset(seed=99)
        seen = [envs.step(action) for _ in range(10)][-1][0]
        kept = envs.get_state(3)
        first = [envs.step(action) for _ in range(60)]
        assert_same(envs.set_state(3, kept)[3], seen[3])
        assert envs.get_state(3) == kept
        other.set_state(1, kept)
        for expected in first:
            again, elsewhere = envs.step(action), other.step(action[:2])
            for one, two, three in zip(expected[:4], again[:4], elsewhere[:4], strict=True):
                assert_same(two[3], one[3])
                assert_same(three[1], one[3])


def test_a_snapshot_of_another_environment_is_refused(libraries: dict[str, OwnEnvironment]) -> None:
    with (
        fleet(libraries["Pond"], 1) as ponds,
        fleet(libraries["Dice"], 1) as tables,
        pytest.raises(TypeError, match="needs a state of Pond"),
    ):
        ponds.set_state(0, tables.get_state(0))


# --- what goes wrong -------------------------------------------------------------------------------------


@dice
@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_names_the_environment_and_a_reset_heals(own: OwnEnvironment, threads: int) -> None:
    expected = "the dice fell off the table" if "Library" in repr(own) else r"step\(\) of Dice raised an exception"
    with fleet(own, threads=threads) as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvRaisedError, match=expected) as caught:
            envs.step(OFF_THE_TABLE)
        assert caught.value.env_indices == (3,)
        with pytest.raises(ResetNeeded, match="Environment 3 failed"):
            envs.step(OFF_THE_TABLE)
        envs.reset(seed=1)
        envs.step(OFF_THE_TABLE * 0)


@dice
def test_run_by_python_an_error_says_everything(own: OwnEnvironment) -> None:
    with make_vec(own, N, "sync") as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvRaisedError, match="the dice fell off the table") as caught:
            envs.step(OFF_THE_TABLE)
        assert caught.value.env_indices == (3,)


@dice
@pytest.mark.parametrize("wrong", [[3, 0], [0, 4], [-1, 0]], ids=repr)
def test_actions_out_of_range_are_refused_and_change_nothing(own: OwnEnvironment, wrong: list[int]) -> None:
    actions = np.zeros((N, 2), np.int64)
    actions[2] = wrong
    with fleet(own) as envs:
        envs.reset(seed=1)
        before = snapshots(envs)
        with pytest.raises(InvalidActionError, match=r"action\[2\]: expected \[0 0\] to \[2 3\], got"):
            envs.step(actions)
        assert snapshots(envs) == before
        envs.step(actions * 0)


@every_form
def test_reset_options_are_refused(own: OwnEnvironment) -> None:
    for backend in ("native", "sync"):
        with make_vec(own, 2, backend) as envs, pytest.raises(ValueError, match="unknown reset option 'low'"):
            envs.reset(options={"low": 1})


def test_a_library_cannot_draw(libraries: dict[str, OwnEnvironment]) -> None:
    with pytest.raises(ValueError, match=r"knows the render modes \[\], got 'rgb_array'"):
        make_vec(libraries["Pond"], 2, "sync", render_mode="rgb_array")


def test_pictures_show_the_state_of_the_native_environment() -> None:
    pytest.importorskip("numba")
    drift, action = COMPILED["Drift"], np.full((3, 2, 2), 0.1, np.float32)
    kwargs: Any = {"render_mode": "rgb_array"}
    with make_vec(drift, 3, "native", **kwargs) as envs, make_vec(drift, 3, "sync", **kwargs) as plain:
        envs.reset(seed=1)
        plain.reset(seed=1)
        for _ in range(4):
            envs.step(action)
            plain.step(action)
            assert_same(envs.render(), plain.render())
        assert len({frame.max() for frame in envs.render()}) > 1


@dice
def test_every_episode_can_have_parameters_of_its_own(own: OwnEnvironment) -> None:
    kwargs: dict[str, Any] = {
        "randomize": {"bonus": uniform(0, 1), "sides": choice([4, 6, 9])},
        "randomize_on": "reset",
    }
    harmless = np.ones((N, 2), np.int64)
    with make_vec(own, N, "native", **kwargs) as ours, make_vec(own, N, "sync", **kwargs) as theirs:
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        seen = set()
        for _ in range(60):
            assert_same(ours.step(harmless), theirs.step(harmless))
            assert ours.parameters == theirs.parameters
            seen.update(ours.parameters["bonus"].tolist())
        assert len(seen) > 2 * N


def test_arithmetic_raises_nothing_and_a_raise_does() -> None:
    pytest.importorskip("numba")

    @native.compile(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (4,), np.float64),
        action_space=gym.spaces.Discrete(2),
        state=[("zero", int), ("seen", float, 4)],
    )
    class Divisions:
        def reset(self: Any, random: Any) -> None:
            self.zero = 0

        def step(self: Any, action: Any, random: Any) -> tuple[float, bool]:
            if action == 1:
                raise ZeroDivisionError
            self.seen[0], self.seen[1] = 10 // self.zero, 10 % self.zero
            self.seen[2], self.seen[3] = 1.0 / self.zero, 0.0 / self.zero
            return 0.0, False

        def observe(self: Any, observation: Any) -> None:
            observation[:] = self.seen

    with make_vec(Divisions, 2, "native") as envs:
        envs.reset(seed=1)
        assert_same(envs.step(np.zeros(2, np.int64))[0][0], np.array([0.0, 0.0, np.inf, np.nan]))
        with pytest.raises(EnvRaisedError, match=r"Environment 1 .*step\(\) of Divisions raised an exception"):
            envs.step(np.array([0, 1]))
