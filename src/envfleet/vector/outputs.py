"""What environments return beside observations: rewards, flags and infos, accepted or refused by name."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from envfleet.vector.layout import LayoutError, cast

_SCALAR = ()
_FLOAT64 = np.dtype(np.float64)


def refuse_info(info: Any) -> NoReturn:
    """Says what an info has to be."""
    raise LayoutError(f"info: expected a dict, got {type(info).__name__} {info!r:.80}")


def as_number(reward: Any) -> Any:
    """A reward as a number; arrays of one element are what many environments return."""
    if isinstance(reward, float):
        return reward
    if isinstance(reward, np.ndarray) and reward.shape == (1,):
        reward = reward[0]
    return cast(reward, _SCALAR, _FLOAT64, "reward")


def as_bool(flag: Any, name: str) -> bool:
    """An end-of-episode flag as a bool; numbers count as in Python."""
    if isinstance(flag, bool | np.bool_):
        return bool(flag)
    array = np.asarray(flag)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise LayoutError(f"{name}: expected a bool, got {flag!r}")
    return bool(array.item())
