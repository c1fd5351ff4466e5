"""Fleets that are pickled or copied: made again from what made them.

Processes, threads and actors cannot be copied, and a copy must not have half of a state. So a copy is a new fleet with
the same environments, arguments and attributes of ``make_vec``, which has to be reset before anything else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from envfleet.vector.pickling import dumps_by_value

if TYPE_CHECKING:
    from envfleet.vector.vector_env import FleetVectorEnv

Arguments = ParamSpec("Arguments")
Fleet = TypeVar("Fleet")

NEEDS_RESET = "This fleet is a copy, made again from what made the original."

_GIVEN_BY_MAKE_VEC = ("spec", "plan", "_drawn_once")


def remembers_arguments(
    constructor: Callable[Concatenate[Fleet, Arguments], None],
) -> Callable[Concatenate[Fleet, Arguments], None]:
    """A constructor whose arguments are kept, so that what it makes can be made again."""

    @wraps(constructor)
    def construct(self: Fleet, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        vars(self)["_made_with"] = args, kwargs
        constructor(self, *args, **kwargs)

    return construct


def parcel_of(envs: FleetVectorEnv) -> bytes:
    """What makes a fleet again, as bytes; a TypeError says why there are none."""
    name = type(envs).__name__
    if envs.closed:
        raise TypeError(f"This {name} is closed: make a new one instead of copying it.")
    made_with = vars(envs).get("_made_with")
    if made_with is None:
        raise TypeError(
            f"{name} does not keep what it was made with, so it cannot be pickled or copied: make another one, or "
            "decorate its __init__ with envfleet.vector.copies.remembers_arguments."
        )
    given = {name: getattr(envs, name) for name in _GIVEN_BY_MAKE_VEC}
    try:
        return dumps_by_value((type(envs), made_with, given))
    except Exception as error:
        raise TypeError(
            f"What this {name} was made with cannot be pickled ({type(error).__name__}: {error}), so neither can the "
            "fleet, nor can it be copied. Have env_fns make what they need themselves, or make another fleet."
        ) from error


def made_again(parcel: bytes) -> Any:
    """A fleet like the one that a parcel was made of; it has to be reset."""
    kind, (args, kwargs), given = pickle.loads(parcel)
    envs = kind(*args, **kwargs)
    vars(envs).update(given)
    envs._state.require_reset(NEEDS_RESET)
    return envs
