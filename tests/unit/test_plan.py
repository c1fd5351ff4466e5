"""Which backend "auto" takes: the arithmetic as a pure function, the measurement on a clock of its own."""

from __future__ import annotations

import random
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet import make, plan
from envfleet.errors import EnvRaisedError
from envfleet.plan import StepCost, choose, measure_step
from envfleet.testing.envs import BrokenConstructorEnv, CounterConfig, CounterEnv
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv

US = 1e-6


def busy(microseconds: float) -> StepCost:
    return StepCost(microseconds * US, microseconds * US)


# --- the arithmetic --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_envs", "cores", "microseconds", "backend"),
    [
        # Two environments on two cores, 10 µs a hand-over: worth it when 2 w >= 1.2 (w + 10), so from 15 µs on.
        (2, 2, 14.9, "sync"),
        (2, 2, 15.1, "process"),
        # Eight: 8 w >= 1.2 (4 w + 10), so from 3.75 µs on; a CartPole takes 5.
        (8, 2, 3.7, "sync"),
        (8, 2, 3.8, "process"),
        # Sixty-four: 64 w >= 1.2 (32 w + 10), so from about 0.47 µs on.
        (64, 2, 0.46, "sync"),
        (64, 2, 0.48, "process"),
        # Three on two cores take two rounds: 3 w >= 1.2 (2 w + 10), so from 20 µs on.
        (3, 2, 19.9, "sync"),
        (3, 2, 20.1, "process"),
        (1, 8, 1e6, "sync"),
        (64, 1, 1e6, "sync"),
    ],
)
def test_processes_are_taken_where_they_save_a_sixth(
    num_envs: int, cores: int, microseconds: float, backend: str
) -> None:
    assert choose(num_envs, cores, busy(microseconds)).backend == backend


@pytest.mark.parametrize(("microseconds", "backend"), [(89.9, "sync"), (90.1, "process")])
def test_what_must_be_pickled_makes_a_hand_over_dearer(microseconds: float, backend: str) -> None:
    # 50 µs more: two environments on two cores are worth it when 2 w >= 1.2 (w + 60), so from 90 µs on.
    plan = choose(2, 2, StepCost(microseconds * US, microseconds * US, pickled=True))
    assert plan.backend == backend
    assert plan.sentence.endswith("150 µs, as part of it must be pickled.")


@pytest.mark.parametrize(("num_envs", "cores", "workers"), [(64, 2, 2), (2, 8, 2), (5, 4, 4)])
def test_a_computing_environment_gets_a_worker_a_core_and_the_caller_is_one(
    num_envs: int, cores: int, workers: int
) -> None:
    chosen = choose(num_envs, cores, busy(5000))
    assert chosen.vector_kwargs == {"num_workers": workers, "caller_works": True}
    assert chosen.sentence.startswith(f"process, {workers} workers including the caller: a step takes 5.0 ms")


@pytest.mark.parametrize(("num_envs", "workers"), [(2, 2), (64, 64), (65, 64), (1000, 64)])
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_a_waiting_environment_gets_a_worker_of_its_own_up_to_64(num_envs: int, workers: int, cores: int) -> None:
    chosen = choose(num_envs, cores, StepCost(wall=0.01, cpu=0.0001))
    assert (chosen.backend, chosen.vector_kwargs) == ("process", {"num_workers": workers})
    assert chosen.sentence.startswith(f"process, {workers} workers: a step takes 10.0 ms, most of it spent waiting")


def test_half_busy_is_not_waiting() -> None:
    assert "caller_works" in choose(8, 2, StepCost(wall=0.01, cpu=0.005)).vector_kwargs
    assert "caller_works" not in choose(8, 2, StepCost(wall=0.01, cpu=0.00499)).vector_kwargs


def test_waiting_that_is_shorter_than_two_wake_ups_is_not_worth_a_worker() -> None:
    assert choose(2, 1, StepCost(wall=40 * US, cpu=0.0)).backend == "sync"
    assert choose(2, 1, StepCost(wall=41 * US, cpu=0.0)).vector_kwargs == {"num_workers": 2}
    assert choose(2, 2, StepCost(wall=40 * US, cpu=0.0)).vector_kwargs == {"num_workers": 2, "caller_works": True}
    assert choose(2, 2, StepCost(wall=41 * US, cpu=0.0)).vector_kwargs == {"num_workers": 2}


def test_the_sentence_gives_the_numbers_it_was_decided_on() -> None:
    assert choose(4, 2, busy(5)).sentence == (
        "sync: a step takes 5 µs, so 4 in a row take 20 µs, and 2 cores would take 20 µs."
    )
    assert choose(4, 1, busy(10)).sentence == (
        "sync: a step takes 10 µs, so 4 in a row take 40 µs, and 1 core would take 50 µs."
    )
    assert choose(8, 2, busy(6)).sentence == (
        "process, 2 workers including the caller: a step takes 6 µs, so 8 in a row take 48 µs, on 2 cores about 34 µs."
    )


