"""FrameStackObservation: the last few observations instead of the last one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    BoolArray,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    check_count,
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


class FrameStackObservation(BatchWrapper):
    """Return the last `stack_size` observations of each environment, oldest first.

    An observation of shape [num_envs, *shape] becomes [num_envs, stack_size, *shape] of the same dtype.
    Box, Discrete, MultiDiscrete and MultiBinary observations are stacked. Dict and Tuple observations are stacked
    leaf by leaf. The caller may keep and change every returned array.

    A stack never contains observations of an earlier episode. It restarts from the first observation of the new
    episode:

    - NEXT_STEP: in the step after the one that ended the episode.
    - SAME_STEP: in the step that ended the episode; `infos["final_obs"][i]`, [stack_size, *shape], is the
      stack of the ended episode with its last observation.
    - any mode: in `reset()`, for all environments or for those in `options["reset_mask"]`; the others keep
      their stacks.

    Args:
        envs: a vector environment that states `metadata["autoreset_mode"]`.
        stack_size: how many observations to return, at least 1.
        padding: what fills the places before the first observation of an episode. "reset" repeats that
            observation, "zero" uses the value closest to zero that the observation space allows.
    """

    def __init__(self, envs: AnyVectorEnv, stack_size: int, *, padding: Literal["reset", "zero"] = "reset") -> None:
        super().__init__(envs)
        self.stack_size = check_count("stack_size", stack_size)
        if padding not in ("reset", "zero"):
            raise ValueError(f"padding must be 'reset' or 'zero', got {padding!r}.")
        self.padding = padding
        self._mode = autoreset_mode(envs)
        self._inner_space: AnySpace = envs.single_observation_space
        kinds = (Box, Discrete, MultiDiscrete, MultiBinary)
        check_leaves(self._inner_space, kinds, type(self).__name__)
        self._stacks = [
            _LeafStack(batched, self.stack_size, padding)
            for batched in flatten(self._inner_space, envs.observation_space)
        ]
        self.single_observation_space = batch_space(self._inner_space, self.stack_size)
        self.observation_space = map_space(envs.observation_space, lambda batched: _stacked(batched, self.stack_size))
        self._starting = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given) and restart their stacks."""
        observations, infos, mask = reset_envs(self.env, seed, options)
        for stack, frames in zip(self._stacks, flatten(self._inner_space, observations), strict=True):
            stack.restart(mask, frames)
        self._starting &= ~mask
        return self._stacked(), infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments and push the new observations."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.SAME_STEP:
            infos = self._stack_final(info_dict(infos, type(self).__name__), done)
        restarting = done if self._mode is AutoresetMode.SAME_STEP else self._starting
        for stack, frames in zip(self._stacks, flatten(self._inner_space, observations), strict=True):
            stack.push(frames)
            if restarting.any():
                stack.restart(restarting, frames)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._starting = done
        return self._stacked(), rewards, terminated, truncated, infos

    def _stacked(self) -> Any:
        return unflatten(self._inner_space, [stack.read() for stack in self._stacks])

    def _stack_final(self, infos: Infos, done: BoolArray) -> Infos:
        final = read_final_observations(self._inner_space, infos, done)
        if final is None:
            return infos
        leaves = [stack.ended_by(final.rows, frames) for stack, frames in zip(self._stacks, final.leaves, strict=True)]
        return replace_final_observations(self._inner_space, infos, final.rows, leaves)


class _LeafStack:
    """The last frames of one leaf for every environment, in a ring buffer, so that a push writes one frame only."""

    def __init__(self, batched: AnySpace, stack_size: int, padding: str) -> None:
        low, high = _bounds(batched)
        self._ring: AnyArray = np.zeros((len(low), stack_size, *low.shape[1:]), dtype=batched.dtype)
        self._padding = np.clip(np.zeros_like(low), low, high) if padding == "zero" else None
        self._oldest = 0

    def push(self, frames: AnyArray) -> None:
        """Replace the oldest frames by frames [num_envs, *shape]."""
        self._ring[:, self._oldest] = frames
        self._oldest = (self._oldest + 1) % self._ring.shape[1]

    def restart(self, mask: BoolArray, frames: AnyArray) -> None:
        """Drop the frames of the masked environments and start with their rows of frames [num_envs, *shape]."""
        padding = frames if self._padding is None else self._padding
        self._ring[mask] = padding[mask][:, None]
        self._ring[mask, self._oldest - 1] = frames[mask]

    def read(self) -> AnyArray:
        """Return a copy, oldest frame first, [num_envs, stack_size, *shape]."""
        return np.concatenate((self._ring[:, self._oldest :], self._ring[:, : self._oldest]), axis=1)

    def ended_by(self, rows: npt.NDArray[np.intp], frames: AnyArray) -> AnyArray:
        """Return the stacks of k rows after a push of frames [k, *shape], without pushing: [k, stack_size, *shape]."""
        kept = np.roll(self._ring[rows], -self._oldest, axis=1)[:, 1:]
        return np.concatenate((kept, frames[:, None].astype(kept.dtype, copy=False)), axis=1)


def _bounds(batched: AnySpace) -> tuple[AnyArray, AnyArray]:
    """Return the lower and upper bounds of a batched leaf, [num_envs, *shape] each."""
    if isinstance(batched, Box):
        return batched.low, batched.high
    if isinstance(batched, MultiDiscrete):
        return batched.start, batched.start + batched.nvec - 1
    raise TypeError(
        "FrameStackObservation needs a batched observation space of Box or MultiDiscrete leaves, "
        f"got {batched}. Give the vector environment's observation_mode a batched space of that kind."
    )


def _stacked(batched: AnySpace, stack_size: int) -> AnySpace:
    """Return a batched leaf with an axis of `stack_size` after the first; each row keeps its bounds."""
    low, high = (np.repeat(bound[:, None], stack_size, axis=1) for bound in _bounds(batched))
    return Box(low, high, dtype=low.dtype)
