"""Environments written in Python and compiled by numba: one class over a NumPy record."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from gymnasium.spaces import Discrete

from envfleet.native.own import abi, layout
from envfleet.native.own.environment import AnySpace, Description, Number, OwnEnv, OwnEnvironment, Parameters
from envfleet.native.own.layout import ACTION, Fields

_METHODS = {
    "reset": ("self", "random"),
    "step": ("self", "action", "random"),
    "observe": ("self", "observation"),
}


def compile(  # noqa: A001  always said with its module
    *,
    observation_space: AnySpace,
    action_space: AnySpace,
    state: Fields,
    parameters: Mapping[str, Number] | None = None,
    max_episode_steps: int | None = None,
) -> Callable[[type], CompiledEnvironment]:
    """Makes an environment for the native pool of a class; numba compiles it when a fleet is first made.

    The class has three methods, in which ``self`` is a NumPy record of the state and the parameters:

    - ``reset(self, random)`` begins an episode: it sets the state, which keeps what it does not set.
    - ``step(self, action, random)`` changes the state and returns ``reward, terminated``.
    - ``observe(self, observation)`` writes what is to be seen into an array, all of it.

    and may have ``render(self)``, which returns a picture and is never compiled. ``random`` has the methods
    ``random``, ``uniform``, ``normal``, ``standard_normal`` and ``integers`` of ``numpy.random.Generator``.

    Args:
        observation_space: A Box, Discrete or MultiDiscrete space. Of a Discrete one ``observation`` has one number.
        action_space: The same. Actions of a Discrete space are integers, others arrays of float64 or int64.
        state: The fields of the record: name, type (float, int or bool) and, of arrays, shape.
        parameters: Constructor arguments with their defaults: floats, integers or bools.
        max_episode_steps: When an episode is cut off; None for never.
    """

    def decorate(source: type) -> CompiledEnvironment:
        return CompiledEnvironment(
            source,
            Description(source.__name__, observation_space, action_space, dict(parameters or {}), max_episode_steps),
            state,
        )

    return decorate


@final
class CompiledEnvironment(OwnEnvironment):
    """An environment written in Python.

    Args:
        source: The class with the methods.
        description: Its spaces, parameters and time limit.
        state: The fields of its state.
    """

    def __init__(self, source: type, description: Description, state: Fields) -> None:
        _check_methods(source)
        layout.check(description)
        self._fields = tuple(state)
        self.source = source
        self.record = layout.record(description, state)
        self.__doc__ = source.__doc__
        super().__init__(description, ("rgb_array",) if hasattr(source, "render") else ())

    @property
    def address(self) -> int:
        """Where its ``envfleet_environment`` lies, compiled when first asked for."""
        return ctypes.addressof(self._environment)

    @cached_property
    def _environment(self) -> abi.Environment:
        from envfleet.native.own.numba_code import callbacks  # not before it is needed: numba takes half a second

        self._callbacks = callbacks(self)
        return layout.environment(self.description, self.record.itemsize, self._callbacks.addresses)

    def _make(self, parameters: Parameters, render_mode: str | None) -> OwnEnv:
        return _PlainEnv(self, parameters, render_mode)

    def pose(self, env: Any, attributes: Mapping[str, Any]) -> None:
        """Brings an ordinary environment, which is to draw, into the state of a native one."""
        env.show(**attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledEnvironment, (self.source, self.description, self._fields)


@final
class _PlainEnv(OwnEnv):
    """One environment whose functions Python runs."""

    def __init__(self, environment: CompiledEnvironment, parameters: Parameters, render_mode: str | None) -> None:
        super().__init__(environment.description, parameters, render_mode)
        self.metadata = {"render_modes": list(environment.render_modes), "render_fps": 30}
        self._source: Any = environment.source
        self._record: Any = np.zeros(1, np.dtype((np.record, environment.record)))[0]

    def _begin(self) -> None:
        self._source.reset(self._ready(), self.np_random)

    def _advance(self, action: Any) -> tuple[float, bool, bool]:
        record = self._ready()
        if isinstance(self.action_space, Discrete):
            given: Any = int(action)
        else:
            given = record[ACTION]
            given[...] = action
        reward, terminated = self._source.step(record, given, self.np_random)
        return float(reward), bool(terminated), False

    def _write(self, observation: Any) -> None:
        self._source.observe(self._ready(), observation)

    def _ready(self) -> Any:
        """The record with the parameters as they are now."""
        for name in self.description.parameters:
            self._record[name] = getattr(self, name)
        return self._record

    def show(self, _state_words: Sequence[int], **parameters: Any) -> None:
        """Takes over the state of a native environment."""
        vars(self).update(parameters)
        words = np.array(_state_words, np.int64)
        self._record = words.view(np.uint8)[: self._record.dtype.itemsize].view(self._record.dtype)[0]

    def render(self) -> Any:
        """The picture, if the class can draw one."""
        return None if self.render_mode is None else self._source.render(self._ready())


def _check_methods(source: type) -> None:
    for name, expected in _METHODS.items():
        method = vars(source).get(name)
        if not inspect.isfunction(method):
            raise TypeError(f"{source.__name__} needs a method {name}({', '.join(expected)}).")
        got = tuple(inspect.signature(method).parameters)
        if len(got) != len(expected):
            raise TypeError(f"{source.__name__}.{name} must take ({', '.join(expected)}), not ({', '.join(got)}).")
