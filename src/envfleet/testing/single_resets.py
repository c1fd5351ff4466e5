"""The part of `FirstReadyContract` about resets of single environments while others are at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, EnvFn, Fleet, mask_of, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import counter_fns


class Alone:
    """The environments of a fleet, each stepped and reset by hand, and what the fleet has to say of it next."""

    def __init__(self, env_fns: Sequence[EnvFn]) -> None:
        self._envs = [env_fn() for env_fn in env_fns]
        self._next: list[Any] = [None] * len(env_fns)

    def reset(self, env: int, seed: int | None = None) -> None:
        """Reset one environment."""
        observation, _ = self._envs[env].reset(seed=seed)
        self._next[env] = np.array(observation), 0.0, False, False

    def step(self, env: int, action: int) -> None:
        """Step one environment."""
        observation, reward, terminated, truncated, _ = self._envs[env].step(np.int64(action))
        self._next[env] = np.array(observation), float(reward), bool(terminated), bool(truncated)

    def assert_told(self, result: Any) -> list[int]:
        """Assert that a batch is what these environments have to say next, and return who they are."""
        *columns, infos = result
        ids: list[int] = infos["env_id"].tolist()
        for place, env in enumerate(ids):
            assert self._next[env] is not None, f"environment {env} had nothing to say"
            told = tuple(column[place] for column in columns)
            for found, wanted in zip(told, self._next[env], strict=True):
                assert_same(np.asarray(found), np.asarray(wanted, np.asarray(found).dtype))
            self._next[env] = None
        return ids


def _lasts(env_fn: EnvFn, seed: int, steps: int) -> bool:
    """Return whether an environment's episode goes on for so many steps."""
    env = env_fn()
    env.reset(seed=seed)
    return not any(any(env.step(np.int64(0))[2:4]) for _ in range(steps))


