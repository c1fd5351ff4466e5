"""FlattenSpaces: nested observations as one Box, nested actions as one MultiDiscrete or Box."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Tuple
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    info_dict,
    reset_envs,
)
from envfleet.wrappers._leaves import AnyArray, read_final_observations, replace_final_observations, unflatten
from envfleet.wrappers.flat_spaces import FlatActions, FlatObservations


class FlattenSpaces(BatchWrapper):
    """Show nested observations as one array, and take nested actions as one.

    Dict and Tuple observations become rows of one Box, Dict and Tuple actions rows of one MultiDiscrete or Box; see
    `FlatObservations` and `FlatActions`, which say how and turn rows back. Both are exact: what was flattened comes
    back to the bit. A space that is not nested stays as it is. In SAME_STEP mode `infos["final_obs"]` holds rows too.
    The caller may keep and change every returned array.

    Args:
        envs: a vector environment that states `metadata["autoreset_mode"]`.
        as_bytes: observations as the bytes of their numbers, as for `FlatObservations`.

    Attributes:
        flat_observations: turns rows into observations and back; None if observations are not nested.
        flat_actions: the same for actions.
    """

    def __init__(self, envs: AnyVectorEnv, *, as_bytes: bool = False) -> None:
        super().__init__(envs)
        self._mode = autoreset_mode(envs)
        self.flat_observations: FlatObservations | None = None
        self.flat_actions: FlatActions | None = None
        if isinstance(envs.single_observation_space, (Dict, Tuple)):
            self.flat_observations = FlatObservations(envs.single_observation_space, as_bytes=as_bytes)
            self.single_observation_space = self.flat_observations.flat_space
            self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        if isinstance(envs.single_action_space, (Dict, Tuple)):
            self.flat_actions = FlatActions(envs.single_action_space)
            self.single_action_space = self.flat_actions.flat_space
            self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given)."""
        observations, infos, _ = reset_envs(self.env, seed, options)
        return self._flat(observations), infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments with rows of actions, one for each."""
        return self._flat_result(self.env.step(self._nested(actions)))

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Send some environments rows of actions, one for each."""
        envs: Any = self.env
        envs.send(self._nested(actions), env_ids)

    def recv(self, timeout: float | None = None) -> StepResult:
        """Return the results of the first environments that are ready."""
        envs: Any = self.env
        return self._flat_result(envs.recv(timeout))

    def _nested(self, actions: Any) -> Any:
        return actions if self.flat_actions is None else self.flat_actions.unflatten(actions)

    def _flat(self, observations: Any) -> Any:
        return observations if self.flat_observations is None else self.flat_observations.flatten(observations)

    def _flat_result(self, result: StepResult) -> StepResult:
        observations, rewards, terminated, truncated, infos = result
        if self._mode is AutoresetMode.SAME_STEP and self.flat_observations is not None:
            infos = info_dict(infos, type(self).__name__)
            infos = self._flat_finals(self.flat_observations, infos, np.logical_or(terminated, truncated))
        return self._flat(observations), rewards, terminated, truncated, infos

    def _flat_finals(self, flat: FlatObservations, infos: Infos, done: AnyArray) -> Infos:
        final = read_final_observations(flat.space, infos, done)
        if final is None:
            return infos
        rows = flat.flatten(unflatten(flat.space, final.leaves))
        return replace_final_observations(flat.flat_space, infos, final.rows, [rows])
