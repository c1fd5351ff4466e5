"""Contract: the asynchronous half, where each `…_async` is followed by its `…_wait`."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, Fleet, pytest
from envfleet.testing.compare import assert_reset, assert_step
from envfleet.testing.envs import counter_fns, endless_fns
from envfleet.testing.reference import ReferenceFleet

GENEROUS = 60.0

START: dict[str, Callable[[Fleet], Any]] = {
    "reset": lambda envs: envs.reset_async(),
    "step": lambda envs: envs.step_async(np.zeros(envs.num_envs, np.int64)),
    "call": lambda envs: envs.call_async("describe", "call"),
}
OPERATIONS: dict[str, Callable[[Fleet], Any]] = {
    **START,
    "whole reset": lambda envs: envs.reset(),
    "whole step": lambda envs: envs.step(np.zeros(envs.num_envs, np.int64)),
    "whole call": lambda envs: envs.call("describe", "call"),
    "get_attr": lambda envs: envs.get_attr("index"),
    "set_attr": lambda envs: envs.set_attr("tag", 1),
}


def _poll(wait: Callable[..., Any]) -> Any:
    """Return what the wait returns at last."""
    deadline = time.monotonic() + GENEROUS
    while True:
        try:
            return wait(timeout=0)
        except multiprocessing.TimeoutError:
            assert time.monotonic() < deadline


class WaitingContract(ContractBase):
    """step = step_async + step_wait; one call at a time; no wait without a call."""

    @pytest.mark.parametrize("timeout", [None, GENEROUS])
    def test_async_and_wait_are_the_same_as_the_whole(self, timeout: float | None) -> None:
        """reset_async + reset_wait and step_async + step_wait return what reset and step return."""
        reference = ReferenceFleet(counter_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        space = reference.observation_space
        with self.fleet(counter_fns(self.num_envs)) as envs:
            envs.reset_async(seed=9)
            assert_reset(envs.reset_wait(timeout=timeout), reference.reset(range(9, 9 + self.num_envs)), space)
            for step in range(8):
                actions = np.full(self.num_envs, step)
                envs.step_async(actions)
                assert_step(envs.step_wait(timeout=timeout), reference.step(actions), space)

    def test_a_wait_may_be_polled(self) -> None:
        """step_wait(timeout=0), asked again until it answers, returns the step once and nothing else."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            for step in range(1, 4):
                envs.step_async(np.full(self.num_envs, step))
                observations, *_ = _poll(envs.step_wait)
                assert observations[:, 2:4].tolist() == [[step, step]] * self.num_envs
            envs.call_async("describe", "polled")
            assert _poll(envs.call_wait)[0] == "polled 0!"

    def test_call_async_and_call_wait_are_a_call(self) -> None:
        """call_async + call_wait return what call returns."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.call_async("describe", "hello", mark="?")
            assert envs.call_wait(timeout=GENEROUS) == tuple(f"hello {i}?" for i in range(self.num_envs))

    @pytest.mark.parametrize("waiting", START)
    def test_a_wait_without_a_call_is_refused(self, waiting: str) -> None:
        """Waiting for a call nobody made raises NoAsyncCallError, also when another call is pending."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(NoAsyncCallError):
                getattr(envs, f"{waiting}_wait")()
            other = "reset" if waiting == "step" else "step"
            START[other](envs)
            with pytest.raises(NoAsyncCallError):
                getattr(envs, f"{waiting}_wait")()
            getattr(envs, f"{other}_wait")()
            with pytest.raises(NoAsyncCallError):
                getattr(envs, f"{other}_wait")()

    @pytest.mark.parametrize("pending", START)
    def test_a_second_call_is_refused_and_the_first_is_kept(self, pending: str) -> None:
        """While a call is pending every other raises AlreadyPendingCallError, and the first can still be collected."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            START[pending](envs)
            for name, operation in OPERATIONS.items():
                with pytest.raises(AlreadyPendingCallError):
                    operation(envs)
                    pytest.fail(f"{name} was accepted while {pending} was pending")
            result = getattr(envs, f"{pending}_wait")()
            if pending == "call":
                assert result == tuple(f"call {i}!" for i in range(self.num_envs))
            else:
                step, episode = (1, 1) if pending == "step" else (0, 2)
                assert result[0][:, 1:3].tolist() == [[episode, step]] * self.num_envs
            envs.step(self.zeros())

    def test_a_refused_call_leaves_nothing_pending(self) -> None:
        """After a refused seed, mask or call name the fleet is as free as before."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(ValueError, match="-1"):
                envs.reset_async(seed=-1)
            with pytest.raises(TypeError):
                envs.reset_async(options={"reset_mask": [True] * self.num_envs})
            with pytest.raises(ValueError, match="step"):
                envs.call_async("step", 0)
            assert envs.step(self.zeros())[0][:, 1:3].tolist() == [[1, 1]] * self.num_envs
