"""The part of `FirstReadyContract` for which any environments do whose episodes end and whose actions are 0 and 1."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import EnvFn, Fleet, pytest
from envfleet.testing.compare import assert_same, assert_step
from envfleet.testing.envs import endless_fns
from envfleet.testing.reference import ReferenceFleet, Rows, stack_items
from envfleet.testing.refused_tickets import RefusedTickets
from envfleet.testing.single_resets import SingleResets
from envfleet.testing.strategies import hypothesis
from envfleet.testing.waiting import GENEROUS

# isort: split
from hypothesis import strategies as st

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


class Story:
    """What each environment of an oracle says, row by row: the first after its reset, then one per step."""

    def __init__(self, reference: ReferenceFleet, actions: Sequence[Sequence[Any]], seed: int) -> None:
        num_envs = len(reference.envs)
        self.space, self._told = reference.observation_space, [0] * num_envs
        first = reference.reset(range(seed, seed + num_envs))
        zeros, no = [0.0] * num_envs, [False] * num_envs
        self._rows = [Rows(first.observations, first.infos, zeros, no, no)]
        for step in range(max(map(len, actions))):
            self._rows.append(reference.step([own[step] for own in actions]))

    def assert_told(self, result: Any) -> list[int]:
        """Assert that a batch is what these environments have to say next; returns who they are."""
        *outputs, infos = result
        ids = infos.pop("env_id")
        assert ids.dtype == np.int64
        assert len(set(ids.tolist())) == len(ids)
        batch = Rows([], [])
        for env in ids.tolist():
            row = self._rows[self._told[env]]
            self._told[env] += 1
            for field in ("observations", "infos", "rewards", "terminated", "truncated"):
                getattr(batch, field).append(getattr(row, field)[env])
        assert_step((*outputs, infos), batch, self.space)
        told: list[int] = ids.tolist()
        return told


class Tickets(SingleResets, RefusedTickets):
    """Each environment's own trajectory is what it would be alone, whatever the order in which they come and go."""

    def _play(self, envs: Fleet, fns: Sequence[EnvFn], mode: AutoresetMode, steps: int, order: Iterable[int]) -> None:
        """Play every environment for so many steps, sending in a shuffled order and sometimes late."""
        reference = ReferenceFleet(fns, mode)
        reference.action_space.seed(5)
        actions = [[reference.action_space.sample() for _ in range(steps)] for _ in fns]
        story, choices = Story(reference, actions, seed=3), iter(order)
        sent, idle = [0] * len(fns), list[int]()
        envs.async_reset(seed=3)
        out = len(fns)
        while out or idle:
            if out:
                told = story.assert_told(envs.recv())
                assert len(told) == min(envs.first_ready, out)
                out -= len(told)
                idle += [env for env in told if sent[env] < steps]
            choice = next(choices, 0)
            now = idle[choice % 3 :][::-1] or (idle if not out else [])
            if now:
                action_batch = [actions[env][sent[env]] for env in now]
                envs.send(stack_items(reference.action_space, action_batch), np.array(now))
                for env in now:
                    sent[env] += 1
                out, idle = out + len(now), [env for env in idle if env not in now]

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    @pytest.mark.parametrize("first_ready", [1, 2, 5, None])
    def test_trajectories_are_those_of_single_environments(self, mode: AutoresetMode, first_ready: int | None) -> None:
        """Whatever the batch size, each environment's observations, rewards, flags and infos are its own."""
        fns = self.ending_fns()
        with self.fleet(fns, autoreset_mode=mode, first_ready=first_ready) as envs:
            assert envs.first_ready == (first_ready or self.num_envs)
            self._play(envs, fns, mode, 20, [])

    def test_any_order_of_sending_gives_the_same_trajectories(self) -> None:
        """Results may be answered late, in part and in any order, and no environment notices."""

        @hypothesis.settings(
            max_examples=self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(
            st.integers(1, self.num_envs), st.lists(st.integers(0, 9), max_size=60), st.sampled_from(MODES)
        )
        def check(first_ready: int, order: list[int], mode: AutoresetMode) -> None:
            fns = self.ending_fns()
            with self.fleet(fns, autoreset_mode=mode, first_ready=first_ready) as envs:
                self._play(envs, fns, mode, 8, order)

        check()

    def test_steps_and_tickets_may_take_turns(self) -> None:
        """Once everything was received, step() goes on where the tickets stopped, and the other way round."""
        fns = self.ending_fns()
        reference = ReferenceFleet(fns, AutoresetMode.NEXT_STEP)
        space = reference.observation_space
        with self.fleet(fns, first_ready=2) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            for step in range(6):
                actions = (np.arange(self.num_envs) + step) % 2
                rows = reference.step(actions)
                assert_step(envs.step(actions), rows, space)
                rows, found = reference.step(actions), defaultdict[int, Any](lambda: None)
                envs.send(actions)
                for _ in range(-(-self.num_envs // 2)):
                    observations, *_, infos = envs.recv()
                    found.update(zip(infos["env_id"].tolist(), observations, strict=True))
                assert_same([found[env] for env in range(self.num_envs)], rows.observations)

    def test_results_are_the_callers_to_keep(self) -> None:
        """Also with copy=False: what recv() returned does not change when the environments go on."""
        with self.fleet(endless_fns(self.num_envs), copy=False) as envs:
            envs.reset(seed=0)
            envs.send(self.zeros())
            observations, rewards, *_ = envs.recv()
            kept = observations.copy(), rewards.copy()
            envs.send(self.zeros())
            envs.recv()
            assert_same((observations, rewards), kept)

    def test_nobody_starves_however_quickly_the_others_are_sent_back(self) -> None:
        """With one result at a time and everyone sent back at once, all environments get their turns."""
        with self.fleet(endless_fns(self.num_envs), first_ready=1) as envs:
            envs.reset()
            envs.send(self.zeros())
            turns, deadline = np.zeros(self.num_envs, np.int64), time.monotonic() + GENEROUS
            while turns.min() < 20:
                assert time.monotonic() < deadline, f"turns: {turns}"
                env = int(envs.recv()[4]["env_id"][0])
                turns[env] += 1
                envs.send(np.zeros(1, np.int64), [env])

    # -- resets and ends ------------------------------------------------------------------------------

    def test_disabled_refuses_to_send_to_a_finished_environment(self) -> None:
        """Those that have ended need a masked reset; the others can be sent to."""
        with self.fleet(self.ending_fns(), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            finished = np.zeros(self.num_envs, np.bool_)
            while not finished.any():
                envs.send(self.zeros())
                _, _, terminated, truncated, infos = envs.recv()
                finished[infos["env_id"]] = terminated | truncated
            ended, running = np.flatnonzero(finished), np.flatnonzero(~finished)
            with pytest.raises(ResetNeeded, match=str(ended[0])):
                envs.send(self.zeros())
            envs.send(np.zeros(len(running), np.int64), running)
            envs.recv()
            envs.reset(options={"reset_mask": finished})
            envs.send(np.zeros(len(ended), np.int64), ended)
            assert sorted(envs.recv()[4]["env_id"].tolist()) == ended.tolist()

    def test_a_fleet_at_work_can_be_closed(self) -> None:
        """close() with environments out is clean, and afterwards everything is refused."""
        envs = self.make(endless_fns(self.num_envs), first_ready=1)
        envs.reset()
        envs.send(self.zeros())
        envs.recv()
        envs.close()
        for refused in (lambda: envs.send(self.zeros()), envs.recv, envs.async_reset):
            with pytest.raises(ClosedEnvironmentError):
                refused()
