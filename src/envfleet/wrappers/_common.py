"""Functions that every wrapper needs: the autoreset mode, masked resets that keep the options intact, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from envfleet.vector.arguments import checked_integer

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Infos: TypeAlias = dict[str, Any]
Seed: TypeAlias = int | Sequence[int | None] | None
Options: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
StepResult: TypeAlias = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], Infos]

if TYPE_CHECKING:
    AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, npt.NDArray[Any]]
    BatchWrapper: TypeAlias = VectorWrapper[Any, Any, Any, Any, npt.NDArray[Any]]
else:
    # Subscripting VectorWrapper fails at run time in Gymnasium releases where it is not generic.
    AnyVectorEnv = VectorEnv
    BatchWrapper = VectorWrapper


def autoreset_mode(envs: AnyVectorEnv) -> AutoresetMode:
    """Return the autoreset mode that `envs` declares; without it, the starts of episodes are unknown."""
    mode = envs.metadata.get("autoreset_mode")
    if isinstance(mode, AutoresetMode):
        return mode
    came = "nothing" if mode is None else f"{mode!r} of type {type(mode).__name__}"
    raise ValueError(
        f"{envs} must say how it resets finished environments: expected a gymnasium.vector.AutoresetMode in "
        f"metadata['autoreset_mode'], got {came}. Set it on the vector environment before wrapping it."
    )


def reset_envs(envs: AnyVectorEnv, seed: Seed, options: Options) -> tuple[Any, Infos, BoolArray]:
    """Reset `envs` and also return which rows were reset, bool[num_envs].

    The environment gets a shallow copy of `options`, because Gymnasium's vector environments remove `reset_mask`
    from the dict they get. The caller and the outer wrappers still need it.
    """
    mask = _reset_mask(options, envs.num_envs)
    if isinstance(options, Mapping):
        options = dict(options)
    # VectorEnv.reset declares less than the environments accept: seeds and options may be sequences.
    observations, infos = envs.reset(seed=cast("Any", seed), options=cast("Any", options))
    return observations, infos, mask


def _reset_mask(options: Options, num_envs: int) -> BoolArray:
    if not isinstance(options, Mapping) or "reset_mask" not in options:
        return np.ones(num_envs, dtype=np.bool_)
    mask: Any = options["reset_mask"]
    want = f"options['reset_mask'] must be a NumPy bool array of shape ({num_envs},)"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{want}, got {type(mask).__name__}. Wrap it: np.array(mask, dtype=bool).")
    if mask.dtype != np.bool_:
        raise TypeError(f"{want}, got dtype {mask.dtype}. Compare or cast it: mask.astype(bool).")
    if mask.shape != (num_envs,):
        raise ValueError(f"{want}, got shape {mask.shape}: one entry for each environment.")
    if not mask.any():
        raise ValueError(f"{want} with at least one True, got none. Skip the reset instead.")
    return np.array(mask, dtype=np.bool_)


def info_dict(infos: object, wrapper: str) -> Infos:
    """Return `infos` if it is a batched dict, which `wrapper` can read or extend."""
    if isinstance(infos, dict):
        return infos
    raise TypeError(
        f"{wrapper} needs infos as one dict of arrays, got {type(infos).__name__}. "
        f"Put wrappers that reshape infos, such as DictInfoToList, around {wrapper} and not inside it."
    )


def check_count(name: str, value: object) -> int:
    """Return `value` as an int if it is an integer of at least 1."""
    count = checked_integer(name, value)
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}.")
    return count


def check_number(name: str, value: object) -> float:
    """Return `value` as a float if it is a real number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}.")
    return float(value)


def check_positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number above 0."""
    number = check_number(name, value)
    if not 0.0 < number < np.inf:
        raise ValueError(f"{name} must be a finite number greater than 0, got {value}.")
    return number


def check_switch(name: str, value: object) -> bool:
    """Return `value` as a bool if it is one."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}.")
    return bool(value)


class Freezable:
    """A wrapper with statistics that can be frozen."""

    _update_running_mean = True

    @property
    def update_running_mean(self) -> bool:
        """Whether what comes is counted in the statistics; set it to False to freeze them."""
        return self._update_running_mean

    @update_running_mean.setter
    def update_running_mean(self, value: bool) -> None:
        self._update_running_mean = check_switch("update_running_mean", value)
