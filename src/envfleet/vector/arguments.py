"""Checks of what users pass in: seeds, options, masks, indices; and what is said of arguments that many calls share."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether it is an integer of Python's or NumPy's; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def checked_integer(name: str, value: Any) -> int:
    """The value as Python's integer; a TypeError names what is none."""
    if not is_integer(value):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}.")
    return int(value)


def positive_integer(name: str, value: Any) -> int:
    """The value as Python's integer; a ValueError names what is none, or less than 1."""
    if not is_integer(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


def seeds(seed: Any, num_envs: int) -> list[int | None]:
    """One seed (or None) an environment: an int s gives s + i."""
    if seed is None:
        return [None] * num_envs
    if is_integer(seed):
        first = _seed(seed, "seed")
        return [first + i for i in range(num_envs)]
    if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
        raise TypeError(f"seed must be an int, a sequence of {num_envs} ints or None, got {seed!r}.")
    if len(seed) != num_envs:
        raise ValueError(f"seed must have one entry per environment: expected {num_envs}, got {len(seed)}.")
    return [None if one is None else _seed(one, f"seed[{i}]") for i, one in enumerate(seed)]


def _seed(value: Any, name: str) -> int:
    if not is_integer(value):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}.")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}.")
    return int(value)


def reset_options(options: Any, num_envs: int) -> tuple[Mask, list[dict[str, Any] | None]]:
    """The reset mask, and a dict of options (or None) of its own for every environment."""
    everyone = np.ones(num_envs, np.bool_)
    if options is None:
        return everyone, [None] * num_envs
    if isinstance(options, Mapping):
        mask = _reset_mask(options["reset_mask"], num_envs) if "reset_mask" in options else everyone
        rest = {key: value for key, value in options.items() if key != "reset_mask"}
        return mask, [own_copy(rest) for _ in range(num_envs)]
    if not isinstance(options, list | tuple):
        raise TypeError(f"options must be a dict, a list of {num_envs} dicts or None, got {type(options).__name__}.")
    if len(options) != num_envs:
        raise ValueError(f"options must have one entry per environment: expected {num_envs}, got {len(options)}.")
    return everyone, [_checked_options(one, i) for i, one in enumerate(options)]


def _checked_options(options: Any, index: int) -> dict[str, Any] | None:
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise TypeError(f"options[{index}] must be a dict or None, got {type(options).__name__}.")
    return own_copy(dict(options))


def own_copy(options: dict[str, Any]) -> dict[str, Any]:
    """A copy of a dict: whoever changes one of the two does not change the other."""
    try:
        return deepcopy(options)
    except Exception:  # some objects refuse to be copied; they are shared then, the dict is not
        return dict(options)


def refuse_reset_mask(options: Any) -> None:
    """Refuses a mask where environments are named by their numbers."""
    if isinstance(options, Mapping) and "reset_mask" in options:
        raise ValueError(
            "async_reset() takes no reset_mask: write env_ids=np.flatnonzero(mask) instead, or use reset()."
        )


def resets_of(
    chosen: Sequence[int], seed: Any, options: Any, num_envs: int
) -> tuple[list[int | None], list[dict[str, Any] | None]]:
    """Seeds and options for the chosen environments, in slots for all; sequences have one entry for each of them."""
    if is_integer(seed):
        given = seeds(seed, num_envs)
        own_seeds = [given[env] for env in chosen]
    else:
        own_seeds = seeds(seed, len(chosen))
    _, own_options = reset_options(options, len(chosen))
    return spread(own_seeds, chosen, num_envs), spread(own_options, chosen, num_envs)


def _reset_mask(mask: Any, num_envs: int) -> Mask:
    name = "options['reset_mask']"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(mask).__name__}.")
    if mask.dtype != np.bool_:
        raise TypeError(f"{name} must have dtype bool, got {mask.dtype}.")
    if mask.shape != (num_envs,):
        raise ValueError(f"{name} must have shape ({num_envs},), got {mask.shape}.")
    if not mask.any():
        raise ValueError(f"{name} must be True for at least one environment.")
    copy: Mask = mask.copy()
    return copy


def env_indices(indices: Any, num_envs: int, name: str = "indices") -> list[int]:
    """The environments asked for, in the order asked; None means all."""
    if indices is None:
        return list(range(num_envs))
    array = np.atleast_1d(np.asarray(indices))
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        raise TypeError(f"{name} must be an int or a non-empty sequence of ints, got {indices!r}.")
    chosen: list[int] = array.tolist()
    if min(chosen) < 0 or max(chosen) >= num_envs:
        raise IndexError(f"{name} must lie in 0..{num_envs - 1}, got {chosen}.")
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"{name} must not repeat, got {chosen}.")
    return chosen


def mask_of(chosen: Sequence[int], num_envs: int) -> Mask:
    """Environment indices as a mask."""
    mask = np.zeros(num_envs, np.bool_)
    mask[list(chosen)] = True
    return mask


def env_rows(indices: Any, num_envs: int) -> npt.NDArray[np.intp]:
    """Environments to send to, each once; None means all."""
    return np.array(env_indices(indices, num_envs, "env_ids"), np.intp)


