"""Contract for backends that give results as they come: `send`, `recv`, `async_reset`.

Not part of `VectorEnvContract`: where the caller steps environments itself there is nobody to wait for.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode

from envfleet.errors import EnvRaisedError
from envfleet.testing.base import EnvFn, Fleet, mask_of, pytest
from envfleet.testing.compare import assert_same, assert_step
from envfleet.testing.envs import Command, Frame, PlaybackEnv, counter_fns, endless_fns, trouble_fns
from envfleet.testing.reference import ReferenceFleet, Rows, stack_items
from envfleet.testing.refused_tickets import RefusedTickets
from envfleet.testing.spaces import ZOO, as_received, samples
from envfleet.testing.strategies import hypothesis, info_scripts
from envfleet.testing.waiting import GENEROUS

# isort: split
from hypothesis import strategies as st

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
SPACES = ("Box", "Discrete", "Text", "OneOf", "custom", "Tuple", "Dict", "mixed", "deep")


class Story:
    """What each environment of an oracle says, row by row: the first after its reset, then one a step."""

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


class FirstReadyContract(RefusedTickets):
    """Each environment's own trajectory is what it would be alone, whoever is ready first; nothing is lost."""

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
                assert len(told) == min(envs.batch_size, out)
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
    @pytest.mark.parametrize("batch_size", [1, 2, 5, None])
    def test_trajectories_are_those_of_single_environments(self, mode: AutoresetMode, batch_size: int | None) -> None:
        """Whatever the batch size, each environment's observations, rewards, flags and infos are its own."""
        fns = counter_fns(self.num_envs)
        with self.fleet(fns, autoreset_mode=mode, batch_size=batch_size) as envs:
            assert envs.batch_size == (batch_size or self.num_envs)
            self._play(envs, fns, mode, 20, [])

    def test_any_order_of_sending_gives_the_same_trajectories(self) -> None:
        """Results may be answered late, in part and in any order, and no environment notices."""

        @hypothesis.settings(
            max_examples=self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(
            st.integers(1, self.num_envs), st.lists(st.integers(0, 9), max_size=60), st.sampled_from(MODES)
        )
        def check(batch_size: int, order: list[int], mode: AutoresetMode) -> None:
            fns = counter_fns(self.num_envs)
            with self.fleet(fns, autoreset_mode=mode, batch_size=batch_size) as envs:
                self._play(envs, fns, mode, 8, order)

        check()

    @pytest.mark.parametrize("name", SPACES)
    def test_every_space_travels_both_ways_by_tickets(self, name: str) -> None:
        """Dicts, tuples and spaces without a layout come and go one environment at a time."""
        space: Any = ZOO[name]
        frames = [[Frame(sample) for sample in samples(space, index, 5)] for index in range(3)]
        fns: list[EnvFn] = [partial(PlaybackEnv, space, own, space) for own in frames]
        with self.fleet(fns, batch_size=2) as envs:
            self._play(envs, fns, AutoresetMode.NEXT_STEP, 4, [1, 0, 2])
            space.seed(5)
            wanted = [[as_received(space, space.sample()) for _ in range(4)] for _ in fns]
            for got, sent in zip(envs.get_attr("received"), wanted, strict=True):
                for one, other in zip(got, sent, strict=True):
                    assert_same(as_received(space, one), other)

    def test_infos_of_any_kind_are_batched_over_those_who_came(self) -> None:
        """Info columns have one entry a result, with the dtypes and masks that a fleet of just these would have."""

        @hypothesis.settings(
            max_examples=self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(info_scripts(3), st.integers(1, 3))
        def check(script: list[list[dict[str, Any]]], batch_size: int) -> None:
            fns = [
                partial(PlaybackEnv, ZOO["Discrete"], [Frame(0, info=step[env]) for step in script]) for env in range(3)
            ]
            with self.fleet(fns, batch_size=batch_size) as envs:
                self._play(envs, fns, AutoresetMode.NEXT_STEP, len(script) - 1, [])

        check()

    def test_steps_and_tickets_may_take_turns(self) -> None:
        """Once everything was received, step() goes on where the tickets stopped, and the other way round."""
        fns = counter_fns(self.num_envs)
        reference = ReferenceFleet(fns, AutoresetMode.NEXT_STEP)
        space = reference.observation_space
        with self.fleet(fns, batch_size=2) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            for step in range(6):
                actions = np.full(self.num_envs, step)
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
        """With one result a time, everyone gets its turns, and those that share a process get equally many."""
        with self.fleet(endless_fns(self.num_envs), batch_size=1) as envs:
            processes = np.array(envs.call("process_id"))
            envs.reset()
            envs.send(self.zeros())
            turns, deadline = np.zeros(self.num_envs, np.int64), time.monotonic() + GENEROUS
            while turns.min() < 20:
                assert time.monotonic() < deadline, f"turns: {turns}"
                env = int(envs.recv()[4]["env_id"][0])
                turns[env] += 1
                envs.send(np.zeros(1, np.int64), [env])
                # How many a process gets is the machine's to decide.
                for own in (turns[processes == process] for process in set(processes)):
                    assert own.max() - own.min() <= 1

    # -- resets and ends ------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["reset", "async_reset"])
    def test_a_reset_forgets_what_is_under_way(self, how: str) -> None:
        """After reset() or async_reset() nothing of an earlier send() is ever received."""
        with self.fleet(endless_fns(self.num_envs), batch_size=2) as envs:
            envs.reset(seed=0)
            envs.send(np.full(self.num_envs, 7))
            envs.recv()
            getattr(envs, how)(seed=1)
            if how == "async_reset":
                for _ in range(-(-self.num_envs // 2)):
                    observations, *_, infos = envs.recv()
                    assert observations[:, 1:4].tolist() == [[2, 0, -1]] * len(observations)
                    assert infos["episode"].tolist() == [2] * len(observations)
            with pytest.raises(NoAsyncCallError):
                envs.recv()
            envs.send(np.full(self.num_envs, 4))
            observations, *_, infos = envs.recv()
            assert observations[:, 1:4].tolist() == [[2, 1, 4]] * 2
            assert infos["step"].tolist() == [1, 1]

    def test_an_async_reset_hands_over_seeds_and_options(self) -> None:
        """Each environment gets its own seed and options, and its rows say reward 0 and no end."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.async_reset(seed=5, options=[{"level": i} for i in range(self.num_envs)])
            _, rewards, terminated, truncated, infos = envs.recv()
            assert not np.concatenate([rewards, terminated, truncated]).any()
            assert infos["seeded"].all()
            assert [seeds[-1] for seeds in envs.get_attr("seeds")] == [5 + i for i in range(self.num_envs)]
            assert [one[-1] for one in envs.get_attr("options")] == [{"level": i} for i in range(self.num_envs)]
            with pytest.raises(ValueError, match="reset_mask"):
                envs.async_reset(options={"reset_mask": mask_of(self.num_envs, 0)})

    def test_disabled_refuses_to_send_to_a_finished_environment(self) -> None:
        """Those that have ended need a masked reset; the others can be sent to."""
        with self.fleet(counter_fns(self.num_envs), autoreset_mode=AutoresetMode.DISABLED) as envs:
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

    def test_an_environment_that_raises_asks_for_a_reset(self) -> None:
        """Its error comes out of recv(); then only reset() or async_reset() help, and they do."""
        with self.fleet(trouble_fns(self.num_envs), batch_size=1) as envs:
            for how in ("reset", "async_reset"):
                envs.reset()
                envs.send(self.order({2: Command.RAISE}))
                with pytest.raises(EnvRaisedError, match="environment 2 was told to raise") as caught:
                    for _ in range(self.num_envs):
                        envs.recv()
                assert caught.value.env_indices == (2,)
                for refused in (lambda: envs.send(np.zeros(1, np.int64), [0]), envs.recv):
                    with pytest.raises(ResetNeeded):
                        refused()
                getattr(envs, how)()
                if how == "async_reset":
                    assert {int(envs.recv()[4]["env_id"][0]) for _ in range(self.num_envs)} == set(range(self.num_envs))
                envs.send(self.zeros())
                assert envs.recv()[0][0, 2] == 1

    def test_a_fleet_at_work_can_be_closed(self) -> None:
        """close() with environments out is clean, and afterwards everything is refused."""
        envs = self.make(endless_fns(self.num_envs), batch_size=1)
        envs.reset()
        envs.send(self.zeros())
        envs.recv()
        envs.close()
        for refused in (lambda: envs.send(self.zeros()), envs.recv, envs.async_reset):
            with pytest.raises(ClosedEnvironmentError):
                refused()
