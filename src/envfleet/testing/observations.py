"""Contract: observations, rewards and flags that are right, and safe to keep."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, EnvFn, mask_of, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import Frame, PlaybackEnv, counter_fns, endless_fns


class GymnasiumObservations(ContractBase):
    """Batches have the promised dtypes and shapes and do not change behind the caller's back."""

    def test_it_is_a_gymnasium_vector_env(self) -> None:
        """A vector env is Gymnasium's, with its attributes and batched spaces."""
        with self.fleet(counter_fns(self.num_envs)) as envs:
            assert isinstance(envs, gym.vector.VectorEnv)
            assert envs.unwrapped is envs
            assert envs.num_envs == self.num_envs
            assert envs.closed is False
            assert envs.render_mode is None
            single = counter_fns(1)[0]()
            assert envs.single_observation_space == single.observation_space
            assert envs.single_action_space == single.action_space
            batch_space = gym.vector.utils.batch_space
            assert envs.observation_space == batch_space(single.observation_space, self.num_envs)
            assert envs.action_space == batch_space(single.action_space, self.num_envs)

    def test_results_have_their_dtypes_and_shapes(self) -> None:
        """Observations belong to the batched space, rewards are float64, flags are bool, infos are a dict."""
        with self.fleet(counter_fns(self.num_envs)) as envs:
            observations, infos = envs.reset()
            assert observations in envs.observation_space
            assert type(infos) is dict
            observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
            assert observations in envs.observation_space
            assert (rewards.dtype, rewards.shape) == (np.float64, (self.num_envs,))
            for flags in (terminated, truncated):
                assert (flags.dtype, flags.shape) == (np.bool_, (self.num_envs,))
            assert type(infos) is dict

    def test_copied_observations_are_safe_to_keep(self) -> None:
        """With copy=True no later reset or step changes an observation that was returned."""
        with self.fleet(counter_fns(self.num_envs, reuse_buffer=True), copy=True) as envs:
            kept = [envs.reset(seed=0)[0]]
            snapshots = [kept[0].copy()]
            for _ in range(6):
                kept.append(envs.step(self.zeros())[0])
                snapshots.append(kept[-1].copy())
            kept.append(envs.reset()[0])
            snapshots.append(kept[-1].copy())
            assert_same(kept, snapshots)
            assert len({row.tobytes() for row in kept}) == len(kept)

    def test_copied_observations_are_the_callers(self) -> None:
        """With copy=True writing into a returned observation does not reach the fleet."""
        with self.fleet(endless_fns(self.num_envs), copy=True, autoreset_mode=AutoresetMode.DISABLED) as envs:
            observations, _ = envs.reset(seed=0)
            before = observations.copy()
            observations[:] = -1
            again, _ = envs.reset(options={"reset_mask": mask_of(self.num_envs, 0)})
            assert_same(again[1:], before[1:])

    def test_uncopied_observations_are_a_live_view(self) -> None:
        """With copy=False each result is right when returned and shows the same memory as the one before."""
        with (
            self.fleet(counter_fns(self.num_envs), copy=True) as copied,
            self.fleet(counter_fns(self.num_envs), copy=False) as live,
        ):
            expected, _ = copied.reset(seed=3)
            first, _ = live.reset(seed=3)
            assert_same(first, expected)
            for _ in range(6):
                expected, *_ = copied.step(self.zeros())
                observations, *_ = live.step(self.zeros())
                assert_same(observations, expected)
                assert np.shares_memory(observations, first)

    def test_rewards_and_flags_are_fresh_each_step(self) -> None:
        """Rewards and flags never share memory with those of another step, with copy=False too."""
        for copy in (True, False):
            with self.fleet(counter_fns(self.num_envs), copy=copy) as envs:
                envs.reset()
                kept = [envs.step(self.zeros())[1:4] for _ in range(4)]
                rewards = [float(rewards[0]) for rewards, _, _ in kept]
                assert rewards == [1 / 8, 2 / 8, 3 / 8, 0.0]
                arrays = [array for results in kept for array in results]
                for i, left in enumerate(arrays):
                    assert not any(np.shares_memory(left, right) for right in arrays[:i])

    def test_one_environment_is_a_batch_too(self) -> None:
        """A fleet of a single environment returns batches of one."""
        with self.fleet(counter_fns(1)) as envs:
            assert envs.reset()[0].shape == (1, 5)
            observations, rewards, *_ = envs.step(np.zeros(1, np.int64))
            assert observations.shape == (1, 5)
            assert rewards.tolist() == [1 / 8]

    def test_step_accepts_samples_of_the_action_space(self) -> None:
        """What action_space.sample() returns is always a valid batch of actions."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.action_space.seed(0)
            envs.reset()
            for _ in range(5):
                actions = envs.action_space.sample()
                assert envs.step(actions)[0][:, 3].tolist() == actions.tolist()


class ObservationsContract(GymnasiumObservations):
    """Batches have the promised dtypes and shapes and do not change behind the caller's back."""

    def test_writing_into_rewards_and_flags_harms_nobody(self) -> None:
        """The returned flags are the caller's: changing them does not change which environments autoreset."""
        with self.fleet(counter_fns(self.num_envs)) as envs:
            envs.reset()
            for _ in range(3):
                _, rewards, terminated, truncated, _ = envs.step(self.zeros())
                rewards[:] = np.nan
                terminated[:] = ~terminated
                truncated[:] = ~truncated
            assert envs.get_attr("episode")[:4] == (1, 1, 2, 2)


