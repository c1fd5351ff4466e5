"""The notes of a checkpoint: the loop's counters and statistics, and whether they can be what a run wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_COUNTERS = ("step", "rollouts", "stream", "episodes")


def problems_of(notes: Mapping[str, Any], num_envs: int) -> Iterator[str]:
    """What is missing in a checkpoint's notes or no such thing, as parts of a sentence; nothing if all is well."""
    for name in _COUNTERS:
        yield from _unless(_is_whole(notes.get(name)), name, "an integer of 0 or more", notes)
    yield from _unless(_is_time(notes.get("seconds")), "seconds", "a number of 0 or more", notes)
    yield from _unless(_are_numbers(notes.get("recent")), "recent", "a list of returns", notes)
    yield from _unless(
        _is_tracker(notes.get("tracker"), num_envs),
        "tracker",
        f"the returns and lengths of {num_envs} episodes under way",
        notes,
    )
    yield from _unless(
        _is_interval(notes.get("interval")), "interval", "sums, counts, episodes, steps and seconds since a row", notes
    )
    if "watch" in notes:  # earlier versions wrote none
        yield from _unless(_is_watch(notes["watch"], num_envs), "watch", "which episodes are dropped", notes)


def _unless(holds: bool, name: str, wanted: str, notes: Mapping[str, Any]) -> Iterator[str]:
    if not holds:
        yield f"{name} must be {wanted}, got {str(notes[name])[:80]}" if name in notes else f"it lacks {name!r}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_watch(value: Any, num_envs: int) -> bool:
    if not isinstance(value, dict) or not _is_whole(value.get("dropped")):
        return False
    dropping = value.get("dropping")
    return isinstance(dropping, list) and len(dropping) == num_envs and all(isinstance(one, bool) for one in dropping)


def _is_tracker(value: Any, num_envs: int) -> bool:
    if not isinstance(value, dict):
        return False
    returns, lengths = value.get("returns"), value.get("lengths")
    return (
        isinstance(returns, list)
        and isinstance(lengths, list)
        and _are_numbers(returns)
        and all(map(_is_whole, lengths))
        and len(returns) == len(lengths) == num_envs
    )


def _is_interval(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    sums, counts, episodes = value.get("sums"), value.get("counts"), value.get("episodes")
    return (
        isinstance(sums, dict)
        and isinstance(counts, dict)
        and sums.keys() == counts.keys()
        and all(map(_is_number, sums.values()))
        and all(map(_is_whole, counts.values()))
        and isinstance(episodes, list)
        and all(isinstance(pair, list) and len(pair) == 2 and _are_numbers(pair) for pair in episodes)
        and _is_whole(value.get("steps"))
        and _is_time(value.get("seconds"))
    )