class SingleResets(ContractBase):
    """`async_reset(env_ids=…)` resets the environments named, and no other environment notices."""

    def ending_fns(self) -> list[EnvFn]:
        """Return makers of environments whose episodes end after a few steps: `num_envs` of them."""
        return list(counter_fns(self.num_envs))

    def _begin(self, envs: Fleet) -> Alone:
        """Reset all environments of a fleet, and by hand."""
        alone = Alone(self.ending_fns())
        envs.async_reset(seed=3)
        for env in range(self.num_envs):
            alone.reset(env, 3 + env)
        came = 0
        while came < self.num_envs:
            came += len(alone.assert_told(envs.recv()))
        return alone

    def _send(self, envs: Fleet, alone: Alone, ids: Sequence[int], action: int = 0) -> None:
        envs.send(np.full(len(ids), action, np.int64), list(ids))
        for env in ids:
            alone.step(env, action)

    @pytest.mark.parametrize("first_ready", [1, 2, None])
    def test_disabled_goes_on_over_many_episodes(self, first_ready: int | None) -> None:
        """Whoever has ended is reset at once, the others go on: each trajectory is that of an environment alone."""
        fns = self.ending_fns()
        with self.fleet(fns, autoreset_mode=AutoresetMode.DISABLED, first_ready=first_ready) as envs:
            alone, episodes = self._begin(envs), np.zeros(self.num_envs, np.int64)
            self._send(envs, alone, range(self.num_envs))
            for turn in range(40 * self.num_envs):
                result = envs.recv()
                ids = alone.assert_told(result)
                ended = [env for env, *flags in zip(ids, *result[2:4], strict=True) if any(flags)]
                for number, env in enumerate(ended):
                    episodes[env] += 1
                    seed = 100 * int(episodes[env]) + env if env % 2 else None
                    alone.reset(env, seed)
                    envs.async_reset(env_ids=env if number % 2 else [env], seed=[seed])
                going = [env for env in ids if env not in ended]
                if going:
                    self._send(envs, alone, going, turn % 2)
            assert episodes.min() >= 2

    @pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
    def test_an_episode_can_be_cut_short(self, mode: AutoresetMode) -> None:
        """In the other modes too a reset begins an episode wherever the one before was."""
        with self.fleet(self.ending_fns(), autoreset_mode=mode, first_ready=1) as envs:
            alone = self._begin(envs)
            going = [env for env, env_fn in enumerate(self.ending_fns()) if _lasts(env_fn, 3 + env, 2)]
            cut, *others = going
            for _ in range(3):
                self._send(envs, alone, [cut])
                envs.recv()
                envs.async_reset(env_ids=cut)
                alone.reset(cut)
                if others:
                    self._send(envs, alone, others[:1])
                came = [alone.assert_told(envs.recv())[0] for _ in (cut, *others[:1])]
                assert sorted(came) == [cut, *others[:1]]
                others = others[1:]

    def test_seeds_are_those_of_a_reset(self) -> None:
        """An int s seeds environment i with s + i, whoever else is named; a sequence has one seed for each named."""
        with self.fleet(self.ending_fns()) as envs:
            alone = self._begin(envs)
            for ids, seed, wanted in (
                ([3, 1], 20, {3: 23, 1: 21}),
                ([0, 2], [7, None], {0: 7, 2: None}),
                (np.array([4]), None, {4: None}),
                (2, np.int64(5), {2: 7}),
            ):
                envs.async_reset(env_ids=ids, seed=seed)
                for env, own in wanted.items():
                    alone.reset(env, own)
                assert sorted(alone.assert_told(envs.recv())) == sorted(wanted)

    def test_a_whole_reset_forgets_them(self) -> None:
        """reset() and async_reset() of all drop single resets under way: each environment comes back once."""
        with self.fleet(self.ending_fns(), first_ready=1) as envs:
            self._begin(envs)
            envs.async_reset(env_ids=[2, 0])
            envs.async_reset(seed=9)
            came = [int(envs.recv()[4]["env_id"][0]) for _ in range(self.num_envs)]
            assert sorted(came) == list(range(self.num_envs))
            envs.async_reset(env_ids=[2, 0])
            envs.reset()
            with pytest.raises(NoAsyncCallError):
                envs.recv()

    @pytest.mark.parametrize(
        ("given", "error", "text"),
        [
            ({"env_ids": [0, 0]}, ValueError, "env_ids must not repeat"),
            ({"env_ids": [0, 99]}, IndexError, r"env_ids must lie in 0\.\.4, got \[0, 99\]"),
            ({"env_ids": -1}, IndexError, "env_ids"),
            ({"env_ids": [0.5]}, TypeError, "env_ids"),
            ({"env_ids": []}, TypeError, "env_ids"),
            ({"env_ids": [0, 1], "seed": [1, 2, 3]}, ValueError, "expected 2, got 3"),
            ({"env_ids": [0, 1], "seed": -1}, ValueError, "negative"),
            ({"env_ids": [0, 1], "options": [None]}, ValueError, "expected 2, got 1"),
            ({"env_ids": [0], "options": {"reset_mask": mask_of(5, 0)}}, ValueError, "reset_mask"),
            ({"options": {"reset_mask": mask_of(5, 0)}}, ValueError, "env_ids"),
        ],
        ids=[
            "repeated",
            "too large",
            "negative",
            "no integer",
            "none at all",
            "more seeds than environments",
            "a negative seed",
            "fewer options than environments",
            "a mask beside env_ids",
            "a mask alone",
        ],
    )
    def test_wrong_arguments_reset_nothing(self, given: dict[str, Any], error: type[Exception], text: str) -> None:
        """Ids that repeat or do not exist, and seeds or options that do not fit, are refused; work goes on."""
        with self.fleet(self.ending_fns()) as envs:
            alone = self._begin(envs)
            self._send(envs, alone, [2, 4])
            with pytest.raises(error, match=text):
                envs.async_reset(**given)
            assert sorted(alone.assert_told(envs.recv())) == [2, 4]
            with pytest.raises(NoAsyncCallError):
                envs.recv()

    def test_an_environment_at_work_is_not_reset(self) -> None:
        """async_reset() of one that has not come back is refused by number, and the others are not reset either."""
        with self.fleet(self.ending_fns()) as envs:
            alone = self._begin(envs)
            self._send(envs, alone, [1, 3])
            with pytest.raises(AlreadyPendingCallError, match=r"async_reset\(\) of environments \[3\]"):
                envs.async_reset(env_ids=[0, 3])
            envs.async_reset(env_ids=[0, 2])
            alone.reset(0)
            alone.reset(2)
            with pytest.raises(AlreadyPendingCallError, match=r"\[2\]"):
                envs.async_reset(env_ids=[2])
            with pytest.raises(AlreadyPendingCallError, match=r"send\(\) to environments \[0\]"):
                envs.send(np.zeros(1, np.int64), [0])
            assert sorted(alone.assert_told(envs.recv())) == [0, 1, 2, 3]

    def test_a_call_under_way_is_collected_first(self) -> None:
        """While step_async() is not collected no single environment is reset."""
        with self.fleet(self.ending_fns()) as envs:
            envs.reset()
            envs.step_async(self.zeros())
            with pytest.raises(AlreadyPendingCallError, match="step_wait"):
                envs.async_reset(env_ids=[0])
            envs.step_wait()
            envs.async_reset(env_ids=[0])
            assert envs.recv()[4]["env_id"].tolist() == [0]