class GymnasiumObservationModes(ContractBase):
    """Spaces that must agree, may differ in bounds, or are given."""

    def _boxes(self, highs: list[float], dtype: Any = np.float32) -> list[EnvFn]:
        return [
            partial(PlaybackEnv, spaces.Box(0, high, (2,), dtype), [Frame(np.full(2, high, dtype))]) for high in highs
        ]

    def test_same_refuses_spaces_that_differ(self) -> None:
        """observation_mode="same" raises a RuntimeError when an environment's space is not the first's."""
        with pytest.raises(RuntimeError):
            self.made(self._boxes([1, 1, 2]), observation_mode="same")

    def test_different_batches_spaces_of_one_shape(self) -> None:
        """observation_mode="different" takes spaces that share shape and dtype, each with its own bounds."""
        with self.fleet(self._boxes([1, 2, 3]), observation_mode="different") as envs:
            assert_same(envs.observation_space.high, np.array([[1, 1], [2, 2], [3, 3]], np.float32))
            observations, _ = envs.reset()
            assert_same(observations, np.array([[1, 1], [2, 2], [3, 3]], np.float32))
            assert observations in envs.observation_space

    def test_different_still_refuses_another_shape_or_dtype(self) -> None:
        """observation_mode="different" raises when shape or dtype differ."""
        wide = partial(PlaybackEnv, spaces.Box(0, 1, (3,)), [Frame(np.zeros(3, np.float32))])
        with pytest.raises((RuntimeError, ValueError)):
            self.made([*self._boxes([1, 1]), wide], observation_mode="different")
        with pytest.raises((RuntimeError, ValueError)):
            self.made([*self._boxes([1, 1]), *self._boxes([1], np.float64)], observation_mode="different")

    def test_a_pair_sets_the_batched_and_the_single_space(self) -> None:
        """observation_mode=(batched, single) sets both spaces as given."""
        single = spaces.Box(0, 9, (2,), np.float32)
        batched = spaces.Box(0, 9, (3, 2), np.float32)
        with self.fleet(self._boxes([1, 2, 3]), observation_mode=(batched, single)) as envs:
            assert envs.observation_space is batched
            assert envs.single_observation_space is single
            assert_same(envs.reset()[0], np.array([[1, 1], [2, 2], [3, 3]], np.float32))


class ObservationModesContract(GymnasiumObservationModes):
    """Spaces that must agree, may differ in bounds, or are given."""

    def test_an_unknown_observation_mode_is_refused(self) -> None:
        """A mode that is no mode raises a ValueError, a pair that holds no spaces a TypeError."""
        with pytest.raises(ValueError, match="sideways"):
            self.make(self._boxes([1, 1]), observation_mode="sideways")
        with pytest.raises(TypeError):
            self.make(self._boxes([1, 1]), observation_mode=("same", "different"))

    def test_action_spaces_must_agree(self) -> None:
        """Environments with another action space than the first are refused with a RuntimeError."""
        space = spaces.Discrete(1)
        fns = [partial(PlaybackEnv, space, [Frame(0)], spaces.Discrete(actions)) for actions in (2, 2, 3)]
        with pytest.raises(RuntimeError):
            self.make(fns)
