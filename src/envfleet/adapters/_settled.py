"""Arguments of fleets that another library leaves no choice about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envfleet.vector.spaces import checked_mode


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
