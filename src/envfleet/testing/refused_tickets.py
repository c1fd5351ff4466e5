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
    "call": lambda envs: envs.call("np_random_seed"),
    "get_attr": lambda envs: envs.get_attr("render_mode"),
    "set_attr": lambda envs: envs.set_attr("gravity", 1.0),
    "masked reset": lambda envs: envs.reset(options={"reset_mask": mask_of(envs.num_envs, 0)}),
}


# What of Gymnasium's own calls is under way, and what has to be called before anything else.
PENDING: dict[str, tuple[Callable[[Fleet], Any], Callable[[Fleet], Any]]] = {
    "step": (lambda envs: envs.step_async(np.zeros(envs.num_envs, np.int64)), lambda envs: envs.step_wait()),
    "reset": (lambda envs: envs.reset_async(), lambda envs: envs.reset_wait()),
    "call": (lambda envs: envs.call_async("np_random_seed"), lambda envs: envs.call_wait()),
}


class RefusedTickets(ContractBase):
    """What is refused changes nothing: no environment is stepped, none is lost.

    Attributes:
        steps_attribute: the environments' attribute that counts the steps of an episode.
    """

    steps_attribute: str = "steps"

    def _assert_steps(self, envs: Fleet, steps: int) -> None:
        """Assert that everything at work comes back, and then how many steps all have made."""
        while True:
            try:
                envs.recv()
            except NoAsyncCallError:
                break
        assert envs.get_attr(self.steps_attribute) == (steps,) * self.num_envs

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
            with pytest.raises(error, match=r"env_ids.*got \["):
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
        """step(), call() and the like are refused, by the numbers of those to recv() first, and lose none of them."""
        with self.fleet(endless_fns(self.num_envs), first_ready=1) as envs:
            envs.reset()
            envs.send(np.zeros(2, np.int64), [0, 1])
            (came,) = envs.recv()[4]["env_id"].tolist()
            with pytest.raises(AlreadyPendingCallError, match=rf"environments \[{1 - came}\] .* recv"):
                WHOLE[operation](envs)
            assert envs.recv()[4]["env_id"].tolist() == [1 - came]
            WHOLE[operation](envs)

    @pytest.mark.parametrize("pending", PENDING)
    def test_a_call_under_way_is_collected_before_tickets(self, pending: str) -> None:
        """send(), recv() and async_reset() name the call to collect first, which is not disturbed."""
        start, wait = PENDING[pending]
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            start(envs)
            for refused in (lambda: envs.send(self.zeros()), envs.async_reset):
                with pytest.raises(AlreadyPendingCallError, match=f"{pending}_wait"):
                    refused()
            with pytest.raises(NoAsyncCallError, match=f"{pending}_wait"):
                envs.recv()
            wait(envs)
            envs.send(self.zeros())
            self._assert_steps(envs, 2 if pending == "step" else 1)

    @pytest.mark.parametrize("pending", PENDING)
    def test_tickets_are_not_collected_by_another_call(self, pending: str) -> None:
        """step_wait() and the like find nothing of theirs while environments are at work."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            envs.send(self.zeros())
            with pytest.raises(NoAsyncCallError, match=f"{pending}_async"):
                PENDING[pending][1](envs)
            self._assert_steps(envs, 1)

    def test_the_second_async_reset_counts(self) -> None:
        """async_reset() while one is under way begins anew: each environment comes back once, with the new seed."""
        with self.fleet(endless_fns(self.num_envs), first_ready=1) as envs:
            wanted, _ = envs.reset(seed=5)
            envs.async_reset(seed=9)
            envs.recv()
            envs.async_reset(seed=5)
            found = {}
            for _ in range(self.num_envs):
                observations, *_, infos = envs.recv()
                found[int(infos["env_id"][0])] = observations[0, -1]
            assert [found[env] for env in range(self.num_envs)] == wanted[:, -1].tolist()
            with pytest.raises(NoAsyncCallError):
                envs.recv()

    def test_a_masked_reset_forgets_nothing(self) -> None:
        """Refused while environments are at work, also for those that are idle; afterwards it resets those asked."""
        mask = mask_of(self.num_envs, 0)
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            envs.step(self.zeros())
            envs.send(np.zeros(1, np.int64), [2])
            with pytest.raises(AlreadyPendingCallError, match=r"reset\(\) while environments \[2\] are at work"):
                envs.reset(options={"reset_mask": mask})
            assert envs.recv()[4]["env_id"].tolist() == [2]
            envs.reset(options={"reset_mask": mask})
            steps = [0 if env == 0 else 2 if env == 2 else 1 for env in range(self.num_envs)]
            assert list(envs.get_attr(self.steps_attribute)) == steps

    @pytest.mark.parametrize("first_ready", [0, -1, 99, 1.5, True])
    def test_a_wrong_first_ready_is_refused(self, first_ready: Any) -> None:
        """It lies between one and the number of environments."""
        with pytest.raises(ValueError, match="first_ready"):
            self.make(endless_fns(self.num_envs), first_ready=first_ready)
