"""The part of `FirstReadyContract` about what `send` and `recv` refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

from envfleet.errors import InvalidActionError
from envfleet.testing.base import ContractBase, Fleet, mask_of, pytest
from envfleet.testing.envs import endless_fns

WHOLE: dict[str, Callable[[Fleet], Any]] = {
    "step": lambda envs: envs.step(np.zeros(envs.num_envs, np.int64)),
    "step_async": lambda envs: envs.step_async(np.zeros(envs.num_envs, np.int64)),
    "call": lambda envs: envs.call("describe", "you"),
    "get_attr": lambda envs: envs.get_attr("index"),
    "set_attr": lambda envs: envs.set_attr("tag", 1),
    "masked reset": lambda envs: envs.reset(options={"reset_mask": mask_of(envs.num_envs, 0)}),
}


class RefusedTickets(ContractBase):
    """What is refused changes nothing: no environment is stepped, none is lost."""

    def _assert_steps(self, envs: Fleet, steps: int) -> None:
        """Assert that everything at work comes back, and then how many steps all have made."""
        while True:
            try:
                envs.recv()
            except NoAsyncCallError:
                break
        assert envs.get_attr("steps") == (steps,) * self.num_envs

    def test_an_environment_at_work_is_not_sent_to(self) -> None:
        """send() to one that has not come back is refused by number, and nothing is sent to the others either."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            envs.send(np.zeros(2, np.int64), [1, 3])
            with pytest.raises(AlreadyPendingCallError, match=r"\[3\]"):
                envs.send(np.zeros(2, np.int64), [2, 3])
            envs.send(np.zeros(self.num_envs - 2, np.int64), [i for i in range(self.num_envs) if i not in (1, 3)])
            self._assert_steps(envs, 1)

    @pytest.mark.parametrize(
        ("env_ids", "error"),
        [([0, 0], ValueError), ([0, 99], IndexError), ([-1, 0], IndexError), ([0.5, 1], TypeError), ([], TypeError)],
        ids=repr,
    )
    def test_wrong_ids_are_refused(self, env_ids: Any, error: type[Exception]) -> None:
        """Ids that repeat, do not exist or are no integers send nothing."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(error, match="env_ids"):
                envs.send(np.zeros(len(env_ids), np.int64), env_ids)
            self._assert_steps(envs, 0)

    @pytest.mark.parametrize(
        "actions", [np.zeros(1, np.int64), np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.array([0.5, 0.5])]
    )
    def test_actions_that_do_not_fit_their_ids_are_refused(self, actions: npt.NDArray[Any]) -> None:
        """There must be one action an id, of the right shape and dtype, or nothing is sent."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(InvalidActionError, match="Nothing was"):
                envs.send(actions, [0, 1])
            self._assert_steps(envs, 0)

    def test_there_is_nothing_to_receive_before_something_was_sent(self) -> None:
        """recv() with no environment at work raises NoAsyncCallError instead of waiting for ever."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(NoAsyncCallError, match="send"):
                envs.recv()
            envs.send(np.zeros(1, np.int64), 2)
            assert envs.recv()[4]["env_id"].tolist() == [2]
            with pytest.raises(NoAsyncCallError):
                envs.recv()

    @pytest.mark.parametrize("operation", WHOLE)
    def test_whole_fleet_operations_wait_until_all_came_back(self, operation: str) -> None:
        """step(), call() and the like are refused, with a word about recv(), while environments are at work."""
        with self.fleet(endless_fns(self.num_envs), batch_size=1) as envs:
            envs.reset()
            envs.send(np.zeros(2, np.int64), [0, 1])
            envs.recv()
            with pytest.raises(AlreadyPendingCallError, match="recv"):
                WHOLE[operation](envs)
            envs.recv()
            WHOLE[operation](envs)

    @pytest.mark.parametrize("batch_size", [0, -1, 99, 1.5, True])
    def test_a_wrong_batch_size_is_refused(self, batch_size: Any) -> None:
        """It lies between one and the number of environments."""
        with pytest.raises(ValueError, match="batch_size"):
            self.make(endless_fns(self.num_envs), batch_size=batch_size)
