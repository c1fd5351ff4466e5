"""Actions of other libraries' policies as a fleet takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array


def fitting(space: Space[Any], actions: Any, count: int) -> Any:
    """Integers for floats that mean integers; one batch for ``count`` dicts or tuples; anything else as it is.

    Args:
        space: The action space of one environment.
        actions: One action per environment. What does not fit is left to the fleet, which says what is wrong with it.
        count: How many environments are meant.
    """
    dtype = space.dtype
    if dtype is None:
        if not isinstance(actions, list | np.ndarray) or len(actions) != count:
            return actions
        empty: Any = create_empty_array(space, count)
        return concatenate(space, list(actions), empty)
    if dtype.kind == "f" or not isinstance(actions, np.ndarray) or actions.dtype.kind != "f":
        return actions
    integers = actions.astype(dtype)
    return integers if (integers == actions).all() else actions
