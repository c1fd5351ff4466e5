"""One environment with Gymnasium's three standard wrappers fused into it, made, stepped, asked and closed.

``TimeLimit``, ``OrderEnforcing`` and ``PassiveEnvChecker`` cost more per step than many environments' physics. For
exactly these types, at the outside of the stack, ``_core.StepSlot`` does their work with the same results. The wrapped
environment runs until the checker has seen all it wants to see. Then steps go to the environment inside, and only the
time limit is counted, where the wrapper itself counts it. Before every step the slot checks that this is still what
the wrappers would do. If anyone changed them, they step the environment themselves. Resets, rendering, calls and
attributes always go to the wrapped environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from envfleet import _core
from envfleet.redraw import Redraw
from envfleet.vector.engine import CallOrder, Report, SetAttrOrder
from envfleet.vector.failures import Failure

_contains = spaces.Discrete.contains
_INT64 = np.iinfo(np.int64)


@final
class _QuickDiscrete(spaces.Discrete):
    _quick: _core.DiscreteRange

    def __reduce__(self) -> Any:
        """A copy is a plain space: whoever made it does not step it here."""
        state = {name: value for name, value in vars(self).items() if name != "_quick"}
        return spaces.Discrete.__new__, (spaces.Discrete,), state


# Compiled: for values of exactly the space's dtype it asks `_quick`, for all others Gymnasium's method.
_QuickDiscrete.contains = _core.DiscreteRange.method_of(_QuickDiscrete)  # type: ignore[method-assign]


def quicken(space: Any) -> None:
    """Turns a plain Discrete space, in place, into one whose ``contains`` is quick.

    Many environments assert ``self.action_space.contains(action)`` at every step, which is a third of CartPole's whole
    step. While an environment steps, its space therefore runs as a subclass that answers for the one type of action
    that we hand out, as long as the space is what it was, and leaves all else to Gymnasium's code.
    """
    if type(space) is not spaces.Discrete or "contains" in vars(space) or spaces.Discrete.contains is not _contains:
        return
    n, start, dtype = space.n, space.start, space.dtype
    if type(n) is type(start) is dtype.type:
        first, end = int(start), int(start) + int(n)
        if _INT64.min <= first and end <= _INT64.max:
            vars(space)["_quick"] = _core.DiscreteRange(n, start, dtype, _contains, dtype.type, first, end)
            space.__class__ = _QuickDiscrete


def restore(space: Any) -> None:
    """Undoes ``quicken``."""
    if type(space) is _QuickDiscrete:
        del space._quick
        space.__class__ = spaces.Discrete  # type: ignore[assignment]


StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]
AnyEnv = gymnasium.Env[Any, Any]

EnvFn: TypeAlias = Callable[[], AnyEnv]


_STANDARD: tuple[type[Any], ...] = (TimeLimit, OrderEnforcing, PassiveEnvChecker)

_SETTLED = ("_has_reset", "checked_step", "checked_data_reuse")
"""Attributes that are True once a wrapper has nothing more to do in a step; which it has depends on the version."""

MAKE_ARGUMENTS = ("max_episode_steps", "disable_env_checker")
"""What ``gymnasium.make`` takes for its wrappers, and no constructor sees."""

_OWN_ATTRIBUTES = ("env", "_elapsed_steps", "_max_episode_steps", *_SETTLED)
"""What a step looks at, and no class has: it lies with the wrapper itself."""

_MOST_WRAPPERS = 16
"""More are not looked through: a wrapper that was put around itself has no end."""


@final
class FusedEnv:
    """An environment, stepped by calling ``step``, which goes to the environment inside while the wrappers allow it."""

    __slots__ = ("_first_seed", "_redraw", "env", "inner", "step")

    def __init__(self, env: AnyEnv, first_seed: int | None = None, redraw: Redraw | None = None) -> None:
        self.env = env
        self._first_seed = first_seed
        self._redraw = redraw
        self.step = _core.StepSlot()
        self._fuse()

    def _fuse(self) -> None:
        wrappers: list[tuple[Any, Any, tuple[str, ...]]] = []
        time_limit: Any = None
        inner: Any = self.env
        while _is_standard(inner) and len(wrappers) < _MOST_WRAPPERS:
            if type(inner) is TimeLimit:
                if time_limit is not None:
                    break
                time_limit = inner
            wrappers.append((inner, inner.env, tuple(name for name in _SETTLED if name in vars(inner))))
            inner = inner.env
        self.inner = inner
        quicken(getattr(inner, "action_space", None))
        self.step.fuse(inner, wrappers, time_limit, self._step_by_wrappers)

    def _step_by_wrappers(self, action: Any) -> StepResult:
        result = self.env.step(action)
        self._fuse()  # they may have settled, or be others by now
        return result

    def take_seed(self, seed: int | None) -> int | None:
        """The seed of the next reset: the first time ``first_seed``, unless another is given."""
        if self._first_seed is not None:
            seed, self._first_seed = self._first_seed if seed is None else seed, None
        return seed

    def begin_episode(self, seed: int | None) -> int | None:
        """To be called before a reset with this seed; returns the one to reset with.

        Where every episode has parameters of its own, it is another environment from now on.
        """
        if self._redraw is None:
            return seed
        self.env, seed = self._redraw.next(self.env, seed)
        self._fuse()
        return seed

    def return_to(self, episode: int) -> None:
        """Where every episode has parameters of its own: makes the environment with those of an earlier one again."""
        if self._redraw is not None:
            self.env = self._redraw.restore(self.env, episode)
            self._fuse()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the wrapped environment."""
        return self.env.reset(seed=seed, options=options)

    def before_access(self) -> None:
        """To be called before anyone looks at the environment: its action space is what it was."""
        restore(getattr(self.inner, "action_space", None))

    def after_access(self) -> None:
        """To be called after anyone looked at the environment."""
        quicken(getattr(self.inner, "action_space", None))


