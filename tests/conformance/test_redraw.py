"""Parameters drawn anew for every episode: the same on every backend, and never those of another episode."""

from __future__ import annotations

import dataclasses
import os
import signal
import zlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete

from envfleet import choice, make_vec, normal, uniform
from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same
from envfleet.train import A2CConfig
from envfleet.train.environments import make_training_envs
from envfleet.vector.failures import Failure

pytestmark = pytest.mark.usefixtures("box2d")

N = 3
PYTHON = {
    "sync": ("sync", {}),
    "one worker": ("process", {"num_workers": 1}),
    "two workers": ("process", {"num_workers": 2}),
    "three workers": ("process", {"num_workers": 3}),
    "caller works": ("process", {"num_workers": 2, "caller_works": True}),
}
NATIVE = {"one thread": ("native", {"threads": 1}), "two threads": ("native", {"threads": 2})}
BACKENDS = {**PYTHON, **NATIVE}
MODES = ("NextStep", "SameStep", "Disabled")

# Each with episodes of a few steps, and parameters of every kind.
WORK: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"g": uniform(5, 15), "max_episode_steps": choice([3, 4, 6])},
    "FrozenLake-v1": {"success_rate": uniform(0.2, 0.9), "is_slippery": choice([True, False])},
    "LunarLander-v3": {
        "gravity": normal(-8, 2, clip=(-11.9, -1)),
        "enable_wind": choice([True, False]),
        "wind_power": uniform(0, 20),
        "max_episode_steps": choice([5, 8]),
    },
    "Hopper-v5": {"healthy_reward": uniform(0.5, 2), "frame_skip": choice([2, 4]), "max_episode_steps": choice([4, 6])},
}


