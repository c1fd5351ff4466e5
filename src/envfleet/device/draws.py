"""Parameters that every episode draws anew, on the device.

They are drawn from the environment's own key, so ``reset(seed=…)`` fixes them. The distributions are those of the other
backends, the numbers are not: there they come from NumPy's generators.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envfleet.randomize import Choice, Distribution, LogUniform, Normal, Uniform
from envfleet.redraw import Randomize


def check_drawable(randomize: Randomize, env: str) -> None:
    """Refuses what cannot be drawn on a device."""
    for name, distribution in randomize.items():
        if not isinstance(distribution, Uniform | LogUniform | Normal | Choice):
            raise TypeError(
                f"randomize[{name!r}] of {env} is a {type(distribution).__name__}: on a device only uniform, "
                "loguniform, normal and choice can be drawn. With randomize_on='make' any other can be."
            )
        if isinstance(distribution, Choice) and distribution.dtype == object:
            raise TypeError(
                f"randomize[{name!r}] of {env} chooses among {list(distribution.options)!r}: on a device all options "
                "must be numbers of one type, or all bools."
            )


def drawn_cells(randomize: Randomize, key: Any) -> dict[str, Any]:
    """The numbers of one episode, encoded as its distributions do: traced, one for each parameter."""
    # By the name, so that no value changes when another parameter is added.
    return {name: _cell(each, jax.random.fold_in(key, zlib.crc32(name.encode()))) for name, each in randomize.items()}


def _cell(distribution: Distribution, key: Any) -> Any:
    if isinstance(distribution, Choice):
        return jax.random.randint(key, (), 0, len(distribution.options)).astype(jnp.float32)
    if isinstance(distribution, Normal):
        value = distribution.mean + distribution.std * jax.random.normal(key, dtype=jnp.float32)
        return value if distribution.clip is None else jnp.clip(value, *distribution.clip)
    assert isinstance(distribution, Uniform | LogUniform)
    low, high = distribution.low, distribution.high
    if isinstance(distribution, Uniform):
        return jax.random.uniform(key, dtype=jnp.float32, minval=low, maxval=high)
    return jnp.clip(
        jnp.exp(jax.random.uniform(key, dtype=jnp.float32, minval=np.log(low), maxval=np.log(high))), low, high
    )


def decoded(randomize: Randomize, cells: dict[str, Any]) -> dict[str, Any]:
    """The parameters that these numbers stand for."""
    return {name: _value(randomize[name], cell) for name, cell in cells.items()}


def _value(distribution: Distribution, cell: Any) -> Any:
    if isinstance(distribution, Choice):
        return jnp.asarray(np.array(distribution.options, distribution.dtype))[cell.astype(jnp.int32)]
    return cell
