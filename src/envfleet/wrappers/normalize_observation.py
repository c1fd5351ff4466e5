"""NormalizeObservation: observations with mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    Freezable,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    check_positive,
    info_dict,
    reset_envs,
)
from envfleet.wrappers._leaves import (
    AnyArray,
    AnySpace,
    check_leaves,
    flatten,
    map_space,
    read_final_observations,
    replace_final_observations,
    unflatten,
)
from envfleet.wrappers._moments import RunningMoments, State, check_keys


class NormalizeObservation(Freezable, BatchWrapper):
    """Shift and scale every component of the observation to mean 0 and variance 1.

    Returns `(observation - mean) / sqrt(var + epsilon)` as float32[num_envs, *shape]. Mean and variance
    are kept in float64 over all environments together. Dict and Tuple observations are normalised leaf by leaf;
    every leaf must be a Box.

    The rule for the statistics: **each observation is counted once, before it is normalised.**

    - `step()` counts the whole batch. In SAME_STEP mode it counts the final observations too, and
      `infos["final_obs"][i]`, float32[*shape], is normalised with the same statistics as that step's batch.
    - `reset()` counts the environments that were reset: all, or those in `options["reset_mask"]`. The other rows
      were counted before and are not counted again. They are normalised with the new statistics.
    - While `update_running_mean` is False nothing is counted. Before the first count, mean 0 and variance 1 are
      assumed, so observations are not scaled.

    While statistics are updated, an observation that is not finite raises a ValueError.

    Args:
        envs: a vector environment that states `metadata["autoreset_mode"]`.
        epsilon: added to the variance, so that a constant component is not divided by 0.
        clip: if given, results are limited to [-clip, clip].
    """

    def __init__(self, envs: AnyVectorEnv, epsilon: float = 1e-8, clip: float | None = None) -> None:
        super().__init__(envs)
        self.epsilon = check_positive("epsilon", epsilon)
        self.clip = None if clip is None else check_positive("clip", clip)
        self._mode = autoreset_mode(envs)
        self._inner_space: AnySpace = envs.single_observation_space
        leaves = check_leaves(self._inner_space, (Box,), type(self).__name__)
        self._paths = [path for path, _ in leaves]
        if len(set(self._paths)) < len(self._paths):
            raise ValueError(f"Two observations have the same path among {self._paths}. Rename a key.")
        self._moments = [RunningMoments.empty(_shape(leaf)) for _, leaf in leaves]
        self.single_observation_space = map_space(self._inner_space, self._normalised_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    @property
    def obs_rms(self) -> Any:
        """The statistics (`count`, `mean`, `var`; float64[*shape]), nested like the observation space."""
        return unflatten(self._inner_space, self._moments)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given); return normalised observations."""
        observations, infos, mask = reset_envs(self.env, seed, options)
        leaves = flatten(self._inner_space, observations)
        rows = np.flatnonzero(mask)
        self._count([leaf[rows] for leaf in leaves], rows)
        return self._normalised(leaves), infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments; return normalised observations, including final observations."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        leaves = flatten(self._inner_space, observations)
        final = None
        if self._mode is AutoresetMode.SAME_STEP:
            done = np.logical_or(terminated, truncated)
            infos = info_dict(infos, type(self).__name__)
            final = read_final_observations(self._inner_space, infos, done)
        rows = np.arange(self.num_envs)
        if final is None:
            self._count(leaves, rows)
        else:
            both = [np.concatenate(pair) for pair in zip(leaves, final.leaves, strict=True)]
            self._count(both, np.concatenate((rows, final.rows)))
            scaled = self._scaled(final.leaves)
            infos = replace_final_observations(self._inner_space, infos, final.rows, scaled)
        return self._normalised(leaves), rewards, terminated, truncated, infos

    def state_dict(self) -> State:
        """Return the statistics as a flat dict: `count` (int), `mean` and `m2` (float64[*shape], copies).

        With Dict and Tuple observations the path of the leaf comes before each name: `camera/left/mean`. The dict
        does not contain the number of environments, `epsilon`, `clip` and `update_running_mean`.
        """
        state: State = {}
        for prefix, moments in zip(self._prefixes(), self._moments, strict=True):
            state |= moments.state_dict(prefix)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`, to the bit; a state that does not fit changes nothing."""
        state = check_keys(state, self.state_dict(), type(self).__name__)
        pairs = zip(self._prefixes(), self._moments, strict=True)
        self._moments = [moments.loaded(state, prefix) for prefix, moments in pairs]

    def _prefixes(self) -> list[str]:
        return [f"{path}/" if path else "" for path in self._paths]

    def _count(self, leaves: list[AnyArray], envs: npt.NDArray[np.intp]) -> None:
        if not self._update_running_mean:
            return
        names = [f"observation {path!r}" if path else "observation" for path in self._paths]
        self._moments = [
            moments.including(rows, envs, name)
            for moments, rows, name in zip(self._moments, leaves, names, strict=True)
        ]

    def _normalised(self, leaves: list[AnyArray]) -> Any:
        return unflatten(self._inner_space, self._scaled(leaves))

    def _scaled(self, leaves: list[AnyArray]) -> list[npt.NDArray[np.float32]]:
        return [self._scale(rows, moments) for rows, moments in zip(leaves, self._moments, strict=True)]

    def _scale(self, rows: AnyArray, moments: RunningMoments) -> npt.NDArray[np.float32]:
        scaled = rows - moments.mean
        scaled /= np.sqrt(moments.var + self.epsilon)
        if self.clip is not None:
            np.clip(scaled, -self.clip, self.clip, out=scaled)
        return scaled.astype(np.float32)

    def _normalised_space(self, leaf: AnySpace) -> AnySpace:
        bound = np.inf if self.clip is None else self.clip
        return Box(-bound, bound, _shape(leaf), np.float32)


def _shape(leaf: AnySpace) -> tuple[int, ...]:
    assert leaf.shape is not None, "a Box has a shape"
    return leaf.shape