# --- the measurement -------------------------------------------------------------------------------------


class ClockEnv(CounterEnv):
    """Every step takes a set time on a clock that only this environment moves; every third ends an episode."""

    def __init__(self, clock: SimpleNamespace, fail_at: int | None = None) -> None:
        super().__init__(CounterConfig(length=3))
        self.clock, self.fail_at, self.total, self.closed = clock, fail_at, 0, False

    def reset(self, **kwargs: Any) -> Any:
        self.clock.wall += self.clock.a_reset
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.total += 1
        if self.total == self.fail_at:
            raise ZeroDivisionError("no step today")
        self.clock.wall += self.clock.a_step
        self.clock.cpu += self.clock.a_step / 4
        self.clock.waits += self.clock.waits_a_step
        return super().step(action)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    state = SimpleNamespace(wall=100.0, cpu=50.0, a_step=0.0, a_reset=0.0, waits=7, waits_a_step=1)
    fake = SimpleNamespace(perf_counter=lambda: state.wall, process_time=lambda: state.cpu)
    monkeypatch.setattr(plan, "time", fake)
    monkeypatch.setattr(plan, "_times_waited", lambda: state.waits)
    return state


def test_the_cost_of_a_step_is_measured_in_wall_and_processor_time(clock: SimpleNamespace) -> None:
    clock.a_step = 1e-4
    cost = measure_step(lambda: ClockEnv(clock))
    assert (cost.wall, cost.cpu) == (pytest.approx(1e-4), pytest.approx(0.25e-4))


def test_time_that_other_programs_took_is_no_waiting(clock: SimpleNamespace) -> None:
    clock.a_step, clock.waits_a_step = 1e-4, 0
    cost = measure_step(lambda: ClockEnv(clock))
    assert (cost.wall, cost.cpu) == (pytest.approx(0.25e-4), pytest.approx(0.25e-4))


def test_resets_are_counted_in(clock: SimpleNamespace) -> None:
    clock.a_step, clock.a_reset = 1e-4, 3e-4
    assert measure_step(lambda: ClockEnv(clock)).wall == pytest.approx(2e-4, rel=0.02)  # one reset every third step


def test_measuring_stops_after_a_twentieth_of_a_second_or_200_steps(clock: SimpleNamespace) -> None:
    envs = [ClockEnv(clock), ClockEnv(clock)]
    clock.a_step = 0.02
    measure_step(lambda: envs[0])
    clock.a_step = 0.0
    measure_step(lambda: envs[1])
    assert [env.total for env in envs] == [3 + 3, 5 + 200]


@pytest.mark.parametrize(
    ("env_fn", "pickled"),
    [
        (partial(gym.make, "CartPole-v1"), False),
        (partial(gym.make, "FrozenLake-v1"), False),  # its infos are numbers
        (CounterEnv, True),  # its infos are nested
        (lambda: SpellingEnv(), True),  # its actions are words
    ],
)
def test_what_must_be_pickled_is_noticed(env_fn: Any, pickled: bool) -> None:
    assert measure_step(env_fn).pickled is pickled


@pytest.mark.parametrize("fail_at", [None, 1, 8])
def test_the_measured_environment_is_closed_whatever_happens(clock: SimpleNamespace, fail_at: int | None) -> None:
    env = ClockEnv(clock, fail_at)
    try:
        measure_step(lambda: env)
    except ZeroDivisionError:
        assert fail_at is not None
    assert env.closed


# --- "auto" ----------------------------------------------------------------------------------------------


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "usable_cores", lambda: 2)


class SlowEnv(CounterEnv):
    """Takes two milliseconds a step, asleep or computing."""

    def __init__(self, asleep: bool) -> None:
        super().__init__()
        self.asleep = asleep

    def step(self, action: Any) -> Any:
        if self.asleep:
            time.sleep(0.002)
        end = time.process_time() + (0 if self.asleep else 0.002)
        while time.process_time() < end:
            pass
        return super().step(action)


def test_one_environment_runs_in_the_callers_thread_and_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "measure_apart", None)
    with envfleet.make_vec(partial(gym.make, "CartPole-v1")) as envs:
        assert type(envs) is SyncVectorEnv
        assert envs.plan == "sync: with one environment there is nothing to run side by side."


@pytest.mark.usefixtures("two_cores")
def test_a_slow_environment_runs_in_processes() -> None:
    with envfleet.make_vec(SlowEnv, 3, asleep=False) as envs:
        assert type(envs) is AsyncVectorEnv
        assert envs.plan.startswith("process, ")
        assert envs.reset()[0].shape == (3, 5)


