"""What a fleet on a device asks of an environment: pure functions that JAX can compile."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict

from envfleet._names import accepted_keywords, with_hints

Values: TypeAlias = Mapping[str, Any]
"""Parameters of one environment by name: numbers, or what JAX traces in their place."""


class FunctionalEnv(ABC):
    """One environment as functions of keys, states, actions and parameters. It has no state of its own.

    Attributes:
        name: What errors and plans call it.
        observation_space: Gymnasium's.
        action_space: Gymnasium's.
        metadata: Gymnasium's.
        time_limit: The steps after which an episode is truncated, if the functions do not do that themselves.
        values: The parameters that the functions are given, with the values that all environments share.
        defaults: All parameters that environments may differ in, with the values they have unless told otherwise.
    """

    name: str
    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    time_limit: int | None
    values: dict[str, Any]
    defaults: dict[str, Any]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that environments may differ in."""
        return tuple(self.defaults)

    @abstractmethod
    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:
        """State, observation and info of a new episode."""

    @abstractmethod
    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
        """State, observation, reward, terminated, truncated and info after an action. Never resets."""

    def render(self, state: Any, values: Values) -> Any:
        """The frame of a state, uint8 (height, width, 3)."""
        raise NotImplementedError(f"{self.name} cannot be rendered: its library has no renderer for it.")

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Closes what draws."""


def field_names(parameters: Any) -> tuple[str, ...]:
    """The names of a set of parameters: a dataclass, a named tuple, a dict, or None."""
    if dataclasses.is_dataclass(parameters):
        return tuple(field.name for field in dataclasses.fields(parameters))
    return tuple(getattr(parameters, "_fields", parameters or ()))


def field_values(parameters: Any) -> dict[str, Any]:
    """A set of parameters as a dict."""
    if isinstance(parameters, Mapping):
        return dict(parameters)
    return {name: getattr(parameters, name) for name in field_names(parameters)}


def replaced(parameters: Any, values: Values) -> Any:
    """A set of parameters of the same kind with some of them replaced."""
    if not values:
        return parameters
    if dataclasses.is_dataclass(parameters):
        return dataclasses.replace(parameters, **values)  # type: ignore[type-var]
    return parameters._replace(**values) if hasattr(parameters, "_replace") else {**parameters, **values}


def shared_out(
    maker: Callable[..., Any], env_kwargs: Values, parameters: Iterable[str], env: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Constructor arguments and parameters, told apart by their names; what is neither is refused."""
    parameters, accepted = tuple(parameters), accepted_keywords(maker)
    values = {name: value for name, value in env_kwargs.items() if name in parameters}
    rest = {name: value for name, value in env_kwargs.items() if name not in parameters}
    if accepted is not None:
        refuse_unknown(rest, (*parameters, *accepted), env)
    return rest, values


def refuse_unknown(names: Iterable[str], known: Iterable[str], env: str) -> None:
    """Refuses parameters that an environment does not have."""
    known = tuple(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise TypeError(
            f"{env} has no parameter {with_hints(unknown, known)}; it has {', '.join(known) or 'no parameters at all'}."
        )


def boundless(observation: Any) -> Box | Dict:
    """The space of an observation, an array or a dict of arrays, where nobody knows any bounds."""
    if isinstance(observation, Mapping):
        return Dict({name: boundless(part) for name, part in observation.items()})
    return Box(-np.inf, np.inf, observation.shape, np.float32)
