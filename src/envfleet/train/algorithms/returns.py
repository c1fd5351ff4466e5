"""Advantages from rewards and values: pure functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from envfleet import _learner


def gae(
    rewards: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    next_values: npt.NDArray[np.float64],
    terminated: npt.NDArray[np.bool_],
    done: npt.NDArray[np.bool_],
    gamma: float,
    lam: float,
) -> npt.NDArray[np.float64]:
    """Generalised advantage estimates, float64[steps, num_envs].

    With `delta[t] = rewards[t] + gamma * next_values[t] - values[t]`, the next value counting as 0 where the
    episode terminated, the advantage is `delta[t] + gamma * lam * advantage[t + 1]`, the sum ending with the episode
    and with the rollout. `lam=0` gives one-step temporal differences, `lam=1` Monte Carlo returns minus values.

    Args:
        rewards: float[steps, num_envs].
        values: the value of the state each step started in, float[steps, num_envs].
        next_values: the value of the state it led to, float[steps, num_envs]. Where an episode ended that is its
            final observation, not the first of the next episode; in the last row it is the state after the rollout.
        terminated: where the episode ended by itself, so that nothing follows, bool[steps, num_envs].
        done: where it ended for any reason, time limits included, bool[steps, num_envs].
        gamma: discount factor.
        lam: how far to look ahead, from 0 to 1.
    """
    deltas = rewards + gamma * np.where(terminated, 0.0, next_values) - values
    return _carried(deltas, gamma * lam * ~done, np.zeros(deltas.shape[1:]), backwards=True)


def discounted_so_far(
    rewards: npt.NDArray[np.float64],
    valid: npt.NDArray[np.bool_],
    ended: npt.NDArray[np.bool_],
    gamma: float,
    start: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each episode has given so far, discounted, float64[steps, num_envs]; and the `start` of the next rollout.

    That is `gamma * (the same one step before) + rewards[t]`. It looks back, where a return of the future looks ahead.

    Args:
        rewards: float[steps, num_envs].
        valid: rows that are transitions, bool[steps, num_envs]; over the others it is passed on as it is.
        ended: after these rows it is 0, bool[steps, num_envs].
        gamma: discount factor.
        start: what the episodes under way had given before, float64[num_envs].
    """
    earned = np.where(valid, rewards, 0.0)
    decay = np.where(valid, gamma, 1.0)
    decay[1:] *= ~ended[:-1]
    returns = _carried(earned, decay, start, backwards=False)
    return returns, returns[-1] * ~ended[-1]


def _carried(
    added: npt.NDArray[Any], decay: npt.NDArray[Any], start: npt.NDArray[Any], *, backwards: bool
) -> npt.NDArray[np.float64]:
    """`added[t] + decay[t] * (the same one step before)`, or one step after; `start` before, or after, all others."""
    result = np.empty(added.shape)
    sums, decays, first, results = (
        np.ascontiguousarray(each, np.float64).reshape(shape)
        for each, shape in (
            (added, (len(added), -1)),
            (decay, (len(added), -1)),
            (start, -1),
            (result, (len(added), -1)),
        )
    )
    _learner.carry(sums, decays, first, results, backwards)
    return result


def explained_variance(predicted: npt.NDArray[np.float64], returns: npt.NDArray[np.float64]) -> float:
    """The share of the returns' variance that `predicted` explains: 1 perfect, 0 no better than a constant."""
    variance = float(np.var(returns))
    return float("nan") if variance == 0 else 1 - float(np.var(returns - predicted)) / variance