def _own_step(kind: type[Any]) -> Any:
    """The ``step`` that a class was written with; None if it has another by now."""
    step = vars(kind).get("step")
    file = getattr(sys.modules[kind.__module__], "__file__", None)
    return step if isinstance(step, FunctionType) and step.__code__.co_filename == file else None


_STEPS = {kind: _own_step(kind) for kind in (*_STANDARD, gymnasium.Wrapper)}
_LINEAGES = {kind: kind.__mro__ for kind in _STANDARD}


def _is_standard(env: Any) -> bool:
    """Whether this is one of the standard wrappers, and its class does what Gymnasium wrote."""
    kind: Any = type(env)
    if kind not in _STANDARD or "env" not in vars(env):
        return False
    return (
        kind.__mro__ == _LINEAGES[kind]
        and all(step is not None and vars(each).get("step") is step for each, step in _STEPS.items())
        and kind.__getattribute__ is object.__getattribute__
        and kind.__setattr__ is object.__setattr__
        and not any(hasattr(kind, name) for name in _OWN_ATTRIBUTES)
    )


def build_envs(
    env_fns: Iterable[EnvFn], first_index: int, announce: Callable[[int], None] = lambda _: None
) -> tuple[list[AnyEnv], Failure | None]:
    """Makes the environments, each once it was announced; after a failure those made so far are closed."""
    envs: list[AnyEnv] = []
    for index, env_fn in enumerate(env_fns, first_index):
        announce(index)
        try:
            envs.append(env_fn())
        except Exception as error:
            failure = Failure.of(error, index, "make")
            close_envs(envs)
            return [], failure
    return envs, None


def close_envs(envs: Iterable[AnyEnv], first_index: int = 0) -> list[Failure]:
    """Closes all environments, whatever some of them raise."""
    failures = []
    for index, env in enumerate(envs, first_index):
        try:
            env.close()
        except Exception as error:
            failures.append(Failure.of(error, index, "close"))
    return failures


_HARMLESS = frozenset(("render",))


def ask(
    order: CallOrder | SetAttrOrder,
    envs: Sequence[AnyEnv],
    first_index: int,
    touched: npt.NDArray[np.bool_],
    progress: _core.Progress,
) -> Report:
    """Asks all for which ``order.mask`` holds, and notes in ``touched`` those that a call may have changed.

    An exception is noted as a failure of one environment; the others are asked all the same.
    """
    report = Report()
    for row in np.flatnonzero(order.mask).tolist():
        progress.enter(row)
        method = "call" if isinstance(order, CallOrder) else "set_attr"
        try:
            if isinstance(order, SetAttrOrder):
                envs[row].set_wrapper_attr(order.name, order.values[row])
                continue
            value = partial(order.function, envs[row]) if order.function else envs[row].get_wrapper_attr(order.name)
            if callable(value):
                touched[row] |= order.function is not None or order.name not in _HARMLESS
                value = value(*order.args, **order.kwargs)
            report.results.append((first_index + row, value))
        except (Exception, SystemExit) as error:
            report.failures.append(Failure.of(error, first_index + row, method, order.name))
    return report
