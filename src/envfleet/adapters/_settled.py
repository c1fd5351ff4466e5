"""Fleets for a library that asks for them itself, and leaves no choice about some of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from gymnasium.vector import AutoresetMode

from envfleet._single import Wrapper
from envfleet.backends import BackendName
from envfleet.make import EnvReference, make_vec
from envfleet.vector.spaces import checked_mode
from envfleet.vector.vector_env import FleetVectorEnv


@final
@dataclass(frozen=True)
class SettledMode:
    """The only autoreset mode that a library can do with; it also needs ``copy=True``.

    Attributes:
        mode: The mode.
        why: Why there is no choice, as a sentence without its full stop, for errors.
    """

    mode: AutoresetMode
    why: str

    def checked(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The given arguments without the settled ones.

        Args:
            given: What the user says.
            where: Where the user says it, for the error.

        Raises:
            ValueError: It contradicts what is settled.
        """
        came = dict(given)
        mode, copy = came.pop("autoreset_mode", self.mode), came.pop("copy", True)
        if checked_mode(mode) is not self.mode:
            raise ValueError(f"{self.why}. Leave autoreset_mode out of {where}: it is {self.mode.name}, got {mode!r}.")
        if copy is not True:
            raise ValueError(f"{self.why}. Leave copy out of {where}: it is True, got {copy!r}.")
        return came


@final
@dataclass(frozen=True)
class FleetRecipe:
    """What a library's fleets are made of; can be pickled if the environment's id can."""

    id: EnvReference
    backend: BackendName
    vector_kwargs: Mapping[str, Any]
    wrappers: tuple[Wrapper, ...]
    arguments: Mapping[str, Any]
    settled: SettledMode

    @classmethod
    def checked(
        cls,
        settled: SettledMode,
        id: EnvReference,  # noqa: A002  Gymnasium's name
        backend: BackendName,
        vector_kwargs: Mapping[str, Any] | None,
        wrappers: Sequence[Wrapper] | None,
        arguments: Mapping[str, Any],
    ) -> FleetRecipe:
        """A recipe from the arguments of a library's ``creator``; a ValueError if they contradict what is settled."""
        of_vector = settled.checked(vector_kwargs or {}, "vector_kwargs")
        return cls(id, backend, of_vector, tuple(wrappers or ()), settled.checked(arguments, "creator(...)"), settled)

    def make(self, num_envs: int, more: Mapping[str, Any]) -> FleetVectorEnv:
        """A fleet; ``more`` are further arguments, which go before those of the recipe."""
        of_vector = {**self.vector_kwargs, "autoreset_mode": self.settled.mode}
        return make_vec(self.id, num_envs, self.backend, of_vector, self.wrappers, **{**self.arguments, **more})
