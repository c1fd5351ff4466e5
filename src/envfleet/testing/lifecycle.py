"""Contract: a fleet closes once, whatever happened before, and says so afterwards."""

from __future__ import annotations

import gc
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError

from envfleet.testing.base import ContractBase, EnvFn, Fleet, pytest
from envfleet.testing.envs import Command, CounterConfig, CounterEnv, counter_fns, endless_fns, trouble_fns
from envfleet.testing.waiting import OPERATIONS, START


class GymnasiumLifecycle(ContractBase):
    """Closing closes every environment, once."""

    def _closes(self, folder: Path) -> list[int]:
        """Return how often each environment was closed."""
        logs = [folder / str(i) for i in range(self.num_envs)]
        return [len(log.read_text().splitlines()) if log.exists() else 0 for log in logs]

    def test_close_closes_every_environment_once(self, tmp_path: Path) -> None:
        """close() calls close() of each environment exactly once, and a second close() does nothing."""
        envs = self.made(counter_fns(self.num_envs, close_log=str(tmp_path)))
        envs.reset()
        before = self._closes(tmp_path)
        envs.close()
        assert envs.closed is True
        envs.close()
        envs.close(timeout=1, terminate=True)
        assert [after - start for after, start in zip(self._closes(tmp_path), before, strict=True)] == [
            1
        ] * self.num_envs

    @pytest.mark.parametrize("how", [{}, {"timeout": 5}, {"terminate": True}], ids=repr)
    def test_close_takes_gymnasiums_arguments(self, how: dict[str, Any]) -> None:
        """close(timeout=..., terminate=...) works on every backend."""
        envs = self.made(endless_fns(self.num_envs))
        envs.reset()
        envs.close(**how)
        assert envs.closed is True

    def test_a_fleet_that_was_never_used_closes(self) -> None:
        """close() right after construction is fine."""
        envs = self.made(endless_fns(self.num_envs))
        envs.close()
        assert envs.closed is True


class LifecycleContract(GymnasiumLifecycle):
    """Closing is idempotent, bounded in time, and possible after any failure."""

    @pytest.mark.parametrize("name", [*OPERATIONS, *(f"{name}_wait" for name in START), "render"])
    def test_a_closed_fleet_refuses_everything(self, name: str) -> None:
        """After close() every operation raises ClosedEnvironmentError."""
        envs = self.make(endless_fns(self.num_envs))
        envs.reset()
        envs.close()
        with pytest.raises(ClosedEnvironmentError):
            OPERATIONS[name](envs) if name in OPERATIONS else getattr(envs, name)()

    def test_with_closes_at_the_end(self) -> None:
        """`with` gives the fleet itself and closes it."""
        made = self.make(endless_fns(self.num_envs))
        with made as envs:
            assert envs is made
            envs.reset()
        assert made.closed is True

    def test_with_closes_after_an_error(self) -> None:
        """`with` closes the fleet and lets the error through."""
        made = self.make(endless_fns(self.num_envs))
        with pytest.raises(KeyError, match="mine"), made:
            raise KeyError("mine")
        assert made.closed is True

    @pytest.mark.parametrize("pending", START)
    def test_a_fleet_with_a_pending_call_closes(self, pending: str, tmp_path: Path) -> None:
        """close() while a call is pending neither raises nor warns, and still closes the environments."""
        envs = self.make(counter_fns(self.num_envs, close_log=str(tmp_path)))
        envs.reset()
        START[pending](envs)
        envs.close()
        assert envs.closed is True
        assert min(self._closes(tmp_path)) >= 1

    @pytest.mark.parametrize("where", ["step", "reset", "call"])
    def test_a_fleet_closes_after_a_failure(self, where: str, tmp_path: Path) -> None:
        """close() after an environment raised closes every environment and does not raise."""
        envs = self.make(trouble_fns(self.num_envs, close_log=str(tmp_path)))
        envs.reset()
        with pytest.raises(ZeroDivisionError):
            self._fail(envs, where)
        envs.close()
        assert envs.closed is True
        assert min(self._closes(tmp_path)) >= 1
        with pytest.raises(ClosedEnvironmentError):
            envs.reset()

    @pytest.mark.parametrize("where", ["step", "reset"])
    def test_a_fleet_closes_with_an_uncollected_failure(self, where: str) -> None:
        """close() while a call is pending that will fail does not raise either."""
        envs = self.make(trouble_fns(self.num_envs))
        envs.reset()
        if where == "step":
            envs.step_async(self.order({1: Command.RAISE}))
        else:
            envs.reset_async(options={"command": int(Command.RAISE)})
        envs.close()
        assert envs.closed is True

    def _fail(self, envs: Fleet, where: str) -> None:
        if where == "step":
            envs.step(self.order({1: Command.RAISE}))
        elif where == "reset":
            envs.reset(options={"command": int(Command.RAISE)})
        else:
            envs.call("obey", int(Command.RAISE))

    def test_an_environment_that_fails_to_close_does_not_keep_the_others_open(self, tmp_path: Path) -> None:
        """When one environment's close() raises the others are closed all the same; the fleet may warn of it."""
        fns: list[EnvFn] = [
            partial(_StuckDoorEnv if i == 1 else CounterEnv, CounterConfig(index=i, close_log=str(tmp_path)))
            for i in range(self.num_envs)
        ]
        envs = self.make(fns)
        envs.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            envs.close()
        assert envs.closed is True
        envs.close()
        closes = self._closes(tmp_path)
        assert min(closes[:1] + closes[2:]) >= 1

    def test_a_forgotten_fleet_is_collected(self) -> None:
        """A fleet that is dropped without close() is garbage like any other, and the next one works."""
        envs = self.make(endless_fns(self.num_envs))
        envs.reset()
        del envs
        gc.collect()
        with self.fleet(endless_fns(self.num_envs)) as again:
            assert again.reset()[0].shape == (self.num_envs, 5)

    def test_two_fleets_do_not_meet(self) -> None:
        """Two fleets side by side keep their own state."""
        with self.fleet(endless_fns(self.num_envs)) as left, self.fleet(endless_fns(self.num_envs)) as right:
            left.reset(seed=0)
            right.reset(seed=0)
            left.step_async(np.full(self.num_envs, 1))
            right.step_async(np.full(self.num_envs, 2))
            assert right.step_wait()[0][:, 3].tolist() == [2] * self.num_envs
            assert left.step_wait()[0][:, 3].tolist() == [1] * self.num_envs


class _StuckDoorEnv(CounterEnv):
    """Cannot be closed."""

    def close(self) -> None:
        raise OSError("the door is stuck")
