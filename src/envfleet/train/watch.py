"""A look at everything environments give before it is learnt from: numbers that are not finite stop the run.

Or, as a setting, they cost the episode they occurred in: `drop` takes all rows of that episode out of the rollout, and
out of those that follow, until it has ended.

    rows of a rollout      o o o | o o N o | o o      N: not finite; |: an episode ended
    what is learnt from    o o o | . . . . | o o
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, final

import numpy as np

from envfleet.errors import NonFiniteError
from envfleet.train.algorithms.learner import Learner
from envfleet.train.at_once import Compiled
from envfleet.train.collecting import BoolArray, Rollout, Rows
from envfleet.train.finite import (
    LARGEST,
    Found,
    all_finite,
    exceeding,
    exceeding_rows,
    first_exceeding,
    odd_tensors,
    repaired,
)
from envfleet.train.observations import Array, Observations, map_leaves, parts_of

_LARGEST_SCALED = 1e15
"""A reward, scaled, whose square can still be added up over an episode and a batch in float32."""

_LARGEST_REWARD = 1e30
"""A reward that can be added up in float32 before it is scaled."""


class Act(Protocol):
    """From observations, whose they are, and for some algorithms where episodes begin, to actions."""

    def __call__(
        self, observations: Observations, env_ids: Rows | None = None, resets: BoolArray | None = None
    ) -> Array:
        """Actions, one per row."""
        ...


@final
class Shielded:
    """`act`, but it sees 0 where an observation is not finite, so that environments never get NaN for an action.

    What came of it is not learnt from: `Watch.checked` finds the observation in the rollout.

    Args:
        act: the policy.
        compiled: its compiled form, which does the same by itself; None if it has none.
    """

    def __init__(self, act: Callable[..., Array], compiled: Compiled | None = None) -> None:
        self._act, self.compiled = act, compiled

    def __call__(
        self, observations: Observations, env_ids: Rows | None = None, resets: BoolArray | None = None
    ) -> Array:
        """Actions, one per row; `resets` only for policies that are told where episodes begin."""
        shown = observations if all_finite(observations) else repaired(observations)
        actions = self._act(shown, env_ids) if resets is None else self._act(shown, env_ids, resets)
        if actions.dtype.kind == "f" and not all_finite(actions):
            raise _odd_action(actions, env_ids)
        return actions


@dataclass(frozen=True, eq=False)
class Bad:
    """Where a rollout is not finite.

    Attributes:
        observations: bool[steps + 1, num_envs]; the last row is what the environments show after the rollout.
        rewards: bool[steps, num_envs].
        finals: the last observations of episodes, where these ended, bool[steps, num_envs].
    """

    observations: BoolArray
    rewards: BoolArray
    finals: BoolArray

    @property
    def rows(self) -> BoolArray:
        """All of it together, bool[steps + 1, num_envs]."""
        rows: BoolArray = self.observations.copy()
        rows[:-1] |= self.rewards | self.finals
        return rows


@final
class Watch:
    """Keeps numbers that are not finite away from an algorithm.

    Args:
        non_finite: "stop" raises a NonFiniteError, "drop" leaves the episode out.
        num_envs: how many environments there are.
        reward_scale: what rewards are multiplied by before they are learnt from.
        normalizes: whether they are normalised before that, so that none of them is too large to be scaled.

    Attributes:
        dropped: episodes left out so far.
    """

    def __init__(
        self, non_finite: Literal["stop", "drop"], num_envs: int, reward_scale: float, *, normalizes: bool = False
    ) -> None:
        self._drops = non_finite == "drop"
        self._reward_scale = reward_scale
        self._normalizes = normalizes
        self._largest_reward = _LARGEST_REWARD if normalizes else min(_LARGEST_REWARD, _LARGEST_SCALED / reward_scale)
        self._dropping = np.zeros(num_envs, dtype=np.bool_)
        """Environments whose episode under way is left out."""
        self.dropped = 0

    def restart(self, envs: Rows | slice = slice(None)) -> None:
        """All environments, or the given ones, were reset: no episode of theirs is under way."""
        self._dropping[envs] = False

    def checked(self, rollout: Rollout, step: int) -> Rollout:
        """The rollout if all of it is finite, without the episodes that are not if these are to be dropped.

        Args:
            rollout: as it was collected.
            step: environment steps of the run before it.
        """
        fine = all_finite(rollout.rewards, self._largest_reward) and all_finite(rollout.observations)
        fine = fine and all_finite(rollout.final_observations) and all_finite(rollout.end.observations)
        if fine and not self._dropping.any():
            return rollout
        bad = self._look(rollout)
        if self._drops:
            return _without(rollout, self._rows_to_drop(rollout, bad))
        if bad.rows.any():
            raise self._first(rollout, bad, step)
        return rollout

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as JSON holds it."""
        return {"dropping": self._dropping.tolist(), "dropped": self.dropped}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` gave."""
        self._dropping[:] = state["dropping"]
        self.dropped = state["dropped"]

    def _look(self, rollout: Rollout) -> Bad:
        finals = np.zeros(rollout.done.shape, dtype=np.bool_)
        finals[rollout.done] = exceeding_rows(rollout.final_observations, 1)
        along = exceeding_rows(rollout.observations, 2) & rollout.valid
        return Bad(
            np.concatenate([along, exceeding_rows(rollout.end.observations, 1)[None]]),
            exceeding(rollout.rewards, self._largest_reward) & rollout.valid,
            finals & rollout.valid,
        )

    def _rows_to_drop(self, rollout: Rollout, bad: Bad) -> BoolArray:
        """The rows of all episodes with something bad, bool[steps, num_envs]; counts those episodes."""
        rows = bad.rows
        to_drop = np.zeros(rows.shape, dtype=np.bool_)
        for env in np.flatnonzero(self._dropping | rows.any(0)).tolist():
            after_ends = (np.flatnonzero(rollout.done[:, env]) + 1).tolist()
            # The last part is the episode under way; it consists of at least what the environment shows now.
            for start, stop in pairwise([0, *after_ends, len(rows)]):
                known = start == 0 and bool(self._dropping[env])
                found = bool(rows[start:stop, env].any())
                to_drop[start:stop, env] = known or found
                self.dropped += found and not known
        self._dropping[:] = to_drop[-1]
        return to_drop[:-1]

    def _first(self, rollout: Rollout, bad: Bad, step: int) -> NonFiniteError:
        """The error about what came first; of what came at once, about the environment with the lowest number."""
        # A row's observation was there before its reward, and this came with the final observation.
        ordered = np.stack([bad.observations[:-1], bad.rewards, bad.finals], axis=1).reshape(-1, bad.rows.shape[1])
        moment, env = np.argwhere(np.concatenate([ordered, bad.observations[-1:]]))[0].tolist()
        row, what = divmod(moment, 3)
        taken = step + int(np.count_nonzero(rollout.valid[: row + (what > 0)]))
        if what == 1:
            return self._odd_reward(float(rollout.rewards[row, env]), env, taken)
        if what == 2:
            place = int(np.count_nonzero(rollout.done[:row]) + np.count_nonzero(rollout.done[row, :env]))
            batch = map_leaves(lambda leaf: leaf[place], rollout.final_observations)
            return _odd_observation("final observation", batch, env, taken)
        shown = rollout.end.observations if row == len(rollout.rewards) else _row(rollout.observations, row)
        return _odd_observation("observation", _row(shown, env), env, taken)

    def _odd_reward(self, reward: float, env: int, step: int) -> NonFiniteError:
        if not np.isfinite(reward):
            return _stop("reward", env, step, f"{reward:g}")
        scaled = f"times reward_scale={self._reward_scale:g} it must lie within ±{_LARGEST_SCALED:g} and by itself"
        must = "it must lie" if self._normalizes else scaled
        value = f"{reward:g}, too large to learn from: {must} within ±{_LARGEST_REWARD:g}, or sums overflow in float32"
        return _stop("reward", env, step, value, "" if self._normalizes else 'lower "reward_scale", ')


def traced(error: NonFiniteError, learner: Learner, rollout: Rollout | None, step: int) -> NonFiniteError:
    """What an algorithm could not calculate with, together with where that may have come from.

    Args:
        error: as it was raised where the number was met.
        learner: the algorithm.
        rollout: what it learnt from; None while it was acting.
        step: environment steps of the run by then.
    """
    odd = [f"{name}'s {tensor}" for name, module in learner.modules.items() for tensor, _ in odd_tensors(module)]
    suspects = "" if rollout is None else _extremes(rollout)
    if odd:
        suspects = f" The {odd[0]} is not finite since the last update: its gradient cannot have been."
    message = (
        f"{error} That was at step {step:,}; the run stops before it is saved.{suspects} Smaller learning rates, a "
        "smaller reward_scale, normalize_observations or max_grad_norm may help."
    )
    return NonFiniteError(message, quantity=error.quantity, env_index=error.env_index, step=step)


def _extremes(rollout: Rollout) -> str:
    reward, seen = _largest(rollout.rewards * rollout.valid), _largest(rollout.observations)
    text = f" The largest reward of the latest rollout is {reward.value:g} (environment {reward.place[1]})"
    if seen.place:
        text += f", the largest number in an observation {seen.value:g} (environment {seen.place[1]})"
    return f"{text}."


def _without(rollout: Rollout, dropped: BoolArray) -> Rollout:
    """The rollout with rows that are no transitions any more, and finite numbers in them."""
    if not dropped.any() and all_finite(rollout.end.observations):
        return rollout
    kept = np.flatnonzero(~dropped[rollout.done])
    return dataclasses.replace(
        rollout,
        observations=repaired(rollout.observations),
        rewards=np.where(dropped, 0.0, rollout.rewards),
        terminated=rollout.terminated & ~dropped,
        truncated=rollout.truncated & ~dropped,
        valid=rollout.valid & ~dropped,
        final_observations=map_leaves(lambda leaf: leaf[kept], rollout.final_observations),
        final_infos={name: column[kept] for name, column in rollout.final_infos.items()},
        end=dataclasses.replace(rollout.end, observations=repaired(rollout.end.observations)),
        dropped=dropped,
    )


def _odd_observation(quantity: str, observation: Any, env: int, step: int) -> NonFiniteError:
    found = first_exceeding(map_leaves(np.atleast_1d, observation))
    assert found is not None, "only rows in which something was found are looked at again"
    too_large = f", more than the {LARGEST:g} that float32 can hold" if np.isfinite(found.value) else ""
    return _stop(quantity, env, step, f"{found.value:g} at {found.path}{list(found.place)}{too_large}")


def _stop(quantity: str, env: int, step: int, value: str, advice: str = "") -> NonFiniteError:
    message = (
        f"The {quantity} of environment {env} at step {step:,} is {value}. Nothing was learnt from it: the run stops "
        f'before it is saved. Mend the environment, {advice}or train with non_finite="drop", which leaves out '
        "episodes with such numbers and counts them."
    )
    return NonFiniteError(message, quantity=quantity, env_index=env, step=step)


def _odd_action(actions: Array, env_ids: Rows | None) -> NonFiniteError:
    found = first_exceeding(actions)
    assert found is not None, "only actions in which something was found are looked at again"
    env = found.place[0] if env_ids is None else int(env_ids[found.place[0]])
    message = f"The policy's action for environment {env} is {found.value:g}, though what it saw was finite."
    return NonFiniteError(message, quantity="action", env_index=env)


def _largest(batch: Any) -> Found:
    """The number that is largest without its sign; the index is empty if there are only whole numbers."""
    if (parts := parts_of(batch)) is not None:
        return max((_largest(leaf) for leaf in parts.values()), key=lambda found: abs(found.value))
    if batch.dtype.kind != "f" or not batch.size:
        return Found("", (), 0.0)
    index = np.unravel_index(int(np.argmax(np.abs(batch))), batch.shape)
    return Found("", tuple(map(int, index)), float(batch[index]))


def _row(batch: Any, row: int) -> Any:
    return map_leaves(lambda leaf: leaf[row], batch)
