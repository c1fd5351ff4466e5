"""The arguments of a native fleet: checked, and sorted into the constructor's and those of ``gymnasium.make``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from gymnasium.envs.registration import EnvSpec

from envfleet.native.catalogue import NativeKind, Parameters, UnsupportedError

NO_LIMIT = sys.maxsize

_OF_MAKE = ("max_episode_steps", "disable_env_checker")


@final
@dataclass(frozen=True)
class EnvArguments:
    """What one environment is made with, as the pool takes it.

    Attributes:
        parameters: By their names in C++.
        time_limit: Steps an episode.
    """

    parameters: Parameters
    time_limit: int


def env_arguments(spec: EnvSpec, kind: NativeKind, env_kwargs: Mapping[str, Any]) -> EnvArguments:
    """The arguments of one environment, those of the registry included; an UnsupportedError names what is not."""
    constructor = {**spec.kwargs, **env_kwargs}
    of_make = {name: constructor.pop(name) for name in _OF_MAKE if name in constructor}
    unknown = kind.unknown_arguments(constructor)
    if unknown:
        raise UnsupportedError(f"the argument {unknown[0]!r} of {spec.id}")
    return EnvArguments(kind.parameters_from(constructor), _time_limit(spec, of_make.get("max_episode_steps")))


def check_varied(spec: EnvSpec, kind: NativeKind, varied: Sequence[Mapping[str, Any]]) -> None:
    """Refuses arguments in which the environments of one fleet cannot differ, whichever environment has them."""
    shared = {"render_mode", "disable_env_checker", *kind.shaping}
    for env, arguments in enumerate(varied):
        for name in sorted(shared.intersection(arguments)):
            raise UnsupportedError(
                f"environments that differ in {name!r}, which environment {env} of {spec.id} has as "
                f"{arguments[name]!r:.80}: give it to all of them alike, as a constructor argument, or use "
                "backend='process', with vector_kwargs={'observation_mode': 'different'} where their spaces differ"
            )


def _time_limit(spec: EnvSpec, asked: Any) -> int:
    """As ``gymnasium.make`` has it: -1 for none, None for the registered one."""
    limit = spec.max_episode_steps if asked is None else asked
    if limit is None or limit == -1:
        return NO_LIMIT
    if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or not 0 < limit <= NO_LIMIT:
        raise ValueError(f"max_episode_steps of {spec.id} must be a positive integer, or -1 for none, got {limit!r}.")
    return int(limit)
