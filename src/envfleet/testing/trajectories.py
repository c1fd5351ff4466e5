"""Contract: whole trajectories equal single environments stepped by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from envfleet.testing.base import ContractBase, EnvFn, Fleet, pytest
from envfleet.testing.compare import assert_reset, assert_step
from envfleet.testing.envs import CounterConfig, CounterEnv, counter_fns
from envfleet.testing.reference import ReferenceFleet, stack_items
from envfleet.testing.strategies import hypothesis

# isort: split
from hypothesis import strategies as st

MODES = list(AutoresetMode)
OPERATIONS = ("step", "step", "step", "reset", "seeded reset", "masked reset", "look")


def wrapped_counter(index: int) -> gym.Env[Any, Any]:
    """Return a counter in the wrappers of gym.make, with a time limit shorter than some of its episodes."""
    env = CounterEnv(CounterConfig(index=index, length=2 + index))
    return TimeLimit(OrderEnforcing(PassiveEnvChecker(env)), max_episode_steps=4)


def compare_trajectories(envs: Fleet, reference: ReferenceFleet, steps: int, seed: int) -> None:
    """Step both with the same random actions; in DISABLED mode reset exactly the finished ones by mask."""
    space, num_envs = reference.observation_space, len(reference.envs)
    reference.action_space.seed(seed)
    assert_reset(envs.reset(seed=seed), reference.reset(range(seed, seed + num_envs)), space)
    for _ in range(steps):
        actions = [reference.action_space.sample() for _ in range(num_envs)]
        batch = stack_items(reference.action_space, actions)
        assert_step(envs.step(batch), reference.step(actions), space)
        finished = np.array(reference.finished)
        if reference.mode == AutoresetMode.DISABLED and finished.any():
            actual = envs.reset(options={"reset_mask": finished})
            assert_reset(actual, reference.reset(mask=finished), space)


class GymnasiumTrajectories(ContractBase):
    """Observations, rewards, flags and infos through many autoresets, compared number by number."""

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    @pytest.mark.parametrize("copy", [True, False], ids=["copy", "live"])
    def test_counters_equal_single_environments(self, mode: AutoresetMode, copy: bool) -> None:
        """A fleet of counters that end at different times equals the counters stepped by hand."""
        self._compare_counters(mode, copy, reuse_buffer=False)

    def _compare_counters(self, mode: AutoresetMode, copy: bool, *, reuse_buffer: bool) -> None:
        fns = counter_fns(self.num_envs, reuse_buffer=reuse_buffer)
        with self.fleet(fns, autoreset_mode=mode, copy=copy) as envs:
            compare_trajectories(envs, ReferenceFleet(fns, mode), 40, seed=3)

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    def test_the_wrappers_of_make_change_nothing(self, mode: AutoresetMode) -> None:
        """Time limits, order enforcing and the passive checker give the same results in a fleet as by hand."""
        fns: list[EnvFn] = [partial(wrapped_counter, i) for i in range(self.num_envs)]
        reference = ReferenceFleet(fns, mode)
        with self.fleet(fns, autoreset_mode=mode) as envs:
            compare_trajectories(envs, reference, 30, seed=5)
            if self.can_look_into(envs):
                elapsed = tuple(env.get_wrapper_attr("_elapsed_steps") for env in reference.envs)
                assert envs.get_attr("_elapsed_steps") == elapsed

    @pytest.mark.parametrize("num_envs", [1, 2, 7, 33])
    def test_any_number_of_environments_equals_single_ones(self, num_envs: int) -> None:
        """From one environment to many, whatever the number of workers."""
        fns = counter_fns(num_envs)
        with self.fleet(fns) as envs:
            compare_trajectories(envs, ReferenceFleet(fns, AutoresetMode.NEXT_STEP), 15, seed=0)


class TrajectoriesContract(GymnasiumTrajectories):
    """Observations, rewards, flags and infos through many autoresets, compared number by number."""

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    @pytest.mark.parametrize("copy", [True, False], ids=["copy", "live"])
    def test_counters_that_reuse_their_array_equal_single_environments(self, mode: AutoresetMode, copy: bool) -> None:
        """The same with environments that return one array again and again, overwritten in place."""
        self._compare_counters(mode, copy, reuse_buffer=True)

    def test_any_order_of_operations_equals_single_environments(self) -> None:
        """Steps, resets, seeds, masks and looks in any order leave every environment where the oracle's is."""

        @hypothesis.settings(
            max_examples=self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(
            st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 2**self.num_envs - 1)), max_size=30),
            st.sampled_from(MODES),
        )
        def check(operations: list[tuple[str, int]], mode: AutoresetMode) -> None:
            fns = counter_fns(self.num_envs)
            reference = ReferenceFleet(fns, mode)
            with self.fleet(fns, autoreset_mode=mode) as envs:
                assert_reset(envs.reset(seed=1), reference.reset(range(1, 1 + self.num_envs)), _space(reference))
                for operation, number in operations:
                    self._operate(envs, reference, operation, number)

        check()

    def _operate(self, envs: Fleet, reference: ReferenceFleet, operation: str, number: int) -> None:
        mask = (number >> np.arange(self.num_envs)) % 2 == 1
        if operation == "step":
            self._step_both(envs, reference, np.full(self.num_envs, number % 10))
        elif operation == "reset":
            assert_reset(envs.reset(), reference.reset(), _space(reference))
        elif operation == "seeded reset":
            seeds = [number + i if mask[i] else None for i in range(self.num_envs)]
            assert_reset(envs.reset(seed=seeds), reference.reset(seeds), _space(reference))
        elif operation == "masked reset":
            assert_reset(envs.reset(options={"reset_mask": mask}), reference.reset(mask=mask), _space(reference))
        else:
            counters: list[Any] = list(reference.envs)
            assert envs.get_attr("episode") == tuple(env.episode for env in counters)
            assert envs.get_attr("steps") == tuple(env.steps for env in counters)

    def _step_both(self, envs: Fleet, reference: ReferenceFleet, actions: npt.NDArray[np.int64]) -> None:
        if reference.mode == AutoresetMode.DISABLED and any(reference.finished):
            with pytest.raises(gym.error.ResetNeeded):
                envs.step(actions)
        elif actions[0] % 2:
            envs.step_async(actions)
            assert_step(envs.step_wait(), reference.step(actions), _space(reference))
        else:
            assert_step(envs.step(actions), reference.step(actions), _space(reference))


def _space(reference: ReferenceFleet) -> Any:
    return reference.observation_space
