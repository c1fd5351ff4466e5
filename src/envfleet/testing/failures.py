"""Contract: an environment that raises is named, the others go on, and a reset mends the fleet."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import OrderEnforcing

from envfleet.errors import EnvRaisedError, FleetError, WorkerError
from envfleet.testing.base import ContractBase, EnvFn, Fleet, mask_of, pytest
from envfleet.testing.envs import (
    BrokenConstructorEnv,
    Command,
    CounterConfig,
    CounterEnv,
    Observation,
    OddError,
    endless_fns,
    trouble_fns,
)


class FailuresContract(ContractBase):
    """One EnvRaisedError for the lowest failing index; ResetNeeded until reset(); then as new."""

    def _assert_mended(self, envs: Fleet) -> None:
        """Assert that a reset brings the fleet back to ordinary work."""
        observations, _ = envs.reset(seed=0)
        assert observations[:, 2].tolist() == [0] * self.num_envs
        observations, *_ = envs.step(np.full(self.num_envs, 6))
        assert observations[:, 2:4].tolist() == [[1, 6]] * self.num_envs

    def test_an_error_in_step_names_the_environment(self) -> None:
        """The error is an EnvRaisedError and the original type, with index, method, message and traceback."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(EnvRaisedError, match="environment 3 was told to raise") as caught:
                envs.step(self.order({3: Command.RAISE}))
            error = caught.value
            assert isinstance(error, ZeroDivisionError)
            assert isinstance(error, (WorkerError, FleetError))
            assert error.env_indices == (3,)
            assert error.method == "step"
            assert "in obey" in error.traceback_text
            assert "ZeroDivisionError" in error.traceback_text
            assert isinstance(error.__cause__, ZeroDivisionError)
            self._assert_mended(envs)

    def test_an_error_in_reset_names_the_environment(self) -> None:
        """A failing reset is an EnvRaisedError of method "reset"; the next reset works."""
        fail = {"command": int(Command.RAISE)}
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            with pytest.raises(EnvRaisedError) as caught:
                envs.reset(options=[fail if i == 2 else None for i in range(self.num_envs)])
            assert isinstance(caught.value, ZeroDivisionError)
            assert caught.value.env_indices == (2,)
            assert caught.value.method == "reset"
            with pytest.raises(ResetNeeded):
                envs.step(self.zeros())
            self._assert_mended(envs)

    def test_an_error_in_an_autoreset_names_the_environment(self) -> None:
        """A reset that fails inside a step is reported like any failure of that environment."""
        fns = [partial(_OneLifeEnv, CounterConfig(index=i, length=1)) for i in range(self.num_envs)]
        for mode in ("NextStep", "SameStep"):
            with self.fleet(fns, autoreset_mode=mode) as envs:
                envs.reset()
                with pytest.raises(EnvRaisedError, match="second life") as caught:
                    for _ in range(2):
                        envs.step(self.zeros())
                assert isinstance(caught.value, LookupError)
                assert caught.value.env_indices == (0,)

    def test_the_others_are_still_stepped(self) -> None:
        """When one environment raises, every other one has made its step."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(ZeroDivisionError):
                envs.step(self.order({1: Command.RAISE}))
            assert envs.get_attr("steps") == tuple(int(i != 1) for i in range(self.num_envs))

    def test_the_lowest_index_is_reported(self) -> None:
        """When several environments raise, the error names the first of them."""
        for lowest in range(self.num_envs - 1):
            with self.fleet(trouble_fns(self.num_envs)) as envs:
                envs.reset()
                orders: dict[int, int] = dict.fromkeys(range(lowest, self.num_envs), Command.RAISE)
                with pytest.raises(EnvRaisedError) as caught:
                    envs.step(self.order(orders))
                assert caught.value.env_indices[0] == lowest

    def test_after_an_error_a_reset_is_needed(self) -> None:
        """Until reset() every step raises ResetNeeded and steps nothing; calls still work."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(EnvRaisedError):
                envs.step(self.order({0: Command.RAISE}))
            for _ in range(2):
                with pytest.raises(ResetNeeded):
                    envs.step(self.zeros())
                with pytest.raises(ResetNeeded):
                    envs.step_async(self.zeros())
            assert envs.call("describe", "alive")[0] == "alive 0!"
            assert envs.get_attr("steps")[1:] == (1,) * (self.num_envs - 1)
            self._assert_mended(envs)

    def test_after_an_error_a_masked_reset_is_not_enough(self) -> None:
        """After an error only a reset of all environments makes the fleet steppable again."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(EnvRaisedError):
                envs.step(self.order({0: Command.RAISE}))
            with suppress(ResetNeeded):
                envs.reset(options={"reset_mask": mask_of(self.num_envs, 0)})
            with pytest.raises(ResetNeeded):
                envs.step(self.zeros())
            self._assert_mended(envs)

    def test_an_error_in_step_wait_is_reported_once(self) -> None:
        """step_async + step_wait report the error at the wait, and nothing stays pending."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            envs.step_async(self.order({2: Command.RAISE}))
            with pytest.raises(EnvRaisedError, match="environment 2"):
                envs.step_wait()
            self._assert_mended(envs)

    def test_odd_exceptions_are_carried_over(self) -> None:
        """An exception that cannot be rebuilt from its args still arrives with its message and traceback."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(EnvRaisedError, match="odd environment 1 and 2") as caught:
                envs.step(self.order({1: Command.RAISE_ODD}))
            assert isinstance(caught.value, OddError)
            assert "OddError" in caught.value.traceback_text
            self._assert_mended(envs)

    def test_unpicklable_exceptions_are_carried_over(self) -> None:
        """An exception that holds something no pickle can carry still arrives with message and traceback."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(EnvRaisedError, match="environment 4 holds a lock") as caught:
                envs.step(self.order({4: Command.RAISE_UNPICKLABLE}))
            assert isinstance(caught.value, RuntimeError)
            assert "RuntimeError" in caught.value.traceback_text
            self._assert_mended(envs)

    @pytest.mark.parametrize("broken", ["first", "middle", "last"])
    def test_a_failing_constructor_names_the_environment(self, broken: str) -> None:
        """A constructor that raises gives its own error type, the index and the message, not a broken pipe."""
        index = {"first": 0, "middle": 2, "last": self.num_envs - 1}[broken]
        fns: list[EnvFn] = list(endless_fns(self.num_envs))
        fns[index] = partial(BrokenConstructorEnv, CounterConfig(index=index))
        with pytest.raises(WorkerError, match="told to raise") as caught:
            self.make(fns)
        assert isinstance(caught.value, ZeroDivisionError)
        assert caught.value.env_indices == (index,)

    def test_an_error_of_the_environment_keeps_its_meaning(self) -> None:
        """Stepping an order-enforcing environment before its reset raises ResetNeeded, as the environment does."""

        def enforced(index: int) -> gym.Env[Any, Any]:
            return OrderEnforcing(CounterEnv(CounterConfig(index=index)))

        with self.fleet([partial(enforced, i) for i in range(self.num_envs)]) as envs:
            with pytest.raises(ResetNeeded):
                envs.step(self.zeros())
            self._assert_mended(envs)


class _OneLifeEnv(CounterEnv):
    """Can be reset once; environment 0 then raises."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        if self.episode == 1 and self.index == 0:
            raise LookupError("there is no second life")
        return super().reset(seed=seed, options=options)