class Drifting(gymnasium.Env[Any, int]):
    """Ends after `length` steps; its random numbers come from a generator that Gymnasium knows nothing about."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,), np.float64), Discrete(5)

    def __init__(self, drift: float = 0.0, length: int = 3, fails: bool = False, actions: int = 5) -> None:
        if fails:
            raise RuntimeError("this one cannot be made")
        self.drift, self.length, self.action_space = drift, length, Discrete(actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._numbers, self._steps, self.seed = np.random.default_rng(seed), 0, seed
        return self._observation(), {}

    def step(self, action: int) -> Any:
        if action == 7:
            raise RuntimeError("told to fail")
        if action == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        self._steps += 1
        return self._observation(), self.drift, False, self._steps >= self.length, {}

    def _observation(self) -> Any:
        return np.array([self.drift, self._numbers.normal()])


DRIFTING = {"drift": uniform(0, 1), "length": choice([2, 3])}


def fleet(what: Any, backend: str, randomize: Any = None, mode: str = "NextStep", **kwargs: Any) -> Any:
    name, vector_kwargs = BACKENDS[backend]
    extra = kwargs.pop("vector_kwargs", {})
    return make_vec(
        what,
        N,
        name,
        {"autoreset_mode": mode, **vector_kwargs, **extra},
        randomize=WORK.get(what, DRIFTING) if randomize is None else randomize,
        randomize_on="reset",
        **{"randomize_seed": 5, **kwargs},
    )


def play(envs: Any, steps: int, seed: int | None = 7) -> list[Any]:
    """Everything to be seen in some steps from a reset on, and the parameters after each of them."""
    envs.action_space.seed(1)
    seen = [(*envs.reset(seed=seed), envs.parameters)]
    for _ in range(steps):
        result = envs.step(envs.action_space.sample())
        seen.append((*result, envs.parameters))
        done = result[2] | result[3]
        if envs.metadata["autoreset_mode"].value == "Disabled" and done.any():
            seen.append((*envs.reset(options={"reset_mask": done}), envs.parameters))
    return seen


def assert_same_play(one: list[Any], other: list[Any]) -> None:
    for ours, theirs in zip(one, other, strict=True):
        assert ours[-1] == theirs[-1]
        assert_same(ours[:-1], theirs[:-1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", WORK)
def test_native_fleets_redraw_as_python_ones(env_id: str, mode: str) -> None:
    with fleet(env_id, "sync", mode=mode) as reference:
        expected = play(reference, 60)
        again = play(reference, 12, None)
    for backend in NATIVE:
        with fleet(env_id, backend, mode=mode) as envs:
            assert_same_play(play(envs, 60), expected)
            assert_same_play(play(envs, 12, None), again)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", [name for name in PYTHON if name != "sync"])
def test_every_number_of_workers_redraws_alike(backend: str, mode: str) -> None:
    with fleet(Drifting, "sync", mode=mode) as reference, fleet(Drifting, backend, mode=mode) as envs:
        assert_same_play(play(envs, 30), play(reference, 30))


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_episode_has_parameters_of_its_own_and_the_table_shows_them(backend: str) -> None:
    with fleet("Pendulum-v1", backend, mode="SameStep") as envs:
        envs.reset(seed=7)
        table, episodes, seen = envs.parameters, 0, [[] for _ in range(N)]
        for _ in range(40):
            *_, truncated, _ = envs.step(np.zeros((N, 1), np.float32))
            now = envs.parameters
            changed = np.asarray(now["g"] != table["g"])
            np.testing.assert_array_equal(changed, truncated)
            assert envs.get_attr("g") == tuple(now["g"])
            assert envs.get_attr("_max_episode_steps") == tuple(now["max_episode_steps"])
            for env in np.flatnonzero(truncated):
                seen[env].append(now["g"][env])
            table, episodes = now, episodes + int(truncated.sum())
        assert episodes > 20
        assert len({value for values in seen for value in values}) == episodes


@pytest.mark.parametrize("backend", ["sync", "two workers", "two threads"])
def test_a_seed_begins_the_streams_anew_whatever_came_before(backend: str) -> None:
    with fleet("Pendulum-v1", backend) as envs, fleet("Pendulum-v1", backend, randomize_seed=99) as others:
        first = play(envs, 25)
        envs.step(np.zeros((N, 1), np.float32))
        assert_same_play(play(envs, 25), first)
        assert_same_play(play(others, 25), first)


@pytest.mark.parametrize("backend", ["sync", "two workers", "two threads"])
def test_without_a_seed_the_fleets_own_one_decides(backend: str) -> None:
    with fleet("Pendulum-v1", backend) as envs, fleet("Pendulum-v1", "sync") as same:
        made_with = envs.parameters
        assert made_with == same.parameters
        first = play(envs, 25, None)
        assert first[0][-1] == made_with  # the first episode is played with what they were made with
        assert_same_play(first, play(same, 25, None))
    with fleet("Pendulum-v1", backend, randomize_seed=6) as others:
        assert others.parameters != made_with


@pytest.mark.parametrize("backend", ["sync", "two workers", "two threads"])
def test_an_environments_parameters_depend_on_its_own_seed_only(backend: str) -> None:
    with fleet("Pendulum-v1", backend, mode="Disabled") as envs:
        envs.reset(seed=[1, 2, 3])
        one = envs.parameters
        mask = np.array([True, False, False])
        envs.reset(seed=[3, 3, 3], options={"reset_mask": mask})
        assert envs.parameters.row(0) == one.row(2)
        assert envs.parameters.row(1) == one.row(1)
        envs.reset(options={"reset_mask": mask})
        assert envs.parameters.row(0) != one.row(2)
        assert envs.parameters.row(2) == one.row(2)


def test_the_rule_as_it_is_documented() -> None:
    """Values come from NumPy's generator of the seed and the parameter's name, seeds from that of no name."""

    def numbers(name: str, seed: int) -> np.random.Generator:
        key = (zlib.crc32(name.encode()),)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))

    drifts, lengths, seeds = (numbers(name, 7) for name in ("drift", "length", ""))
    with fleet(Drifting, "sync", mode="Disabled") as envs:
        for episode in range(40):
            envs.reset(seed=7 if episode == 0 else None)
            seed = int(seeds.integers(2**32))
            assert envs.envs[0].seed == (7 if episode == 0 else seed)
            assert envs.parameters.row(0) == {"drift": drifts.random(), "length": [2, 3][int(lengths.integers(2))]}


@pytest.mark.parametrize("env_id", WORK)
def test_a_snapshot_holds_the_parameters_of_its_episode_and_of_those_to_come(env_id: str) -> None:
    with fleet(env_id, "two threads") as envs, fleet(env_id, "one thread") as others:
        play(envs, 10)
        others.reset(seed=70)
        states = [envs.get_state(i) for i in range(N)]
        actions = [envs.action_space.sample() for _ in range(60)]
        expected = [(*envs.step(action), envs.parameters) for action in actions]
        for fleet_of_them in (envs, others):
            for i, state in enumerate(states):
                fleet_of_them.set_state(i, state)
            assert_same_play([(*fleet_of_them.step(action), fleet_of_them.parameters) for action in actions], expected)


def test_a_snapshot_of_a_fleet_that_redraws_something_else_is_refused() -> None:
    with fleet("Pendulum-v1", "one thread") as envs, fleet("Pendulum-v1", "one thread", {"g": uniform(1, 2)}) as others:
        envs.reset(seed=1)
        others.reset(seed=1)
        before = others.parameters
        with pytest.raises(ValueError, match="redraws the same parameters"):
            others.set_state(0, envs.get_state(0))
        assert others.parameters == before


def restarting(backend: str, action: int) -> list[Any]:
    care = {"on_failure": "restart", "max_restarts": None}
    seen = []
    with fleet(Drifting, backend, vector_kwargs=care) as envs:
        for seed in (None, 7):
            envs.reset(seed=seed)
            for step in range(25):
                actions = np.zeros(N, np.int64)
                actions[1] = action if step % 6 == 1 else 0
                observations, rewards, *_, infos = envs.step(actions)
                seen.append((observations, rewards, envs.parameters, "restarted" in infos))
    return seen


@pytest.mark.parametrize("backend", ["one worker", "three workers", "caller works"])
def test_environments_made_again_after_an_error_go_on_alike(backend: str) -> None:
    ours, expected = restarting(backend, 7), restarting("sync", 7)
    assert any(step[-1] for step in expected)
    for one, other in zip(ours, expected, strict=True):
        assert_same(one[:2], other[:2])
        assert one[2:] == other[2:]


@pytest.mark.parametrize("backend", ["one worker", "two workers", "three workers"])
def test_after_a_crash_the_culprit_draws_as_after_an_error_and_the_others_go_on(backend: str) -> None:
    ours, expected = restarting(backend, 8), restarting("sync", 7)
    tables = [[step[2].row(1) for step in steps if not step[3]] for steps in (ours, expected)]
    assert tables[0] == tables[1]
    assert len({row["drift"] for row in tables[0]}) > 10  # no episode after a crash repeats one before
    for one, other in zip(ours, expected, strict=True):
        for env in (0, 2):
            assert one[2].row(env) == other[2].row(env)
            assert_same([part[env] for part in one[:2]], [part[env] for part in other[:2]])


@pytest.mark.parametrize("backend", ["sync", "three workers", "one thread", "two threads"])
def test_first_ready_results_come_from_the_same_episodes(backend: str) -> None:
    what = Drifting if backend in PYTHON else "Pendulum-v1"
    action = np.zeros((1,), np.int64) if backend in PYTHON else np.zeros((1, 1), np.float32)

    def rewards_of_env_1(envs: Any, first_ready: bool) -> list[float]:
        if not first_ready:
            envs.reset(seed=3)
            return [float(envs.step(np.repeat(action, N, axis=0))[1][1]) for _ in range(20)]
        envs.async_reset(seed=3)
        rewards: list[float] = []
        while len(rewards) < 21:
            _, reward, *_, infos = envs.recv()
            rewards += [float(r) for r, env in zip(reward, infos["env_id"], strict=True) if env == 1]
            envs.send(np.repeat(action, len(reward), axis=0), infos["env_id"])
        return rewards[1:21]

    with fleet(what, backend) as whole, fleet(what, backend, vector_kwargs={"batch_size": 1}) as single:
        assert rewards_of_env_1(whole, False) == rewards_of_env_1(single, True)


def always(value: Any) -> Any:
    return choice([value])


@pytest.mark.parametrize("backend", ["sync", "two workers", "one thread"])
def test_what_never_varies_is_played_with_the_seeds_of_the_streams(backend: str) -> None:
    """Redrawing the default changes no episode but by its seed: the first is Gymnasium's own."""
    with fleet("Pendulum-v1", backend, {"g": always(10.0)}) as envs, make_vec("Pendulum-v1", N, "sync") as plain:
        assert_same(envs.reset(seed=4), plain.reset(seed=4))
        for _ in range(30):
            actions = plain.action_space.sample()
            assert_same(envs.step(actions), plain.step(actions))


