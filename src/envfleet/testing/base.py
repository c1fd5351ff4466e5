"""What every topic of the contract stands on: the factory an implementer writes, and fleets that always close."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet.testing.requirements import pytest

# isort: split
from envfleet.testing.envs import EnvFn

# Gymnasium's VectorEnv does not declare the asynchronous half of the contract, so a type checker cannot help here.
Fleet = Any


class ContractBase:
    """Subclass one or more contracts and write `make`; pytest does the rest.

    Attributes:
        num_envs: environments in most fleets of the suite; odd, so that shards of two workers differ in size.
        max_examples: how many random cases each property test tries.
        autoreset_modes: those that your vector env has; tests of others are skipped. Where a test asks for no mode it
            expects NEXT_STEP, Gymnasium's default.
        arguments: which of `copy` and `observation_mode` your `make` takes; tests that need another one are skipped.
    """

    num_envs: int = 5
    max_examples: int = 20
    autoreset_modes: tuple[AutoresetMode, ...] = tuple(AutoresetMode)
    arguments: tuple[str, ...] = ("copy", "observation_mode")

    def __init_subclass__(cls) -> None:
        """Have every test say its rule when it fails: whoever reads it may know the suite from there only."""
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.isfunction(test) and test.__doc__:
                setattr(cls, name, _saying_its_rule(test))

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Fleet:
        """Return a vector env of these environments.

        Args:
            env_fns: one callable per environment.
            kwargs: any of `copy`, `observation_mode` and `autoreset_mode`, as Gymnasium's constructors take them, and
                `first_ready` in the contract about it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(self, env_fns, **kwargs)")

    def made(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Fleet:
        """Make a vector env with what it takes, or skip the test if that is not enough."""
        if kwargs.get("copy") is True and "copy" not in self.arguments:
            del kwargs["copy"]  # its default
        for name in ("copy", "observation_mode"):
            if name in kwargs and name not in self.arguments:
                pytest.skip(f"{type(self).__name__}.arguments has no {name}")
        mode = AutoresetMode(kwargs.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        if mode not in self.autoreset_modes:
            pytest.skip(f"{type(self).__name__}.autoreset_modes has no {mode.name}")
        return self.make(env_fns, **kwargs)

    def attributes(self, envs: Fleet, name: str) -> tuple[Any, ...]:
        """Return an attribute of every environment, or skip what a vector env without `get_attr` cannot show."""
        self.needs(envs, "get_attr")
        values: tuple[Any, ...] = envs.get_attr(name)
        return values

    def can_look_into(self, envs: Fleet) -> bool:
        """Return whether the vector env shows attributes of its environments, for what a test looks at besides."""
        return hasattr(envs, "get_attr")

    def needs(self, envs: Fleet, *methods: str) -> None:
        """Skip the test if the vector env lacks a method that Gymnasium's VectorEnv does not ask for."""
        for name in methods:
            if not hasattr(envs, name):
                pytest.skip(f"{type(envs).__name__} has no {name}")

    @contextmanager
    def fleet(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Iterator[Fleet]:
        """Make a vector env and close it whatever happens."""
        envs = self.made(env_fns, **kwargs)
        try:
            yield envs
        finally:
            envs.close()

    def zeros(self) -> npt.NDArray[np.int64]:
        """Return the harmless action 0 for every environment: int64[num_envs]."""
        return np.zeros(self.num_envs, np.int64)

    def order(self, orders: dict[int, int]) -> npt.NDArray[np.int64]:
        """Return the action 0 for every environment but those with orders: int64[num_envs]."""
        actions = self.zeros()
        for index, action in orders.items():
            actions[index] = action
        return actions


def _saying_its_rule(test: Callable[..., None]) -> Callable[..., None]:
    """Return the test with its docstring, one sentence, as a note to whatever it raises."""
    rule = f"The rule: {inspect.getdoc(test)}"

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True  # pytest shows the test itself
        try:
            test(*args, **kwargs)
        except (Exception, pytest.fail.Exception) as error:
            vars(error).setdefault("__notes__", []).append(rule)  # add_note() of Python 3.11
            raise

    return run


def mask_of(num_envs: int, *indices: int) -> npt.NDArray[np.bool_]:
    """Return a reset mask, True at the indices: bool[num_envs]."""
    mask = np.zeros(num_envs, np.bool_)
    mask[list(indices)] = True
    return mask


__all__ = ["ContractBase", "EnvFn", "Fleet", "mask_of", "pytest"]
