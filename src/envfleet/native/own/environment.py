"""Environments of one's own for the native pool: what those from a library and those compiled from Python share."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from envfleet.vector.fused_env import MAKE_ARGUMENTS

Parameters: TypeAlias = "dict[str, Any]"
"""What constructor arguments become: parameters of a compiled environment, by their names there."""

AnySpace: TypeAlias = "gymnasium.Space[Any]"
Number: TypeAlias = "bool | int | float"

_NAMESPACE = "own"


@final
@dataclass(frozen=True)
class Description:
    """What is known about an environment before it runs.

    Attributes:
        name: What errors and plans call it.
        observation_space: A Box, Discrete or MultiDiscrete space.
        action_space: The same.
        parameters: Constructor arguments with their defaults, whose types are those of all their values.
        max_episode_steps: When an episode is cut off; None for never.
    """

    name: str
    observation_space: AnySpace
    action_space: AnySpace
    parameters: Mapping[str, Number] = field(default_factory=dict)
    max_episode_steps: int | None = None


class OwnEnvironment(ABC):
    """An environment that runs on the native pool. ``make_vec`` takes it as it takes an id.

    Called, it makes an ordinary Gymnasium environment that gives the same results: for debugging, for the other
    backends, for ``gymnasium.register(id, entry_point=this)``.

    Attributes:
        description: Its spaces, parameters and time limit.
        render_modes: How the ordinary environment draws, if it can.
    """

    def __init__(self, description: Description, render_modes: tuple[str, ...] = ()) -> None:
        for name in description.parameters:
            _check_parameter_name(name)
        self.description, self.render_modes = description, render_modes
        self.__name__ = description.name
        self.__signature__ = self._signature()

    @property
    @abstractmethod
    def address(self) -> int:
        """Where its ``envfleet_environment`` lies; an UnsupportedError says why it has none."""

    @abstractmethod
    def _make(self, parameters: Parameters, render_mode: str | None) -> OwnEnv:
        """An ordinary environment."""

    @property
    def spec(self) -> EnvSpec:
        """The spec by which ``gymnasium.make`` makes the ordinary environment."""
        name = "".join(c for c in self.description.name if c.isalnum()) or "env"
        return EnvSpec(
            f"{_NAMESPACE}/{name}-v0",
            self,
            max_episode_steps=self.description.max_episode_steps,
            disable_env_checker=True,
        )

    def __call__(self, *, render_mode: str | None = None, **parameters: Any) -> OwnEnv:
        """Makes an ordinary environment with these parameters."""
        if render_mode is not None and render_mode not in self.render_modes:
            raise ValueError(
                f"{self.description.name} knows the render modes {list(self.render_modes)}, got {render_mode!r}."
            )
        return self._make(self.checked(parameters), render_mode)

    def checked(self, parameters: Mapping[str, Any]) -> Parameters:
        """All parameters: the given ones where they are of the right type, else the defaults."""
        known = self.description.parameters
        unknown = sorted(parameters.keys() - known.keys())
        if unknown:
            names = ", ".join(known) or "none"
            raise TypeError(f"{self.description.name} has no parameter {unknown[0]!r}; it has: {names}.")
        return {name: _like(name, default, parameters.get(name, default)) for name, default in known.items()}

    def pose(self, env: Any, attributes: Mapping[str, Any]) -> None:
        """Brings an ordinary environment, which is to draw, into the state of a native one."""
        raise NotImplementedError(f"{self.description.name} cannot be drawn.")

    def _signature(self) -> inspect.Signature:
        names: dict[str, Number | None] = dict(self.description.parameters)
        if self.render_modes:
            names["render_mode"] = None
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind, default=value) for name, value in names.items()])

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnEnvironment:
        return self  # it never changes, and specs are copied a lot

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.description.name}>"


@final
class PoolParameters:
    """From an environment's constructor arguments to the parameters as the pool takes them."""

    def __init__(self, environment: OwnEnvironment) -> None:
        self._environment = environment
        self.__signature__ = environment.__signature__

    def __call__(self, **arguments: Any) -> Parameters:
        """The parameters of an environment made with these arguments."""
        return {"_environment": self._environment.address, **self._environment.checked(arguments)}


class OwnEnv(gymnasium.Env[Any, Any], ABC):
    """One environment as Gymnasium has them. Parameters are attributes.

    Args:
        description: What it is.
        parameters: The values of all parameters.
        render_mode: None, or how it draws.
    """

    def __init__(self, description: Description, parameters: Parameters, render_mode: str | None) -> None:
        self.description, self.render_mode = description, render_mode
        self.observation_space, self.action_space = description.observation_space, description.action_space
        vars(self).update(parameters)

    @abstractmethod
    def _begin(self) -> None:
        """Begins an episode."""

    @abstractmethod
    def _advance(self, action: Any) -> tuple[float, bool, bool]:
        """A step: reward, terminated, truncated."""

    @abstractmethod
    def _write(self, observation: Any) -> None:
        """Writes what is to be seen into an array, which of a Discrete space has one number."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode. There are no options."""
        if options:
            raise ValueError(f"unknown reset option {next(iter(options))!r}; this environment knows: none.")
        super().reset(seed=seed)
        self._begin()
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step, as Gymnasium has it."""
        reward, terminated, truncated = self._advance(action)
        return self._observe(), reward, terminated, truncated, {}

    def _observe(self) -> Any:
        space = self.observation_space
        observation = np.zeros(space.shape or (1,), space.dtype)
        self._write(observation)
        return observation[0] if isinstance(space, gymnasium.spaces.Discrete) else observation

    def _parameter_values(self) -> list[Number]:
        return [getattr(self, name) for name in self.description.parameters]


def _check_parameter_name(name: str) -> None:
    if not name.isidentifier() or name.startswith("_") or hasattr(gymnasium.Env, name) or name in _TAKEN:
        raise ValueError(f"{name!r} cannot be a parameter's name: it is no identifier, or Gymnasium's.")


_TAKEN = ("description", "render_mode", "observation_space", "action_space", *MAKE_ARGUMENTS)


def _like(name: str, default: Number, value: Any) -> Number:
    """The value as what its parameter is: a bool, an integer or a float."""
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) is type(default) or (type(default) is float and type(plain) is int):
        return type(default)(plain)
    expected = {bool: "a bool", int: "an integer", float: "a number"}[type(default)]
    raise TypeError(f"{name} must be {expected}, got {value!r}.")