@pytest.mark.usefixtures("two_cores")
def test_a_sleeping_environment_gets_a_worker_of_its_own() -> None:
    with envfleet.make_vec(SlowEnv, 5, asleep=True) as envs:
        assert len(envs.processes) == 5
        assert envs.plan.startswith("process, 5 workers: ")
        assert "waiting" in envs.plan


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(("microseconds", "backend"), [(14, "sync"), (16, "process")])
def test_auto_follows_the_arithmetic(monkeypatch: pytest.MonkeyPatch, microseconds: float, backend: str) -> None:
    monkeypatch.setattr(make, "measure_apart", lambda env_fn: busy(microseconds))
    with envfleet.make_vec(CounterEnv, 2) as envs:
        assert envs.plan == choose(2, 2, busy(microseconds)).sentence
        assert envs.plan.startswith(backend)
        assert type(envs) is {"sync": SyncVectorEnv, "process": AsyncVectorEnv}[backend]


@pytest.mark.usefixtures("two_cores")
def test_eight_cart_poles_are_stepped_by_a_worker_and_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "measure_apart", lambda env_fn: busy(5.5))
    with envfleet.make_vec(partial(gym.make, "CartPole-v1"), 8) as envs:
        assert type(envs) is AsyncVectorEnv
        assert (envs.num_workers, len(envs.processes)) == (2, 1)
    with envfleet.make_vec(partial(gym.make, "CartPole-v1"), 4) as envs:
        assert type(envs) is SyncVectorEnv


def test_an_argument_only_processes_know_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "measure_apart", None)
    with envfleet.make_vec(CounterEnv, 2, vector_kwargs={"num_workers": 1}) as envs:
        assert type(envs) is AsyncVectorEnv
        assert len(envs.processes) == 1
        assert envs.plan == "process: the argument 'num_workers' needs worker processes."


class StepRaisesEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("no step today")


@pytest.mark.usefixtures("two_cores")
def test_an_environment_that_cannot_be_measured_still_makes_a_fleet() -> None:
    with envfleet.make_vec(StepRaisesEnv, 2) as envs:
        assert envs.plan == ("sync: the environment could not be measured (ZeroDivisionError: no step today).")
        envs.reset()


@pytest.mark.usefixtures("two_cores")
def test_an_environment_that_cannot_be_made_raises_the_error_of_making_it() -> None:
    with pytest.raises(EnvRaisedError, match="was told to raise") as caught:
        envfleet.make_vec(BrokenConstructorEnv, 2)
    assert isinstance(caught.value, ZeroDivisionError)
    assert (caught.value.method, caught.value.env_indices) == ("make", (0,))


class SpellingEnv(CounterEnv):
    """Its actions are words."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = spaces.Text(3)

    def step(self, action: Any) -> Any:
        return super().step(len(action))


@pytest.mark.usefixtures("two_cores")
def test_any_action_space_can_be_measured() -> None:
    cost = measure_step(partial(gym.wrappers.TimeLimit, SpellingEnv(), 4))
    assert cost.wall > 0


def test_one_core_is_enough_for_environments_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "usable_cores", lambda: 1)
    with envfleet.make_vec(SlowEnv, 3, asleep=True) as envs:
        assert envs.plan.startswith("process, 3 workers")


def test_measuring_leaves_the_global_generators_alone() -> None:
    class GreedyEnv(SlowEnv):
        def __init__(self) -> None:
            super().__init__(asleep=False)
            random.random()
            np.random.random()

    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.random()
    random.seed(3)
    np.random.seed(3)
    measure_step(GreedyEnv)
    assert (random.random(), np.random.random()) == expected


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments are found to wait, as for a server: every copy wants a worker of its own."""
    monkeypatch.setattr(make, "measure_apart", lambda env_fn: StepCost(20e-3, 1e-3))


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize(
    "vector_kwargs",
    [{}, {"step_timeout": 30}, {"context": "fork"}, {"on_failure": "restart"}, {"batch_size": 2}],
    ids=str,
)
def test_other_arguments_do_not_change_the_number_of_workers(vector_kwargs: dict[str, Any]) -> None:
    with envfleet.make_vec(CounterEnv, 6, vector_kwargs=vector_kwargs) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        assert envs.num_workers == 6
        assert "most of it spent waiting" in envs.plan


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("name", ["num_workers", "max_concurrency"])
def test_a_number_of_workers_that_was_given_is_kept(name: str) -> None:
    with envfleet.make_vec(CounterEnv, 6, vector_kwargs={"step_timeout": 30, name: 2}) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        assert envs.num_workers == 2
