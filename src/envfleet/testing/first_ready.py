"""Contract for backends that give results as they come: `send`, `recv`, `async_reset`.

Not part of `VectorEnvContract`: where the caller steps environments itself there is nobody to wait for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.error import NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode

from envfleet.errors import EnvRaisedError
from envfleet.testing.base import EnvFn, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import Command, Frame, PlaybackEnv, endless_fns, trouble_fns
from envfleet.testing.spaces import ZOO, as_received, samples
from envfleet.testing.strategies import hypothesis, info_scripts
from envfleet.testing.tickets import Tickets

# isort: split
from hypothesis import strategies as st

SPACES = ("Box", "Discrete", "Text", "OneOf", "custom", "Tuple", "Dict", "mixed", "deep")


class FirstReadyContract(Tickets):
    """Each environment's own trajectory is what it would be alone, whoever is ready first; nothing is lost."""

    @pytest.mark.parametrize("name", SPACES)
    def test_every_space_travels_both_ways_by_tickets(self, name: str) -> None:
        """Dicts, tuples and spaces without a layout come and go one environment at a time."""
        space: Any = ZOO[name]
        frames = [[Frame(sample) for sample in samples(space, index, 5)] for index in range(3)]
        fns: list[EnvFn] = [partial(PlaybackEnv, space, own, space) for own in frames]
        with self.fleet(fns, first_ready=2) as envs:
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
        def check(script: list[list[dict[str, Any]]], first_ready: int) -> None:
            fns = [
                partial(PlaybackEnv, ZOO["Discrete"], [Frame(0, info=step[env]) for step in script]) for env in range(3)
            ]
            with self.fleet(fns, first_ready=first_ready) as envs:
                self._play(envs, fns, AutoresetMode.NEXT_STEP, len(script) - 1, [])

        check()

    def test_those_that_share_a_process_get_equal_turns(self) -> None:
        """With one result at a time; how many turns a process gets is the machine's to decide."""
        with self.fleet(endless_fns(self.num_envs), first_ready=1) as envs:
            processes = np.array(envs.call("process_id"))
            envs.reset()
            envs.send(self.zeros())
            turns = np.zeros(self.num_envs, np.int64)
            for _ in range(20 * self.num_envs):
                env = int(envs.recv()[4]["env_id"][0])
                turns[env] += 1
                envs.send(np.zeros(1, np.int64), [env])
                for own in (turns[processes == process] for process in set(processes)):
                    assert own.max() - own.min() <= 1

    # -- resets and ends ------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["reset", "async_reset"])
    def test_a_reset_forgets_what_is_under_way(self, how: str) -> None:
        """After reset() or async_reset() nothing of an earlier send() is ever received."""
        with self.fleet(endless_fns(self.num_envs), first_ready=2) as envs:
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

    def test_a_single_reset_hands_over_its_own_options(self) -> None:
        """Each environment named gets its seed and options; the others are not reset."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(seed=0)
            envs.async_reset(env_ids=[3, 1], seed=5, options=[{"level": 3}, None])
            _, rewards, terminated, truncated, infos = envs.recv()
            assert not np.concatenate([rewards, terminated, truncated]).any()
            assert sorted(infos["env_id"].tolist()) == [1, 3]
            assert infos["seeded"].tolist() == [True, True]
            assert envs.get_attr("episode") == tuple(2 if env in (1, 3) else 1 for env in range(self.num_envs))
            assert [seeds[-1] for seeds in envs.get_attr("seeds")] == [0, 6, 2, 8, 4]
            assert envs.get_attr("options")[3][-1] == {"level": 3}
            assert envs.get_attr("options")[1][-1] is None
            envs.async_reset(env_ids=[0], options={"level": 7})
            envs.recv()
            assert envs.get_attr("options")[0][-1] == {"level": 7}

    def test_an_environment_that_raises_asks_for_a_reset(self) -> None:
        """Its error comes out of recv(); then only reset() or async_reset() help, and they do."""
        with self.fleet(trouble_fns(self.num_envs), first_ready=1) as envs:
            for how in ("reset", "async_reset"):
                envs.reset()
                envs.send(self.order({2: Command.RAISE}))
                with pytest.raises(EnvRaisedError, match="environment 2 was told to raise") as caught:
                    for _ in range(self.num_envs):
                        envs.recv()
                assert caught.value.env_indices == (2,)
                send, reset_one = (lambda: envs.send(np.zeros(1, np.int64), [0])), lambda: envs.async_reset(env_ids=2)
                for refused in (send, reset_one, envs.recv):
                    with pytest.raises(ResetNeeded):
                        refused()
                getattr(envs, how)()
                if how == "async_reset":
                    assert {int(envs.recv()[4]["env_id"][0]) for _ in range(self.num_envs)} == set(range(self.num_envs))
                envs.send(self.zeros())
                assert envs.recv()[0][0, 2] == 1