def checked_batch_size(batch_size: Any, num_envs: int) -> int:
    """How many results to wait for; None means all environments."""
    if batch_size is None:
        return num_envs
    if not is_integer(batch_size) or not 0 < batch_size <= num_envs:
        raise ValueError(
            f"`first_ready` must be between 1 and the number of environments, {num_envs}, got {batch_size!r}."
        )
    return int(batch_size)


def one_of_two_names(first_ready: Any, batch_size: Any) -> Any:
    """What was given as ``first_ready`` or as ``batch_size``, its older name."""
    if first_ready is not None and batch_size is not None and first_ready != batch_size:
        raise TypeError(
            f"first_ready={first_ready!r} and batch_size={batch_size!r} contradict each other: batch_size is the older "
            "name of first_ready. Leave it out."
        )
    return batch_size if first_ready is None else first_ready


def spread(values: Any, chosen: Sequence[int], num_envs: int) -> list[Any]:
    """Values for the chosen environments, one a slot: a list or tuple gives one each, else all get it."""
    if not isinstance(values, list | tuple):
        values = [values] * len(chosen)
    if len(values) != len(chosen):
        raise ValueError(
            f"values must be a list or tuple with one entry per environment: expected {len(chosen)}, got {len(values)}."
        )
    slots: list[Any] = [None] * num_envs
    for index, value in zip(chosen, values, strict=True):
        slots[index] = value
    return slots


def checked_env_fns(env_fns: Any) -> list[Callable[[], Any]]:
    """The functions that make environments, at least one."""
    functions = list(env_fns)
    if not functions:
        raise ValueError("env_fns must hold at least one function that makes an environment, got none.")
    for index, function in enumerate(functions):
        if not callable(function):
            raise TypeError(
                f"env_fns[{index}] must be a function that makes an environment, got {type(function).__name__}. "
                "Write lambda: gymnasium.make(...)."
            )
    return functions


def check_timeout(timeout: Any, name: str = "timeout") -> None:
    """Refuses what is neither None nor a number of seconds."""
    if timeout is None:
        return
    if not isinstance(timeout, int | float | np.number) or isinstance(timeout, bool) or not timeout >= 0:
        raise ValueError(f"{name} must be a number of seconds, zero or more, or None, got {timeout!r}.")


def checked_count(name: str, value: Any) -> int | None:
    """A positive number, or None."""
    if value is None:
        return None
    if not is_integer(value) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer or None, got {value!r}.")
    return int(value)


SHARED_ARGUMENTS: Mapping[str, str] = {
    "env_fns": "One function per environment, which makes it. To other processes they travel by cloudpickle, so "
    "lambdas, closures and what the main module defines are fine.",
    "copy": "True: returned observations are the caller's to keep. False: they are live views, valid until the next "
    "step or reset begins.",
    "observation_mode": '"same" (all spaces equal), "different" (bounds may differ), or a pair ``(batched space, '
    "single space)``.",
    "autoreset_mode": 'When environments reset by themselves: "NextStep", "SameStep" or "Disabled".',
    "first_ready": "How many environments ``recv`` waits for; by default all.",
    "batch_size": "The older name of ``first_ready``.",
    "on_failure": '"raise", or "restart": an environment that raises, or returns what its spaces do not allow, is '
    'made again in place. Its episode counts as truncated, and ``infos["restarted"]`` tells. A worker that is lost is '
    "started again with its environments; docs/failures.md says which of them go on as if nothing had happened.",
    "step_timeout": "Seconds that one environment's step, reset or call may take before its worker is ended; None for "
    "no limit.",
    "start_timeout": "Seconds that a worker may take to start, and then to make each environment, before it is ended; "
    "None for no limit.",
    "max_restarts": "How often one environment, or one worker, may be made again within ``restart_window`` seconds; "
    "None for no limit.",
    "restart_window": "The seconds within which restarts are counted.",
    "check_nan": "Whether NaN in an observation or a reward is a failure.",
}
"""What vector environments say of arguments that they share, see ``documented``."""

AnyClass = TypeVar("AnyClass", bound=type)


def documented(cls: AnyClass) -> AnyClass:
    """Adds to a class's docstring what ``SHARED_ARGUMENTS`` says of arguments that it does not describe itself."""
    if cls.__doc__ is None:  # Python was told to leave docstrings out
        return cls
    before, _, described = inspect.cleandoc(cls.__doc__).partition("\nArgs:\n")
    described, _, after = described.partition("\n\n")
    own = {entry.partition(":")[0].strip(): entry for entry in re.split(r"\n(?=    \S)", described)}
    names = [name for name in inspect.signature(cls).parameters if name in own or name in SHARED_ARGUMENTS]
    entries = [own.get(name) or _entry(name, SHARED_ARGUMENTS[name]) for name in names]
    cls.__doc__ = "\n".join([before, "Args:", *entries, *(["", after] if after else [])])
    return cls


def _entry(name: str, text: str) -> str:
    return textwrap.fill(f"{name}: {text}", 110, initial_indent="    ", subsequent_indent="        ")
