"""Many steps at once: where the environments and the policy are both compiled, one call makes them all.

It gives the numbers that the loop of `collect` gives. What is unusual, a failure for instance, is left to a step taken
the ordinary way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from envfleet import _native
from envfleet.native.env import NativeVectorEnv
from envfleet.native.rollouts import RolloutArrays
from envfleet.train.observations import Array, Observations
from envfleet.wrappers import BoundedAction
from envfleet.wrappers._common import AnyVectorEnv
from envfleet.wrappers.bounded_action import ActionMap


class Compiled(Protocol):
    """A policy that can act in compiled code; `CompiledPolicy` is one. A policy offers it as its `compiled`."""

    def sees(self, space: Space[Any]) -> bool:
        """Whether it can act on what environments with this observation space show."""
        ...

    def actions(self, *rows: int) -> Array:
        """An array for so many actions."""
        ...

    def for_rollout(self, steps: int, num_envs: int, sees: Any, bounds: ActionMap | None) -> _native.RowPolicy:
        """What acts in the next `steps` steps on observations of dtype `sees`."""
        ...

    def count(self, steps: int) -> None:
        """So many steps were made."""
        ...


@dataclass(frozen=True, eq=False)
class Stretch:
    """Steps that were made at once.

    Attributes:
        made: how many. Fewer than asked for if a step cannot be made: taken the ordinary way, it raises what is wrong.
        arrays: [steps, num_envs, ...] each, `made` of them filled; observations are of one step more.
        final_observations: the last observations of the episodes that ended, by step and then by environment.
        final_infos: what their last infos say, by name; only of names that are known.
    """

    made: int
    arrays: RolloutArrays
    final_observations: Array
    final_infos: Mapping[str, npt.NDArray[Any]]


def make_at_once(
    envs: AnyVectorEnv,
    policy: object,
    steps: int,
    observations: Observations,
    info_names: Sequence[str] = (),
    *,
    bounds: ActionMap | None = None,
) -> Stretch | None:
    """Let `policy` act for `steps` steps, if that is possible in one call; None if it is not.

    Args:
        envs: native environments, with `BoundedAction` around them or nothing at all.
        policy: one with a compiled form.
        steps: how many.
        observations: what the environments show now.
        info_names: what to keep of an episode's last info.
        bounds: what actions are mapped onto, where no `BoundedAction` does so.
    """
    if not can_be_made_at_once(envs, policy):
        return None
    compiled, fleet = _compiled_form(policy), _fleet_of(envs)
    assert compiled is not None, "it can be made at once"
    assert fleet is not None, "it can be made at once"
    bounds = envs.action_map if isinstance(envs, BoundedAction) else bounds
    space, shape = fleet.single_observation_space, (steps, fleet.num_envs)
    seen = np.empty((steps + 1, fleet.num_envs, *(space.shape or ())), space.dtype)
    seen[0] = observations
    flags = (np.empty(shape, np.bool_) for _ in range(3))
    arrays = RolloutArrays(seen, compiled.actions(*shape), np.empty(shape), *flags)
    chooser = compiled.for_rollout(steps, fleet.num_envs, space.dtype, bounds)
    rollout = fleet.roll_out(chooser, arrays, info_names)
    if rollout is None:
        return None
    compiled.count(rollout.made)
    return Stretch(rollout.made, arrays, rollout.final_observations(), rollout.final_infos())


def can_be_made_at_once(envs: AnyVectorEnv, policy: object) -> bool:
    """Whether these environments are compiled, and this policy has a compiled form that can act in them."""
    compiled, fleet = _compiled_form(policy), _fleet_of(envs)
    return compiled is not None and fleet is not None and compiled.sees(fleet.single_observation_space)


def _compiled_form(policy: object) -> Compiled | None:
    return getattr(policy, "compiled", None)


def _fleet_of(envs: AnyVectorEnv) -> NativeVectorEnv | None:
    # Any other wrapper may do whatever it likes between two steps.
    inside = envs.env if type(envs) is BoundedAction else envs
    return inside if isinstance(inside, NativeVectorEnv) else None
