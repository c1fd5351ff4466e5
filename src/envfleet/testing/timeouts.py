"""Contract for backends whose environments run elsewhere: a wait that expires loses nothing.

Not part of `VectorEnvContract`: an environment that hangs in the caller's own thread cannot be timed out.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, Fleet, pytest
from envfleet.testing.compare import assert_step
from envfleet.testing.envs import Command, endless_fns, trouble_fns
from envfleet.testing.reference import ReferenceFleet

SHORT = 0.05


def make_fifo(folder: Path) -> str:
    """Return the path of a new fifo: environments that read it hang until `release`."""
    path = folder / "gate"
    os.mkfifo(path)
    return str(path)


def release(fifo: str) -> None:
    """Let one environment that hangs on the fifo go on; blocks until there is one."""
    with Path(fifo).open("w"):
        pass


class TimeoutsContract(ContractBase):
    """An environment hangs; the wait expires, again and again, until the result is there and is collected."""

    hanging: int = 3

    def _hang_in_step(self, envs: Fleet) -> None:
        envs.step_async(self.order({self.hanging: Command.HANG}))

    def _hang_in_reset(self, envs: Fleet) -> None:
        hang = {"command": int(Command.HANG)}
        envs.reset_async(options=[hang if i == self.hanging else None for i in range(self.num_envs)])

    def _assert_expires(self, wait: Callable[[float], Any]) -> None:
        with pytest.raises(multiprocessing.TimeoutError, match=f"within {SHORT} s"):
            wait(SHORT)

    def test_an_expired_step_wait_loses_nothing(self, tmp_path: Path) -> None:
        """The step stays pending, is collected later, and no later step returns anything stale."""
        fifo = make_fifo(tmp_path)
        with self.fleet(trouble_fns(self.num_envs, fifo=fifo)) as envs:
            envs.reset(seed=0)
            for round_number in range(1, 3):
                self._hang_in_step(envs)
                self._assert_expires(envs.step_wait)
                self._assert_expires(envs.step_wait)
                for operation in (envs.step_async, envs.step):
                    with pytest.raises(AlreadyPendingCallError):
                        operation(self.zeros())
                with pytest.raises(AlreadyPendingCallError):
                    envs.reset()
                release(fifo)
                observations, *_ = envs.step_wait()
                assert observations[:, 2].tolist() == [2 * round_number - 1] * self.num_envs
                assert observations[self.hanging, 3] == Command.HANG
                observations, *_ = envs.step(np.full(self.num_envs, 5))
                assert observations[:, 2].tolist() == [2 * round_number] * self.num_envs
                assert observations[:, 3].tolist() == [5] * self.num_envs

    def test_an_expired_reset_wait_loses_nothing(self, tmp_path: Path) -> None:
        """The reset stays pending and is collected later, once."""
        fifo = make_fifo(tmp_path)
        with self.fleet(trouble_fns(self.num_envs, fifo=fifo)) as envs:
            envs.reset()
            self._hang_in_reset(envs)
            self._assert_expires(envs.reset_wait)
            with pytest.raises(AlreadyPendingCallError):
                envs.reset()
            release(fifo)
            observations, _ = envs.reset_wait()
            assert observations[:, 1].tolist() == [2] * self.num_envs
            observations, *_ = envs.step(self.zeros())
            assert observations[:, 1:3].tolist() == [[2, 1]] * self.num_envs

    def test_an_expired_call_wait_loses_nothing(self, tmp_path: Path) -> None:
        """The call stays pending, is collected later, and the next call gets its own result."""
        fifo = make_fifo(tmp_path)
        with self.fleet(trouble_fns(self.num_envs, fifo=fifo)) as envs:
            envs.reset()
            envs.call_async("obey", int(Command.HANG), indices=[self.hanging])
            self._assert_expires(envs.call_wait)
            with pytest.raises(AlreadyPendingCallError):
                envs.call("describe", "too early")
            release(fifo)
            assert envs.call_wait() == ("HANG",)
            assert envs.call("describe", "now")[0] == "now 0!"

    def test_a_trajectory_with_timeouts_is_the_trajectory_without(self, tmp_path: Path) -> None:
        """Steps whose first wait expired give the same numbers as single environments that never waited."""
        fifo = make_fifo(tmp_path)
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        with self.fleet(trouble_fns(self.num_envs, fifo=fifo)) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            for _ in range(3):
                actions = self.order({self.hanging: Command.HANG})
                envs.step_async(actions)
                self._assert_expires(envs.step_wait)
                release(fifo)
                assert_step(envs.step_wait(), reference.step(actions), reference.observation_space)

    @pytest.mark.parametrize("how", [{"terminate": True}, {"timeout": 0.1}], ids=["terminate", "timeout"])
    @pytest.mark.parametrize("where", ["step", "reset"])
    def test_a_hanging_fleet_can_be_closed(self, tmp_path: Path, how: dict[str, Any], where: str) -> None:
        """close(terminate=True) and close(timeout=...) end a fleet in which an environment never returns."""
        envs = self.make(trouble_fns(self.num_envs, fifo=make_fifo(tmp_path)))
        envs.reset()
        self._hang_in_step(envs) if where == "step" else self._hang_in_reset(envs)
        envs.close(**how)
        assert envs.closed
        envs.close()