def failures_of_resets(envs: Any, count: int = 40) -> list[str]:
    failures = []
    for _ in range(count):
        try:
            envs.reset()
        except EnvRaisedError as error:
            failures.append(str(error))
    return failures


@pytest.mark.parametrize("backend", ["sync", "two workers"])
def test_one_that_cannot_be_made_is_named_and_the_fleet_goes_on(backend: str) -> None:
    with fleet(Drifting, backend, {"fails": choice([False] * 9 + [True])}) as envs:
        failures = failures_of_resets(envs)
        assert 0 < len(failures) < 40
        assert all("Environment " in failure and "cannot be made" in failure for failure in failures)


def test_native_parameters_that_cannot_be_are_named_and_the_fleet_goes_on() -> None:
    with fleet("LunarLander-v3", "two threads", {"gravity": choice([-10.0] * 9 + [3.0])}, randomize_seed=0) as envs:
        failures = failures_of_resets(envs)
        assert 0 < len(failures) < 40
        assert all("Environment " in failure and "gravity must be between" in failure for failure in failures)


@pytest.mark.parametrize("ids", [list, np.array])
@pytest.mark.parametrize("how", ["reset", "async_reset"])
def test_native_parameters_that_cannot_be_are_told_by_recv_until_a_reset(
    how: str, ids: Callable[[list[int]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def action(count: int) -> Any:
        return np.zeros((count, 1), np.float32)

    with fleet("Pendulum-v1", "two threads", vector_kwargs={"batch_size": 2}) as envs:
        envs.reset(seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(envs._plans, "supply", lambda: Failure.of(ValueError("it cannot be"), 1, "reset"))
            envs.send(action(2), [0, 1])
        envs.send(action(1), ids([2]))  # nothing is wrong with this one
        for timeout in (None, 10):
            with pytest.raises((EnvRaisedError, ResetNeeded), match=r"it cannot be|Environment 1 failed"):
                envs.recv(timeout)
        getattr(envs, how)(seed=1)
        if how == "reset":
            envs.send(action(N))
        assert len(envs.recv(10)[0]) == 2
        assert len(envs.recv()[0]) == 1


def test_parameters_that_change_the_action_space_are_refused() -> None:
    with fleet(Drifting, "sync", {"actions": choice([5, 4])}, vector_kwargs={}) as envs:

        def reset_until_refused() -> None:
            for _ in range(50):
                envs.reset()

        with pytest.raises(EnvRaisedError, match="leave the action space as it is"):
            reset_until_refused()


def test_the_environment_of_the_last_episode_is_closed_once() -> None:
    made: list[Any] = []

    class Counting(Drifting):
        closed = 0

        def __init__(self, drift: float) -> None:
            super().__init__(drift)
            made.append(self)

        def close(self) -> None:
            self.closed += 1

    with fleet(Counting, "sync", {"drift": uniform(0, 1)}) as envs:
        play(envs, 20)
        assert len(made) > 2 * N
        assert [env.closed for env in made].count(0) == N
    assert {env.closed for env in made} == {1}


@pytest.mark.parametrize("backend", ["sync", "two workers", "two threads"])
def test_a_fleets_spec_makes_one_that_redraws_too(backend: str) -> None:
    with fleet("Pendulum-v1", backend) as envs, make_vec(envs.spec) as again:
        assert_same_play(play(again, 20, None), play(envs, 20, None))


def test_when_to_draw_is_checked() -> None:
    with pytest.raises(ValueError, match=r"'make' .* or 'reset'"):
        make_vec("Pendulum-v1", 2, "sync", randomize={"g": uniform(1, 2)}, randomize_on="step")


@pytest.mark.parametrize("make", [Drifting, "Pendulum-v1"])
def test_every_episode_draws_its_own_unless_they_are_drawn_once(make: Callable[..., Any] | str) -> None:
    randomize = DRIFTING if callable(make) else WORK[make]
    for arguments, kept in (({}, False), ({"randomize_on": "reset"}, False), ({"randomize_on": "make"}, True)):
        with make_vec(make, N, "sync", randomize=randomize, randomize_seed=5, **arguments) as envs:
            before = envs.parameters
            play(envs, 20)
            envs.reset()
            assert (envs.parameters == before) is kept


def test_a_spec_from_before_there_was_a_choice_draws_once() -> None:
    with make_vec(Drifting, N, "sync", randomize=DRIFTING, randomize_seed=5, randomize_on="make") as envs:
        spec, before = envs.spec, envs.parameters
    del spec.kwargs["randomize_on"]
    with make_vec(spec) as envs:
        play(envs, 20)
        assert envs.parameters == before


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_training_draws_for_every_episode_unless_told_otherwise(backend: Any) -> None:
    config = A2CConfig("Pendulum-v1", num_envs=N, backend=backend, randomize=WORK["Pendulum-v1"])
    for randomize_on, expected in (("reset", 4), ("make", 1)):
        envs = make_training_envs(dataclasses.replace(config, randomize_on=randomize_on))
        seen = set()
        for seed in (1, None, None, None):
            envs.reset(seed=seed)
            seen.add(envs.unwrapped.parameters["g"][0])
        envs.close()
        assert len(seen) == expected


@pytest.mark.parametrize("backend", PYTHON)
def test_a_parameter_is_set_for_one_episode_and_anything_else_for_all(backend: str) -> None:
    """What every episode draws is drawn again; what was set beside it stays, in the environment of every episode."""
    with fleet(Drifting, backend, {"drift": uniform(0, 1)}) as envs:
        envs.reset(seed=7)
        envs.set_attr("drift", 9.0)
        envs.set_attr("length", 2)
        assert envs.get_attr("drift") == (9.0,) * N
        envs.reset()
        assert max(envs.get_attr("drift")) < 1
        assert envs.get_attr("length") == (2,) * N


def test_a_parameter_of_a_native_environment_is_set_for_one_episode() -> None:
    with fleet("Pendulum-v1", "one thread", {"g": uniform(5, 15)}) as envs:
        envs.reset(seed=7)
        envs.set_attr("g", 99.0)
        assert envs.get_attr("g") == (99.0,) * N
        envs.reset()
        assert max(envs.get_attr("g")) < 15
