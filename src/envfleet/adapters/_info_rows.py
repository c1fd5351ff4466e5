"""Batched infos as one dict per environment, for libraries that want them so.

The dtypes of columns decide the types of values: int64, float64 and bool become Python's int, float and bool, all
other numbers stay NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envfleet.vector.infos import Info

_AS_PYTHONS = frozenset(np.dtype(kind) for kind in (np.bool_, np.int64, np.float64))


def info_rows(infos: Info, num_envs: int) -> list[Info]:
    """One new dict per environment, with the keys that it has."""
    columns = [(key, infos[key], infos[f"_{key}"]) for key in infos if _is_column(key, infos)]
    if columns and all(mask.all() for _, _, mask in columns):  # most steps of most environments
        keys = [key for key, _, _ in columns]
        values = [_values(column, num_envs) for _, column, _ in columns]
        return [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]
    rows: list[Info] = [{} for _ in range(num_envs)]
    for key, column, mask in columns:
        values_of_key = _values(column, num_envs)
        for env in np.flatnonzero(mask).tolist():
            rows[env][key] = values_of_key[env]
    return rows


def _is_column(key: Any, infos: Info) -> bool:
    """Whether this is the key of a column, not that of a mask."""
    if f"_{key}" not in infos:
        return False
    return not (isinstance(key, str) and key.startswith("_") and key[1:] in infos)


def _values(column: Any, num_envs: int) -> Sequence[Any]:
    if isinstance(column, dict):
        return info_rows(column, num_envs)
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype in _AS_PYTHONS:
        values: list[Any] = column.tolist()
        return values
    return list(column)
