"""make_vec: from an id, a spec or a callable to a fleet, and from the fleet's spec to the fleet again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, VectorizeMode
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit, TransformReward

from envfleet import AsyncVectorEnv, SyncVectorEnv, choice, make_vec, uniform
from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same
from envfleet.testing.envs import CounterConfig, CounterEnv

TEST_ID = "EnvfleetCounter-v0"
CLASSES = {"sync": SyncVectorEnv, "process": AsyncVectorEnv}


class PlanetEnv(CounterEnv):
    """A counter with parameters to set and to randomise."""

    def __init__(self, gravity: float = -10.0, wind: bool = False, mass: float = 1.0) -> None:
        super().__init__(CounterConfig(ending="never"))
        self.gravity, self.wind, self.mass = gravity, wind, mass


@pytest.fixture
def counter_id() -> Iterator[str]:
    """A registered environment: five steps per episode, and a keyword of its own."""
    gym.register(TEST_ID, entry_point=PlanetEnv, max_episode_steps=5, kwargs={"gravity": -3.0})
    yield TEST_ID
    del gym.registry[TEST_ID]


def trajectory(envs: Any, steps: int = 12) -> list[Any]:
    envs.action_space.seed(4)
    return [envs.reset(seed=9), *(envs.step(envs.action_space.sample()) for _ in range(steps))]


# --- what to make ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_an_id_is_made_as_gymnasium_makes_it(backend: str) -> None:
    theirs = gym.make_vec("CartPole-v1", 3, "sync", max_episode_steps=8)
    with make_vec("CartPole-v1", 3, backend, max_episode_steps=8) as ours:
        assert type(ours) is CLASSES[backend]
        assert_same(trajectory(ours), trajectory(theirs))
    theirs.close()


def test_keywords_of_the_registry_are_kept_and_can_be_overridden(counter_id: str) -> None:
    with make_vec(counter_id, 2, "sync") as envs:
        assert envs.get_attr("gravity") == (-3.0, -3.0)
        assert envs.get_attr("_max_episode_steps") == (5, 5)
    with make_vec(counter_id, 2, "sync", gravity=-1.0, wind=True, max_episode_steps=7) as envs:
        assert (envs.get_attr("gravity"), envs.get_attr("wind")) == ((-1.0, -1.0), (True, True))
        assert envs.get_attr("_max_episode_steps") == (7, 7)
    with make_vec(counter_id, 1, "sync", disable_env_checker=True, max_episode_steps=-1) as envs:
        assert str(envs.envs[0]) == f"<OrderEnforcing<PlanetEnv<{counter_id}>>>"


def test_an_id_may_name_the_module_that_registers_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far_planets.py").write_text(
        "import gymnasium\ngymnasium.register('FarPlanet-v0', entry_point='envfleet.testing.envs:CounterEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with make_vec("far_planets:FarPlanet-v0", 2, "sync") as envs:
        assert envs.reset()[0].shape == (2, 5)
    del gym.registry["FarPlanet-v0"]


def test_a_spec_is_made_and_not_changed(counter_id: str) -> None:
    spec = gym.spec(counter_id)
    before = copy.deepcopy(spec)
    with make_vec(spec, 2, "sync", wind=True) as envs:
        assert (envs.get_attr("gravity"), envs.get_attr("wind")) == ((-3.0, -3.0), (True, True))
    assert spec == before


@pytest.mark.parametrize(
    "maker",
    [PlanetEnv, lambda **kwargs: PlanetEnv(**kwargs), partial(PlanetEnv, wind=True)],
    ids=["class", "lambda", "partial"],
)
@pytest.mark.parametrize("backend", ["sync", "process"])
def test_a_callable_is_called_with_the_keywords(maker: Any, backend: str) -> None:
    with make_vec(maker, 2, backend, gravity=-2.5) as envs:
        assert envs.get_attr("gravity") == (-2.5, -2.5)
        assert envs.get_attr("wind") == (isinstance(maker, partial),) * 2
        with make_vec(envs.spec) as again:
            assert type(again) is CLASSES[backend]
            assert again.get_attr("gravity") == (-2.5, -2.5)


def test_nothing_is_wrapped_around_what_a_callable_makes() -> None:
    with make_vec(lambda: TimeLimit(PlanetEnv(), 4), 2, "sync") as envs:
        assert [type(env) for env in envs.envs] == [TimeLimit] * 2
        assert [type(env.env) for env in envs.envs] == [PlanetEnv] * 2


def test_wrappers_are_applied_the_first_innermost() -> None:
    plus, times = partial(TransformReward, func=lambda r: r + 1), partial(TransformReward, func=lambda r: r * 10)
    for wrappers, reward in ([plus, times], 11.25), ((times, plus), 2.25), ([], 0.125):
        with make_vec(PlanetEnv, 2, "process", wrappers=wrappers) as envs:
            envs.reset()
            assert envs.step([0, 0])[1].tolist() == [reward, reward]


def test_an_unknown_keyword_is_named_by_the_error() -> None:
    with pytest.raises(EnvRaisedError, match="gravitation") as caught:
        make_vec("Pendulum-v1", 2, "sync", gravitation=3)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("what", [3, None, ["CartPole-v1"]])
def test_something_that_makes_nothing_is_refused(what: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"is no environment: expected a registered id, MODULE:ID, FILE.py:CLASS, an EnvSpec, or a class or",
    ):
        make_vec(what)


def test_an_unknown_id_and_a_spec_without_entry_point_are_gymnasiums_errors() -> None:
    with pytest.raises(gym.error.NameNotFound):
        make_vec("NoSuchEnvironment-v0")
    with pytest.raises(gym.error.Error, match="Nowhere-v0 has no entry point"):
        make_vec(EnvSpec("Nowhere-v0"))


@pytest.mark.parametrize("num_envs", [0, -1, True, 2.0, "2", None])
def test_a_number_of_environments_that_is_none_is_refused(num_envs: Any) -> None:
    with pytest.raises(ValueError, match="num_envs must be a positive integer"):
        make_vec(PlanetEnv, num_envs)


def test_a_numpy_integer_is_a_number_of_environments() -> None:
    with make_vec(PlanetEnv, np.int64(2), "sync") as envs:
        assert envs.num_envs == 2


# --- where to run it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "backend"),
    [
        ({"backend": "sync"}, "sync"),
        ({"backend": "process"}, "process"),
        ({"backend": "async"}, "process"),
        ({"backend": VectorizeMode.ASYNC}, "process"),
        ({"vectorization_mode": "sync"}, "sync"),
        ({"vectorization_mode": "async"}, "process"),
        ({"vectorization_mode": VectorizeMode.SYNC}, "sync"),
        ({"vectorization_mode": VectorizeMode.ASYNC}, "process"),
        ({"backend": "process", "vectorization_mode": "async"}, "process"),
        ({"backend": "auto", "vectorization_mode": "sync"}, "sync"),
    ],
)
def test_gymnasiums_names_map_to_backends(arguments: dict[str, Any], backend: str) -> None:
    with make_vec(PlanetEnv, 2, **arguments) as envs:
        assert type(envs) is CLASSES[backend]
        assert envs.plan.startswith(f"{backend}: ")


def test_gymnasiums_arguments_keep_their_positions() -> None:
    double = partial(TransformReward, func=lambda reward: 2 * reward)
    with make_vec(PlanetEnv, 2, "async", {"autoreset_mode": "SameStep", "context": "fork"}, [double]) as envs:
        assert type(envs) is AsyncVectorEnv
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        envs.reset()
        assert envs.step([0, 0])[1].tolist() == [0.25, 0.25]


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="backend='sync' and vectorization_mode='async' contradict each other"):
        make_vec(PlanetEnv, 2, "sync", vectorization_mode="async")
    with pytest.raises(ValueError, match="contradict"):
        make_vec("CartPole-v1", 2, "process", vectorization_mode="vector_entry_point")


@pytest.mark.parametrize("name", ["backend", "vectorization_mode"])
def test_an_unknown_backend_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of 'auto', 'native', 'sync', 'process'.* got 'thread'"):
        make_vec(PlanetEnv, 2, **{name: "thread"})


@pytest.mark.parametrize("mode", ["vector_entry_point", VectorizeMode.VECTOR_ENTRY_POINT])
@pytest.mark.parametrize("name", ["backend", "vectorization_mode"])
def test_an_environments_own_vectorisation_is_made_as_gymnasium_makes_it(mode: Any, name: str) -> None:
    ours: Any = make_vec("CartPole-v1", 3, **{name: mode}, max_episode_steps=6)
    theirs = gym.make_vec("CartPole-v1", 3, "vector_entry_point", max_episode_steps=6)
    assert type(ours) is type(theirs)
    assert ours.spec == theirs.spec
    assert_same(trajectory(ours), trajectory(theirs))
    with pytest.raises(TypeError, match="cannot be randomised"):
        make_vec("CartPole-v1", 3, **{name: mode}, randomize={"render_mode": choice([None])})


# --- making it again -------------------------------------------------------------------------------------


def shifted(env: Any) -> Any:
    return TransformReward(env, lambda reward: reward + 100)


@pytest.mark.parametrize("backend", ["sync", "process", "auto"])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda spec: pickle.loads(cloudpickle.dumps(spec))])
def test_a_fleet_is_made_again_from_its_spec(backend: str, way: Any, counter_id: str) -> None:
    with make_vec(
        counter_id,
        3,
        backend,
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False},
        wrappers=[shifted],
        randomize={"mass": uniform(1, 2)},
        randomize_on="make",
        wind=True,
    ) as envs:
        expected = copy.deepcopy(trajectory(envs))
        with make_vec(way(envs.spec)) as again:
            assert type(again) is type(envs)
            assert again.spec == envs.spec
            assert again.parameters == envs.parameters
            assert again.get_attr("mass") == tuple(envs.parameters["mass"].tolist())
            assert again.get_attr("wind") == (True,) * 3
            assert again.copy is False
            assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
            assert_same(trajectory(again), expected)


def test_process_arguments_are_part_of_the_spec() -> None:
    with make_vec(PlanetEnv, 4, vector_kwargs={"num_workers": 3, "caller_works": True}) as envs:
        spec = envs.spec
    with make_vec(spec) as envs:
        assert (envs.num_workers, len(envs.processes)) == (3, 2)


@pytest.mark.parametrize(
    ("backend", "theirs"), [("sync", gym.vector.SyncVectorEnv), ("process", gym.vector.AsyncVectorEnv)]
)
def test_gymnasium_reads_a_spec_made_with_its_own_arguments(backend: str, theirs: Any, counter_id: str) -> None:
    arguments = {"vector_kwargs": {"autoreset_mode": AutoresetMode.SAME_STEP}, "wrappers": [shifted], "wind": True}
    with make_vec(counter_id, 2, backend, **arguments) as envs:
        again = gym.make_vec(envs.spec)
        assert type(again) is theirs
        assert_same(trajectory(again), trajectory(envs))
        again.close()
        assert envs.spec.kwargs.keys() == gym.make_vec(counter_id, 2, "sync", **arguments).spec.kwargs.keys()


# --- randomised parameters -------------------------------------------------------------------------------


def test_parameters_reach_the_environments_and_are_the_same_on_every_backend() -> None:
    randomize = {"gravity": uniform(-12, -8), "wind": choice([True, False])}
    tables = []
    for backend, vector_kwargs in ("sync", {}), ("process", {"num_workers": 2}), ("process", {"num_workers": 5}):
        with make_vec(PlanetEnv, 5, backend, vector_kwargs, randomize=randomize, randomize_seed=11) as envs:
            for name in randomize:
                assert envs.get_attr(name) == tuple(envs.parameters[name].tolist())
            tables.append(envs.parameters)
    assert tables[0] == tables[1] == tables[2]
    assert len(set(tables[0]["gravity"])) == 5


def test_without_a_seed_every_fleet_has_parameters_of_its_own() -> None:
    tables = [make_vec(PlanetEnv, 2, "sync", randomize={"gravity": uniform(0, 1)}).parameters for _ in range(2)]
    assert tables[0] != tables[1]
    assert make_vec(PlanetEnv, 2, "sync").parameters is None


def test_the_time_limit_can_be_randomised(counter_id: str) -> None:
    with make_vec(counter_id, 8, "sync", randomize={"max_episode_steps": choice([3, 4])}, randomize_seed=0) as envs:
        assert set(envs.get_attr("_max_episode_steps")) == {3, 4}


def test_wrong_randomisation_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"no parameter 'gravitey' \(did you mean 'gravity'\?\)"):
        make_vec(PlanetEnv, 2, randomize={"gravitey": uniform(0, 1)})
    with pytest.raises(TypeError, match="gravity cannot be both randomised and given"):
        make_vec(PlanetEnv, 2, randomize={"gravity": uniform(0, 1)}, gravity=3)
    with pytest.raises(TypeError, match="randomize_seed must be an integer"):
        make_vec(PlanetEnv, 2, randomize={"gravity": uniform(0, 1)}, randomize_seed="seven")  # type: ignore[arg-type]


def test_a_keyword_of_the_registry_may_be_randomised(counter_id: str) -> None:
    with make_vec(counter_id, 3, "sync", randomize={"gravity": uniform(0, 1)}) as envs:
        assert envs.get_attr("gravity") == tuple(envs.parameters["gravity"].tolist())


def test_a_callables_own_max_episode_steps_is_its_own() -> None:
    def make(max_episode_steps: int) -> gym.Env[Any, Any]:
        return TimeLimit(PlanetEnv(), max_episode_steps)

    with make_vec(make, 2, "sync", max_episode_steps=4) as envs:
        assert envs.get_attr("_max_episode_steps") == (4, 4)


@pytest.mark.parametrize("arguments", [{"num_envs": 3}, {"backend": "process"}, {"wrappers": [TimeLimit]}])
def test_arguments_that_contradict_a_fleets_spec_are_refused(arguments: dict[str, Any]) -> None:
    with make_vec(PlanetEnv, 2, "sync", wrappers=[partial(TimeLimit, max_episode_steps=3)]) as envs:
        spec = envs.spec
    with pytest.raises(ValueError, match="contradicts the spec"):
        make_vec(spec, **arguments)


def test_the_spec_of_an_auto_fleet_carries_no_machines_core_count() -> None:
    with make_vec(PlanetEnv, 2) as envs:
        assert "vector_kwargs" not in envs.spec.kwargs


# --- first-ready -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "sync", "process"])
def test_a_batch_size_is_what_recv_waits_for(backend: str) -> None:
    with make_vec("CartPole-v1", 4, backend, batch_size=3) as envs:
        envs.async_reset(seed=0)
        observations, *_, infos = envs.recv()
        assert observations.shape == (3, 4)
        assert len(infos["env_id"]) == 3
        again = make_vec(envs.spec)
        assert again.batch_size == 3
        again.close()


def test_a_batch_size_given_twice_must_be_the_same() -> None:
    make_vec("CartPole-v1", 4, batch_size=2, vector_kwargs={"batch_size": 2}).close()
    with pytest.raises(TypeError, match="batch_size=2 contradicts vector_kwargs, which say 3"):
        make_vec("CartPole-v1", 4, batch_size=2, vector_kwargs={"batch_size": 3})
