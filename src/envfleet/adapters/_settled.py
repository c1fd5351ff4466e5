"""What another library leaves no choice about: arguments of fleets, and the mode of one that exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.vector.spaces import checked_mode
from envfleet.vector.vector_env import FleetVectorEnv


def settled_arguments(settled: Mapping[str, Any], given: Mapping[str, Any], where: str, why: str) -> dict[str, Any]:
    """Those given, if none contradicts what is settled, without the settled ones.

    Args:
        settled: The only value that each of these arguments may have.
        given: What the user says.
        where: Where the user says it, for the error.
        why: Why there is no choice, for the error.

    Raises:
        ValueError: Another value was given.
    """
    for name, only in settled.items():
        if name not in given:
            continue
        came = checked_mode(given[name]) if name == "autoreset_mode" else given[name]
        if came != only:
            shown = getattr(only, "name", only)
            raise ValueError(f"{why}. Leave {name} out of {where}: it is {shown}, got {given[name]!r}.")
    return {name: value for name, value in given.items() if name not in settled}


def check_same_step(envs: Any, function: str, library: str) -> None:
    """Refuses what is no fleet in SAME_STEP mode whose observations are the caller's to keep.

    Args:
        envs: What the user gave.
        function: What it was given to.
        library: Who wants it so.

    Raises:
        TypeError: It is no fleet of envfleet.
        ValueError: Its autoreset mode is another, or it was made with ``copy=False``.
    """
    fleet = getattr(envs, "unwrapped", None)
    if not isinstance(envs, VectorEnv) or not isinstance(fleet, FleetVectorEnv):
        raise TypeError(
            f"{function} needs a fleet of envfleet.make_vec, or a vector wrapper around one, got {type(envs).__name__}."
        )
    how = 'make_vec(..., autoreset_mode="SAME_STEP")'
    if fleet.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"{library} takes the first observation of the next episode in the step that ends one, which is "
            f"SAME_STEP; this fleet is in {fleet.autoreset_mode.name} mode. Make it with {how}."
        )
    if not fleet.copy:
        raise ValueError(
            f"{library} keeps observations beyond the next step, so copy=False would change what it learns from."
            f" Make the fleet with copy=True, the default: {how}."
        )
