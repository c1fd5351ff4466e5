"""Environments that lost their process through no fault of their own go on as if nothing had happened, or say so."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fleets import Oracle, fleet, zeros
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from soaking.faulty import Fault, FaultyEnv, Habits, faulty_fns

from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv, replay
from envfleet.vector.shard import Shard


class DeadlyOption(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends its process at one step of its life, if it is told to by its number."""

    def __init__(self, env: gymnasium.Env[Any, Any], deadly_step: int) -> None:
        super().__init__(env)
        self.steps_to_live = deadly_step

    def step(self, action: Any) -> Any:
        self.steps_to_live -= 1
        if self.steps_to_live == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


REAL = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "LunarLander-v3", "HalfCheetah-v5"]


@pytest.mark.parametrize(
    ("env_id", "mode"),
    [
        *((env_id, AutoresetMode.NEXT_STEP) for env_id in REAL),
        *((env_id, AutoresetMode.SAME_STEP) for env_id in ("CartPole-v1", "LunarLander-v3")),
    ],
    ids=str,
)
def test_real_environments_beside_a_crash_go_on_to_the_last_bit(env_id: str, mode: AutoresetMode) -> None:
    plain = [partial(gymnasium.make, env_id, max_episode_steps=40) for _ in range(3)]
    try:
        with warnings.catch_warnings():  # Box2D's package crashes the interpreter where its warnings are errors
            warnings.simplefilter("ignore")
            alone = SyncVectorEnv(plain, autoreset_mode=mode)
    except gymnasium.error.DependencyNotInstalled as error:
        pytest.skip(str(error))
    deadly = [*plain[:2], lambda: DeadlyOption(plain[2](), 55)]
    with (
        alone,
        AsyncVectorEnv(deadly, context="fork", num_workers=1, autoreset_mode=mode, on_failure="restart") as envs,
    ):
        assert_same(envs.reset(seed=4), alone.reset(seed=4))
        alone.action_space.seed(4)
        for _ in range(120):
            actions = alone.action_space.sample()
            found, expected = envs.step(actions), alone.step(actions)
            for one, other in zip(found[:4], expected[:4], strict=True):
                assert_same(one[:2], other[:2])
        assert envs.rebuilt[0] == envs.rebuilt[1] > 0 == envs.rebuilt[2]
        assert envs.np_random_seed[:2] == alone.np_random_seed[:2]


class MoodyEnv(FaultyEnv):
    """Looks at what no seed determines."""

    def _observation(self, action: int) -> dict[str, Any]:
        observation = super()._observation(action)
        observation["draw"][0] = random.SystemRandom().random()
        return observation


