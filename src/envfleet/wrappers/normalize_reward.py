"""NormalizeReward: rewards on the scale of the discounted return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    BoolArray,
    FloatArray,
    Freezable,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    check_number,
    check_positive,
    reset_envs,
)
from envfleet.wrappers._moments import RunningMoments, State, check_keys


class NormalizeReward(Freezable, BatchWrapper):
    """Divide rewards by the standard deviation of the discounted return.

    Each environment keeps `g = gamma * g + reward`, which starts at 0 in every episode. The variance of all g is
    kept in float64 over all environments together. Every step first updates it and then scales the rewards:
    `reward / sqrt(var + epsilon)`, a new float64[num_envs]. Rewards are not shifted, so they keep their signs. As
    long as all g are equal, their variance says nothing, and rewards are not scaled.

    The rule for the statistics: **each reward of an action is counted once.**

    - NEXT_STEP: a step that only resets an environment gives no reward, so its row is not counted.
    - SAME_STEP and DISABLED: every row is counted.
    - The end of an episode, terminated or truncated, sets g to 0 after the last reward is counted. `reset()` does
      the same, for all environments or for those in `options["reset_mask"]`.
    - While `update_running_mean` is False nothing is counted.

    While statistics are updated, a reward that is not finite raises a ValueError.

    Args:
        envs: a vector environment that states `metadata["autoreset_mode"]`.
        gamma: the discount factor of the return, from 0 to 1.
        epsilon: added to the variance.
    """

    def __init__(self, envs: AnyVectorEnv, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(envs)
        self.gamma = check_number("gamma", gamma)
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma must be from 0 to 1, got {gamma}.")
        self.epsilon = check_positive("epsilon", epsilon)
        self._mode = autoreset_mode(envs)
        self._moments = RunningMoments.empty()
        self._returns: FloatArray = np.zeros(self.num_envs)
        self._starting: BoolArray = np.zeros(self.num_envs, dtype=np.bool_)

    @property
    def return_rms(self) -> RunningMoments:
        """The statistics of the discounted return: `count`, `mean` and `var`, float64[]."""
        return self._moments

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given) and clear their returns."""
        observations, infos, mask = reset_envs(self.env, seed, options)
        self._returns[mask] = 0.0
        self._starting[mask] = False
        return observations, infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments; return scaled rewards, float64[num_envs]."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        earned = np.flatnonzero(~self._starting)
        returns = self._returns.copy()
        returns[earned] = self.gamma * returns[earned] + rewards[earned]
        if self._update_running_mean and earned.size:
            self._moments = self._moments.including(returns[earned], earned, "discounted return")
        done = np.logical_or(terminated, truncated)
        self._returns = np.where(done, 0.0, returns)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._starting = done
        return observations, rewards / self._scale(), terminated, truncated, infos

    def state_dict(self) -> State:
        """Return the statistics as a flat dict: `count` (int), `mean` and `m2` (float64[], copies).

        The dict does not contain the returns of running episodes, because environments are reset when a state is
        loaded. It does not contain the number of environments and the constructor's arguments either.
        """
        return self._moments.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`, to the bit; a state that does not fit changes nothing."""
        self._moments = self._moments.loaded(check_keys(state, self.state_dict(), type(self).__name__))

    def _scale(self) -> float:
        var, mean = float(self._moments.var), float(self._moments.mean)
        # Equal returns with a rounded mean leave a trace of variance; dividing by it would blow rewards up.
        if var <= (1e-12 * mean) ** 2:
            return 1.0
        return float(np.sqrt(var + self.epsilon))
