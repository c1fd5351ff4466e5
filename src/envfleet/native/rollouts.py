"""Whole rollouts of compiled environments with a compiled policy, in one call that Python has no part in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from envfleet import _native
from envfleet.native.engine import NativeQuickCalls
from envfleet.native.planned_episodes import EpisodePlans


class RolloutArrays(NamedTuple):
    """Where a rollout is kept, [steps, num_envs, ...] each.

    Attributes:
        observations: of one step more; the first are what the policy sees first, and have to be there already.
        actions: as the policy chose them.
        rewards: float64.
        terminated: bool.
        truncated: bool.
        valid: False where a step was only the reset of an environment (NEXT_STEP autoreset), bool.
    """

    observations: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    valid: npt.NDArray[np.bool_]


@final
class NativeRollouts:
    """Rollouts of one fleet; whoever asks for one has the fleet to itself.

    Args:
        pool: The environments.
        plans: Who supplies them with parameters, if every episode has its own.
        quick: Who remembers what went wrong, for the next call to raise it.
    """

    def __init__(self, pool: _native.Pool, plans: EpisodePlans | None, quick: NativeQuickCalls) -> None:
        self._pool, self._plans, self._quick = pool, plans, quick

    def run(self, policy: _native.RowPolicy, arrays: RolloutArrays, info_names: Sequence[str]) -> _native.Rollout:
        """Takes all environments through as many steps as the arrays hold.

        Fewer only if the policy has no action for some environment, or one failed: then that step has not been made.
        The next step of the fleet raises what an environment, or its parameters, did wrong.
        """
        rollout = self._pool.begin_rollout(policy, *arrays, info_names=list(info_names))
        try:
            while not self._pool.roll_out(rollout):
                failure = None if self._plans is None else self._plans.supply()
                if failure is not None:
                    self._quick.note(failure)
                    return rollout
        except BaseException as error:
            self._quick.note(error)
            raise
        if rollout.made < len(arrays.rewards) and self._quick.ready:
            # Some environments may have come further than others: only a reset brings them together again.
            self._quick.note(RuntimeError("The policy had no action for an environment."))
        return rollout
