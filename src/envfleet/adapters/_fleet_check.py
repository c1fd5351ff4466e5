"""What a fleet has to be before it can go under another library's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.vector.vector_env import FleetVectorEnv


def check_fleet(
    envs: Any, function: str, library: str, why: str, modes: Sequence[AutoresetMode], *, may_be_wrapped: bool = False
) -> None:
    """Refuses what is no fleet, has another autoreset mode, or would overwrite observations that the library keeps.

    Args:
        envs: What was given.
        function: The function that it was given to.
        library: The library's name.
        why: What the library does and which mode that is, as the beginning of a sentence.
        modes: The modes it can do with, the best one first.
        may_be_wrapped: Whether vector wrappers may be around the fleet.
    """
    fleet = getattr(envs, "unwrapped", None)
    if not isinstance(envs, VectorEnv) or not isinstance(fleet, FleetVectorEnv):
        around = ", or a vector wrapper around one" if may_be_wrapped else ""
        raise TypeError(f"{function} needs a fleet of envfleet.make_vec{around}, got {type(envs).__name__}.")
    if envs is not fleet and not may_be_wrapped:
        raise TypeError(f"{function} needs the fleet itself, without {type(envs).__name__} around it.")
    how = f'make_vec(..., autoreset_mode="{modes[0].name}")'
    if fleet.autoreset_mode not in modes:
        raise ValueError(f"{why}; this fleet is in {fleet.autoreset_mode.name} mode. Make it with {how}.")
    if not fleet.copy:
        raise ValueError(
            f"{library} keeps observations beyond the next step, so copy=False would change what it learns from."
            f" Make the fleet with copy=True, the default: {how}."
        )


def check_same_step(envs: Any, function: str, library: str) -> None:
    """What `check_fleet` does, for a library that resets in the step that ends an episode.

    Args:
        envs: What was given; vector wrappers may be around the fleet.
        function: The function that it was given to.
        library: The library's name.
    """
    why = f"{library} takes the first observation of the next episode in the step that ends one, which is SAME_STEP"
    check_fleet(envs, function, library, why, (AutoresetMode.SAME_STEP,), may_be_wrapped=True)
