"""The spaces of a fleet: taken from its environments, checked against each other, batched."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from envfleet.vector.arguments import checked_batch_size, checked_env_fns
from envfleet.vector.fused_env import AnyEnv, EnvFn

ObservationMode: TypeAlias = "str | tuple[Space[Any], Space[Any]]"


@dataclass(frozen=True)
class EnvFace:
    """What an environment shows before it runs."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None

    @staticmethod
    def of(env: AnyEnv) -> EnvFace:
        """The face of an environment."""
        # Copies: what users do to the fleet's spaces is no business of the environment's, and vice versa.
        spaces = deepcopy((env.observation_space, env.action_space))
        return EnvFace(*spaces, dict(env.metadata), env.render_mode)


def faces_of(envs: Sequence[AnyEnv]) -> list[EnvFace]:
    """One face per environment; equal ones are one object, so that pickle sends it once."""
    faces: list[EnvFace] = []
    for env in envs:
        face = EnvFace.of(env)
        faces.append(faces[0] if faces and face == faces[0] else face)
    return faces


@dataclass(frozen=True)
class FleetSpaces:
    """The spaces, single and batched, and what else is common to all environments of a fleet."""

    num_envs: int
    single_observation_space: Space[Any]
    observation_space: Space[Any]
    single_action_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    autoreset_mode: AutoresetMode


def checked_mode(autoreset_mode: str | AutoresetMode) -> AutoresetMode:
    """The mode itself, or by its value ("SameStep") or name ("SAME_STEP"), in upper or lower case."""
    if isinstance(autoreset_mode, AutoresetMode):
        return autoreset_mode
    written = autoreset_mode.replace("_", "").lower() if isinstance(autoreset_mode, str) else None
    for mode in AutoresetMode:
        if written == mode.value.lower():
            return mode
    names = [mode.value for mode in AutoresetMode]
    raise ValueError(f"autoreset_mode must be one of {names}, got {autoreset_mode!r}.")


def checked_observation_mode(mode: ObservationMode) -> ObservationMode:
    """Refuses what is neither "same", "different" nor a pair of spaces."""
    if mode in ("same", "different"):
        return mode
    if not isinstance(mode, tuple) or len(mode) != 2:
        raise ValueError(
            f"observation_mode must be 'same', 'different' or a pair (batched space, single space), got {mode!r}."
        )
    if not all(isinstance(space, Space) for space in mode):
        raise TypeError(f"Both parts of observation_mode must be spaces, got {[type(part).__name__ for part in mode]}.")
    return mode


def fleet_spaces(
    faces: Sequence[EnvFace], observation_mode: ObservationMode, autoreset_mode: AutoresetMode
) -> FleetSpaces:
    """Batches the spaces of all environments, or raises RuntimeError naming the one that does not fit."""
    first, count = faces[0], len(faces)
    if isinstance(observation_mode, tuple):
        observation_space, single = observation_mode
    elif observation_mode == "different":
        single = first.observation_space
        _check_observation_spaces(faces, single, observation_mode)
        observation_space = batch_differing_spaces([face.observation_space for face in faces])
    else:
        single, observation_space = first.observation_space, batch_space(first.observation_space, count)
    _check_observation_spaces(faces, single, observation_mode)
    _check_action_spaces(faces)
    return FleetSpaces(
        count,
        single,
        observation_space,
        first.action_space,
        batch_space(first.action_space, count),
        first.metadata,
        first.render_mode,
        autoreset_mode,
    )


def _check_observation_spaces(faces: Sequence[EnvFace], single: Space[Any], mode: ObservationMode) -> None:
    for index, face in enumerate(faces):
        space = face.observation_space
        if mode == "same" and space != single:
            raise RuntimeError(
                f"Environment {index} has the observation space {space}, the first one {single}. If they are meant "
                "to differ in their bounds, pass observation_mode='different'."
            )
        if mode != "same" and not is_space_dtype_shape_equiv(space, single):
            raise RuntimeError(
                f"Environment {index} has the observation space {space}, which shares no shape and dtype with {single}."
            )


def _check_action_spaces(faces: Sequence[EnvFace]) -> None:
    for index, face in enumerate(faces):
        if face.action_space != faces[0].action_space:
            raise RuntimeError(
                f"Environment {index} has the action space {face.action_space}, the first one "
                f"{faces[0].action_space}: to batch actions they must be equal."
            )


@dataclass(frozen=True)
class EnvFunctions:
    """Functions that make the environments of a fleet, and how their spaces are put together; all checked."""

    env_fns: list[EnvFn]
    observation_mode: ObservationMode
    autoreset_mode: AutoresetMode

    @staticmethod
    def checked(env_fns: Any, observation_mode: Any, autoreset_mode: Any, batch_size: Any) -> EnvFunctions:
        """The arguments that all vector environments of Python environments share."""
        functions = checked_env_fns(env_fns)
        modes = checked_observation_mode(observation_mode), checked_mode(autoreset_mode)
        checked_batch_size(batch_size, len(functions))
        return EnvFunctions(functions, *modes)

    def __len__(self) -> int:
        return len(self.env_fns)

    def spaces(self, faces: Sequence[EnvFace]) -> FleetSpaces:
        """The spaces of the fleet, given what its environments show."""
        return fleet_spaces(faces, self.observation_mode, self.autoreset_mode)
