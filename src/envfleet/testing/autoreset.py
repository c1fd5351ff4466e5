"""Contract: the three autoreset modes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, EnvFn, mask_of, pytest
from envfleet.testing.compare import assert_same, assert_step
from envfleet.testing.envs import CounterConfig, CounterEnv, counter_fns
from envfleet.testing.reference import ReferenceFleet


class GymnasiumAutoreset(ContractBase):
    """What happens when an episode ends, in each mode; observation columns: index, episode, step, action, draw."""

    def _one_step_episodes(self) -> list[EnvFn]:
        return [partial(CounterEnv, CounterConfig(index=i, length=1)) for i in range(self.num_envs)]

    def _first_ends(self, **config: Any) -> list[EnvFn]:
        """Environment 0 ends at its first step, the others go on."""
        return [
            partial(CounterEnv, CounterConfig(index=i, length=1 if i == 0 else 99, **config))
            for i in range(self.num_envs)
        ]

    @pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
    @pytest.mark.parametrize("spelled", ["enum", "string"])
    def test_the_mode_is_taken_and_shown(self, mode: AutoresetMode, spelled: str) -> None:
        """The mode may be an AutoresetMode or its value; metadata shows the enum and env classes stay as they were."""
        given = mode if spelled == "enum" else mode.value
        with self.fleet(counter_fns(self.num_envs), autoreset_mode=given) as envs:
            assert envs.metadata["autoreset_mode"] is mode
            assert envs.metadata["render_fps"] == 1
        assert "autoreset_mode" not in CounterEnv.metadata

    def test_the_default_mode_is_next_step(self) -> None:
        """Without a mode a vector env resets at the next step, as Gymnasium's do."""
        with self.fleet(counter_fns(self.num_envs)) as envs:
            assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP

    def test_next_step_ignores_the_action_and_returns_the_reset(self) -> None:
        """The step after done returns the reset observation, reward 0, flags False, and uses no action."""
        with self.fleet(self._first_ends()) as envs:
            envs.reset(seed=0)
            _, _, terminated, _, infos = envs.step(np.full(self.num_envs, 5))
            assert terminated[0]
            assert not terminated[1:].any()
            assert "final_obs" not in infos
            observations, rewards, terminated, truncated, infos = envs.step(np.full(self.num_envs, 6))
            assert observations[0, 1:4].tolist() == [2, 0, -1]
            assert observations[1, 1:4].tolist() == [1, 2, 6]
            assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, False)
            assert infos["_episode"].tolist() == [True] + [False] * (self.num_envs - 1)
            assert infos["_step"].tolist() == [False] + [True] * (self.num_envs - 1)
            if self.can_look_into(envs):
                assert [len(actions) for actions in envs.get_attr("actions")] == [1] + [2] * (self.num_envs - 1)

    def test_next_step_does_not_reset_before_the_next_step(self) -> None:
        """Between the done step and the next one, the finished environment can still be looked at."""
        with self.fleet(self._one_step_episodes()) as envs:
            envs.reset()
            envs.step(self.zeros())
            assert self.attributes(envs, "episode") == (1,) * self.num_envs
            assert self.attributes(envs, "steps") == (1,) * self.num_envs

    def test_a_reset_clears_a_pending_autoreset(self) -> None:
        """After done and an explicit reset(), the next step steps; it does not reset again."""
        with self.fleet(self._one_step_episodes()) as envs:
            envs.reset()
            envs.step(self.zeros())
            envs.reset()
            observations, rewards, *_ = envs.step(np.full(self.num_envs, 3))
            assert observations[:, 1:4].tolist() == [[2, 1, 3]] * self.num_envs
            assert rewards.tolist() == [i + 1 / 8 for i in range(self.num_envs)]

    def test_same_step_returns_the_reset_and_keeps_the_final(self) -> None:
        """The done step returns the reset observation and info; final_obs and final_info hold the episode's last."""
        with self.fleet(self._first_ends(), autoreset_mode=AutoresetMode.SAME_STEP) as envs:
            envs.reset(seed=0)
            observations, rewards, terminated, _, infos = envs.step(np.full(self.num_envs, 7))
            mask = mask_of(self.num_envs, 0)
            assert observations[0, 1:4].tolist() == [2, 0, -1]
            assert observations[1, 1:4].tolist() == [1, 1, 7]
            assert (rewards[0], terminated.tolist()) == (1 / 8, mask.tolist())
            assert infos["final_obs"].dtype == object
            assert infos["final_obs"].shape == (self.num_envs,)
            assert infos["final_obs"][0][:4].tolist() == [0, 1, 1, 7]
            assert all(rest is None for rest in infos["final_obs"][1:])
            assert_same(infos["_final_obs"], mask)
            assert_same(infos["_final_info"], mask)
            assert infos["final_info"]["step"][0] == 1
            assert_same(infos["final_info"]["_step"], mask)
            assert_same(infos["_episode"], mask)
            assert_same(infos["_step"], ~mask)

    def test_same_step_without_an_ending_has_no_final_keys(self) -> None:
        """A step in which nothing ends has neither final_obs nor final_info, also right after one that had."""
        with self.fleet(counter_fns(self.num_envs), autoreset_mode=AutoresetMode.SAME_STEP) as envs:
            envs.reset()
            for _ in range(8):
                _, _, terminated, truncated, infos = envs.step(self.zeros())
                ended = bool((terminated | truncated).any())
                final_keys = {"final_obs", "_final_obs", "final_info", "_final_info"}
                assert final_keys & set(infos) == (final_keys if ended else set())

    def test_disabled_returns_the_end_as_it_is(self) -> None:
        """Without autoreset the done step returns the last observation and no final keys."""
        with self.fleet(self._first_ends(), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            observations, _, terminated, _, infos = envs.step(self.zeros())
            assert terminated[0]
            assert observations[0, 1:3].tolist() == [1, 1]
            assert "final_obs" not in infos

    def test_a_masked_reset_leaves_the_other_rows_alone(self) -> None:
        """A masked reset returns new rows for the masked, the last rows for the others, infos for the masked."""
        with self.fleet(self._first_ends(), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            before, *_ = envs.step(np.full(self.num_envs, 2))
            after, infos = envs.reset(options={"reset_mask": mask_of(self.num_envs, 0)})
            assert_same(after[1:], before[1:])
            assert after[0, 1:4].tolist() == [2, 0, -1]
            assert_same(infos["_episode"], mask_of(self.num_envs, 0))
            assert "step" not in infos


class AutoresetContract(GymnasiumAutoreset):
    """What happens when an episode ends, in each mode; observation columns: index, episode, step, action, draw."""

    def test_an_unknown_mode_is_refused(self) -> None:
        """A mode that does not exist raises a ValueError."""
        with pytest.raises(ValueError, match="Sometimes"):
            self.make(counter_fns(self.num_envs), autoreset_mode="Sometimes")

    def test_a_masked_reset_clears_only_its_own_pending_autoresets(self) -> None:
        """After done and a masked reset, masked environments step and the others reset."""
        with self.fleet(self._one_step_episodes()) as envs:
            envs.reset()
            envs.step(self.zeros())
            observations, _ = envs.reset(options={"reset_mask": mask_of(self.num_envs, 1)})
            assert observations[:3, 1:4].tolist() == [[1, 1, 0], [2, 0, -1], [1, 1, 0]]
            observations, *_ = envs.step(np.full(self.num_envs, 3))
            assert observations[:3, 1:4].tolist() == [[2, 0, -1], [2, 1, 3], [2, 0, -1]]

    @pytest.mark.parametrize("copy", [True, False])
    def test_a_reused_buffer_cannot_overwrite_its_final_obs(self, copy: bool) -> None:
        """An environment that returns the same array each time keeps its final_obs apart from its reset."""
        fns = counter_fns(self.num_envs, reuse_buffer=True)
        reference = ReferenceFleet(fns, AutoresetMode.SAME_STEP)
        with self.fleet(fns, autoreset_mode=AutoresetMode.SAME_STEP, copy=copy) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            for _ in range(12):
                expected = reference.step(self.zeros())
                assert_step(envs.step(self.zeros()), expected, reference.observation_space)

    def test_final_obs_is_safe_to_keep(self) -> None:
        """A kept final_obs does not change when the fleet goes on, even with copy=False."""
        fns = counter_fns(self.num_envs, reuse_buffer=True)
        with self.fleet(fns, autoreset_mode=AutoresetMode.SAME_STEP, copy=False) as envs:
            envs.reset(seed=0)
            kept = [envs.step(self.zeros())[4].get("final_obs") for _ in range(8)]
            finals = [row for column in kept if column is not None for row in column if row is not None]
            steps = {0: 3, 1: 4, 2: 1, 3: 2, 4: 3}
            assert len(finals) > self.num_envs
            assert all(row[2] == steps[row[0] % 4] for row in finals)

    def test_disabled_refuses_to_step_a_finished_environment(self) -> None:
        """Stepping while an environment is finished raises ResetNeeded with its index; nothing is stepped."""
        fns = [
            partial(CounterEnv, CounterConfig(index=i, length=1 if i in (1, 3) else 99)) for i in range(self.num_envs)
        ]
        with self.fleet(fns, autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            envs.step(self.zeros())
            for _ in range(2):
                with pytest.raises(ResetNeeded, match=r"1\D+3"):
                    envs.step(self.zeros())
            assert envs.get_attr("steps") == (1,) * self.num_envs
            envs.reset(options={"reset_mask": mask_of(self.num_envs, 1)})
            with pytest.raises(ResetNeeded, match="3"):
                envs.step(self.zeros())
            envs.reset(options={"reset_mask": mask_of(self.num_envs, 3)})
            observations, *_ = envs.step(self.zeros())
            assert observations[:4, 1].tolist() == [1, 2, 1, 2]
            assert observations[:4, 2].tolist() == [2, 1, 2, 1]

    def test_disabled_steps_again_after_a_full_reset(self) -> None:
        """A plain reset() makes every finished environment steppable again."""
        with self.fleet(self._one_step_episodes(), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            envs.step(self.zeros())
            with pytest.raises(ResetNeeded):
                envs.step(self.zeros())
            envs.reset()
            assert envs.step(self.zeros())[0][:, 1].tolist() == [2] * self.num_envs