class ForeignGeneratorEnv(FaultyEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None or not isinstance(self.np_random.bit_generator, np.random.Philox):
            self.np_random = np.random.Generator(np.random.Philox(seed))
        return super().reset(options=options)


class WordyEnv(FaultyEnv):
    """Has actions that do not lie in the block."""

    def __init__(self, habits: Habits) -> None:
        super().__init__(habits)
        self.action_space = spaces.Text(9)  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        return super().step(int(action))


def set_attribute(envs: AsyncVectorEnv) -> None:
    envs.set_attr("mood", "good")


def call_method(envs: AsyncVectorEnv) -> None:
    envs.call("process_id")


def step_often(envs: AsyncVectorEnv) -> None:
    for _ in range(4):
        envs.step(zeros(envs))


@pytest.mark.parametrize(
    ("kind", "before", "cause"),
    [
        (MoodyEnv, step_often, "could not be rebuilt: it came to another observation"),
        (ForeignGeneratorEnv, lambda envs: envs.reset(), "could not be rebuilt: it has a random generator"),
        (FaultyEnv, set_attribute, "SIGKILL"),
        (FaultyEnv, call_method, "SIGKILL"),
    ],
    ids=["not determined", "another generator", "attributes set", "methods called"],
)
def test_one_that_cannot_be_rebuilt_is_restarted(
    kind: type[FaultyEnv], before: Callable[[AsyncVectorEnv], Any], cause: str
) -> None:
    with fleet(env_fns=[partial(kind, Habits(i, 99)) for i in range(4)], on_failure="restart") as envs:
        envs.reset(seed=0)
        before(envs)
        *_, truncated, infos = envs.step(zeros(envs, {3: Fault.KILL}))
        assert truncated.tolist() == [False, False, True, True]
        assert infos["restarted"].tolist() == truncated.tolist()
        assert cause in infos["restart_cause"][2]
        assert not envs.rebuilt.any()
        *_, truncated, infos = envs.step(zeros(envs))
        assert not truncated.any()


def test_what_was_set_before_the_episode_began_stays_where_it_was_rebuilt_and_where_it_was_restarted() -> None:
    """set_attr outlives the process: of the one at fault, and of those that shared its worker."""
    oracle = Oracle(4)
    with fleet(env_fns=faulty_fns(4), on_failure="restart") as envs:
        envs.set_attr("mood", ["a", "b", "c", "d"])
        envs.reset(seed=0)
        oracle.assert_steps(envs, 3)
        oracle.assert_step(envs.step(zeros(envs, {3: Fault.EXIT})), zeros(envs), [3])
        assert envs.rebuilt.tolist() == [0, 0, 1, 0]
        assert envs.get_attr("mood") == ("a", "b", "c", "d")


@pytest.mark.parametrize("fault", [Fault.EXIT, Fault.RAISE])
def test_what_was_set_stays_also_if_set_in_the_middle_of_an_episode_and_twice(fault: Fault) -> None:
    with fleet(env_fns=faulty_fns(4), on_failure="restart") as envs:
        envs.reset(seed=0)
        envs.set_attr("mood", "good")
        envs.step(zeros(envs))
        envs.set_attr("mood", ["better"], indices=[3])
        for _ in range(2):
            *_, truncated, infos = envs.step(zeros(envs, {3: fault}))
            assert truncated[3]
            assert infos["restarted"][3]
            assert envs.get_attr("mood") == ("good", "good", "good", "better")
            envs.step(zeros(envs))


def test_actions_without_a_layout_are_not_kept() -> None:
    with fleet(env_fns=[partial(WordyEnv, Habits(i, 99)) for i in range(4)], on_failure="restart") as envs:
        envs.reset(seed=0)
        *_, truncated, infos = envs.step(["0", "0", "0", str(int(Fault.KILL))])
        assert infos["restarted"].tolist() == truncated.tolist() == [False, False, True, True]


def test_an_episode_that_is_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_LONGEST", 3)
    with fleet(env_fns=faulty_fns(4), on_failure="restart") as envs:
        envs.reset(seed=0)
        for steps, restarted in ((2, [3]), (3, [2, 3])):
            envs.reset()
            for _ in range(steps):
                envs.step(zeros(envs))
            infos = envs.step(zeros(envs, {3: Fault.KILL}))[4]
            assert np.flatnonzero(infos["restarted"]).tolist() == restarted


def test_looking_at_attributes_and_rendering_change_nothing() -> None:
    oracle = Oracle(4)
    with fleet(env_fns=faulty_fns(4), on_failure="restart") as envs:
        envs.reset(seed=0)
        oracle.assert_steps(envs, 3)
        envs.get_attr("episode")
        assert envs.np_random_seed == (0, 1, 2, 3)
        oracle.assert_step(envs.step(zeros(envs, {3: Fault.KILL})), zeros(envs), [3])
        assert envs.np_random_seed[:3] == (0, 1, 2)


def test_options_are_given_again() -> None:
    with fleet(env_fns=[partial(OptionsEnv, Habits(i, 99)) for i in range(4)], on_failure="restart") as envs:
        for reset in (envs.reset, lambda **given: (envs.async_reset(**given), envs.recv())):
            reset(seed=0, options=[{"start": 10 * env} for env in range(4)])
            envs.step(zeros(envs))
            observations, *_, infos = envs.step(zeros(envs, {3: Fault.KILL}))
            assert infos["restarted"].tolist() == [False, False, False, True]
            assert observations["count"][:3, 2].tolist() == [2, 12, 22]


class OptionsEnv(FaultyEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        self.steps = (options or {}).get("start", 0)
        return observation, info


class LurkingEnv(FaultyEnv):
    """Environment 2 ends its process at any step, once another environment was lost."""

    def __init__(self, habits: Habits, mark: str) -> None:
        super().__init__(habits)
        self.lurks = habits.index == 2 and Path(mark).exists()
        Path(mark).touch()

    def step(self, action: Any) -> Any:
        if self.lurks:
            Path(self.habits.fifo).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_step_that_raised_counts_when_others_are_rebuilt() -> None:
    oracle = Oracle(4)
    with fleet(2, on_failure="restart") as envs:
        envs.reset(seed=0)
        oracle.assert_steps(envs, 2)
        with pytest.raises(EnvRaisedError, match="Environment 0"):
            envs.step(zeros(envs, {0: Fault.UNPICKLABLE}))
        for env in oracle.lone:
            env.step(0)
        os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
        oracle.assert_reset(envs.reset(), oracle.reset())
        assert envs.rebuilt.tolist() == [0, 0, 1, 1]


def test_one_that_ends_its_process_while_it_is_rebuilt_is_restarted_and_no_other(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    fns = [partial(LurkingEnv, Habits(i, 99, mark), mark) for i in (2, 0, 1, 3)]
    with AsyncVectorEnv(fns, context="fork", num_workers=1, on_failure="restart") as envs:
        envs.reset(seed=0)
        envs.step(zeros(envs))
        *_, truncated, infos = envs.step(zeros(envs, {3: Fault.KILL}))
        assert infos["restarted"].tolist() == truncated.tolist() == [True, False, False, True]
        assert envs.rebuilt.tolist() == [0, 1, 1, 0]
        assert not envs.step(zeros(envs))[3].any()


def test_an_environment_that_had_nothing_to_do_is_not_to_blame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark, honest = tmp_path / "mark", Shard._report

    def die_between_two_environments(shard: Shard, *args: Any) -> Any:
        if mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(shard, *args)

    monkeypatch.setattr(Shard, "_report", die_between_two_environments)
    with fleet(2, on_failure="restart") as envs:
        envs.reset(seed=0)
        mark.touch()
        envs.send(zeros(envs)[:1], [2])
        result = envs.recv()
        assert "restarted" not in result[4]
        assert "restarted" not in envs.step(zeros(envs))[4]
        assert envs.rebuilt.tolist() == [0, 0, 1, 1]
