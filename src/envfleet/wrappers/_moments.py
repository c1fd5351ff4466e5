"""Mean and variance of a stream of batches, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from envfleet.vector.arguments import checked_integer
from envfleet.wrappers._common import FloatArray

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RunningMoments:
    """Count, mean and variance of all rows seen so far; `including` gives the next value.

    It is immutable, so that several of them can be updated together or not at all.

    Attributes:
        count: the number of rows seen.
        mean: their mean, float64[*shape]; 0 before the first row.
        m2: the sum of their squared deviations from the mean, float64[*shape].
    """

    count: int
    mean: FloatArray
    m2: FloatArray

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> RunningMoments:
        """Return the moments before the first row."""
        return cls(0, np.zeros(shape), np.zeros(shape))

    @property
    def var(self) -> FloatArray:
        """The population variance, float64[*shape]; 1 before the first row, so that nothing is scaled."""
        return np.asarray(self.m2 / self.count) if self.count else np.ones_like(self.m2)

    def including(self, rows: npt.NDArray[Any], envs: npt.NDArray[np.intp], what: str) -> RunningMoments:
        """Return the moments with `rows`, real[n, *shape], added.

        Batches are merged by the method of Chan, Golub and LeVeque: each batch has its own mean and squared
        deviations, so values far from zero lose no precision. If a value is not finite, a ValueError names `what`
        and the environment (`envs`, intp[n], one per row).
        """
        batch = np.asarray(rows, dtype=np.float64)
        total = self.count + len(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            batch_mean = batch.mean(axis=0)
            delta = batch_mean - self.mean
            mean = self.mean + delta * (len(batch) / total)
            deviations = batch - batch_mean
            m2 = self.m2 + np.einsum("i...,i...->...", deviations, deviations)
            m2 = m2 + np.square(delta) * (self.count * len(batch) / total)
        if not np.isfinite(m2).all():
            raise ValueError(_not_finite(batch, envs, what))
        return RunningMoments(total, np.asarray(mean), np.asarray(m2))

    def state_dict(self, prefix: str = "") -> State:
        """Return `count` (int), `mean` and `m2` (float64[*shape], copies), with `prefix` before each name."""
        return {
            f"{prefix}count": self.count,
            f"{prefix}mean": self.mean.copy(),
            f"{prefix}m2": self.m2.copy(),
        }

    def loaded(self, state: Mapping[str, Any], prefix: str = "") -> RunningMoments:
        """Return the moments in `state`; their shape must be that of these."""
        count = _checked_count(f"{prefix}count", state[f"{prefix}count"])
        mean = _checked_array(f"{prefix}mean", state[f"{prefix}mean"], self.mean.shape)
        m2 = _checked_array(f"{prefix}m2", state[f"{prefix}m2"], self.m2.shape)
        if (m2 < 0.0).any():
            raise ValueError(f"{prefix}m2 is a sum of squares and cannot be negative, got {m2}.")
        return RunningMoments(count, mean, m2)


def check_keys(state: object, expected: Iterable[str], wrapper: str) -> Mapping[str, Any]:
    """Return `state` if it is a mapping with exactly the `expected` keys."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{wrapper}.load_state_dict needs a dict, got {type(state).__name__}.")
    names = set(expected)
    missing, unknown = sorted(names - set(state)), sorted(map(str, set(state) - names))
    if missing or unknown:
        raise ValueError(
            f"This state does not belong to this {wrapper}: missing keys {missing}, unknown keys {unknown}. "
            "Load what state_dict() of the same wrapper returned for environments with the same spaces."
        )
    return state


def _checked_count(name: str, value: object) -> int:
    if isinstance(value, np.ndarray) and value.shape == ():
        # numpy.savez turns numbers into arrays without dimensions.
        value = value[()]
    count = checked_integer(name, value)
    if count < 0:
        raise ValueError(f"{name} must not be negative, got {count}.")
    return count


def _checked_array(name: str, value: object, shape: tuple[int, ...]) -> FloatArray:
    if not isinstance(value, (np.ndarray, np.float64)) or value.dtype != np.float64:
        came = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{name} must be a float64 NumPy array of shape {shape}, got {came}.")
    if value.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape}, got {value.shape}: these are another environment's statistics."
        )
    if not np.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {value}.")
    return np.array(value, dtype=np.float64)


def _not_finite(batch: FloatArray, envs: npt.NDArray[np.intp], what: str) -> str:
    bad = ~np.isfinite(batch.reshape(len(batch), -1)).all(axis=1)
    if not bad.any():
        return f"The {what} is too large for a variance in float64. Rescale it before normalising."
    return (
        f"The {what} of environment {int(envs[np.argmax(bad)])} has a value that is not finite, which would "
        "spoil the running statistics for good. Mend the environment, or freeze the statistics with "
        "update_running_mean = False."
    )
