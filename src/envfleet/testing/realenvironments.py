"""Contract: real environments give the numbers of Gymnasium's own vector env."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, EnvFn, Fleet, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.reference import ReferenceFleet
from envfleet.testing.trajectories import MODES, compare_trajectories

# id, steps, whether Gymnasium's own batching of the infos is right: FrozenLake returns an int at reset and floats
# at step under one key, and Gymnasium takes the dtype of whichever environment comes first.
REAL: dict[str, tuple[int, bool]] = {
    "CartPole-v1": (60, True),
    "LunarLander-v3": (150, True),
    "FrozenLake-v1": (60, False),
    "Blackjack-v1": (40, True),
    "Pendulum-v1": (210, True),
}


class GymnasiumRealEnvironments(ContractBase):
    """Classic control, Box2D and toy text through many autoresets, compared number by number."""

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    @pytest.mark.parametrize("env_id", [env_id for env_id, (_, infos_are_right) in REAL.items() if infos_are_right])
    def test_real_environments_equal_gymnasium(self, env_id: str, mode: AutoresetMode) -> None:
        """Real environments are bit-identical to Gymnasium's, and to single environments stepped by hand."""
        steps, infos_are_right = REAL[env_id]
        fns = [partial(gym.make, env_id) for _ in range(3)]
        _import_quietly(fns[0])
        with self.fleet(fns, autoreset_mode=mode) as envs:
            compare_trajectories(envs, ReferenceFleet(fns, mode), steps, seed=7)
        theirs: Any = gym.vector.SyncVectorEnv(fns, autoreset_mode=mode)
        with self.fleet(fns, autoreset_mode=mode) as ours:
            self._compare_with_gymnasium(ours, theirs, steps, infos_are_right)
        theirs.close()

    def _compare_with_gymnasium(self, ours: Fleet, theirs: Fleet, steps: int, infos_are_right: bool) -> None:
        results = 5 if infos_are_right else 4
        theirs.action_space.seed(11)
        assert_same(ours.reset(seed=11), theirs.reset(seed=11))
        for _ in range(steps):
            actions = theirs.action_space.sample()
            expected = theirs.step(actions)
            assert_same(ours.step(actions)[:results], expected[:results])
            finished = expected[2] | expected[3]
            if theirs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and finished.any():
                actual = ours.reset(options={"reset_mask": finished})
                assert_same(actual, theirs.reset(options={"reset_mask": finished.copy()}))


class RealEnvironmentsContract(GymnasiumRealEnvironments):
    """Classic control, Box2D and toy text through many autoresets, compared number by number."""

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
    @pytest.mark.parametrize("env_id", [env_id for env_id, (_, infos_are_right) in REAL.items() if not infos_are_right])
    def test_real_environments_with_mixed_infos_equal_single_ones(self, env_id: str, mode: AutoresetMode) -> None:
        """The same for environments whose infos have two types under one key: these are promoted."""
        self.test_real_environments_equal_gymnasium(env_id, mode)


def _import_quietly(env_fn: EnvFn) -> None:
    """Import what a real environment needs, or skip.

    Box2D's bindings warn while they are imported and crash the interpreter where warnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env_fn().close()
        except DependencyNotInstalled as error:
            pytest.skip(str(error))
