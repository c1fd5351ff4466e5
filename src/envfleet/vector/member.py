"""One environment in its slot, with Gymnasium's three standard wrappers fused into it.

``TimeLimit``, ``OrderEnforcing`` and ``PassiveEnvChecker`` cost more a step than many environments'
physics. For exactly these types, at the outside of the stack, their work is done here with the same
results: the wrapped environment runs until the checker has seen all it wants to see, then steps go to the
environment inside and only the time limit is counted. Resets, rendering, calls and attributes always go
to the wrapped environment, which finds its step counter where it would have left it.
"""

from __future__ import annotations

import sys
from typing import Any, final

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from envfleet import _core
from envfleet.episodes import Redraw
from envfleet.vector.quick_spaces import quicken, restore

StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]
AnyEnv = gymnasium.Env[Any, Any]


@final
class Member:
    """An environment, stepped by calling ``step``, which goes to the environment inside once the wrappers are fused."""

    __slots__ = (
        "_checkers",
        "_enforcers",
        "_first_seed",
        "_fused",
        "_redraw",
        "_time_limit",
        "env",
        "inner",
        "step",
    )

    def __init__(self, env: AnyEnv, first_seed: int | None = None, redraw: Redraw | None = None) -> None:
        self.env = env
        self._first_seed = first_seed
        self._redraw = redraw
        self._peel()
        self._fused = False
        self.step = _core.StepSlot()
        self.after_access()

    def _peel(self) -> None:
        self._time_limit: TimeLimit[Any, Any] | None = None
        self._enforcers: list[Any] = []
        self._checkers: list[Any] = []
        inner = self.env
        while True:
            if type(inner) is TimeLimit and self._time_limit is None:
                self._time_limit = inner
            elif type(inner) is OrderEnforcing:
                self._enforcers.append(inner)
            elif type(inner) is PassiveEnvChecker:
                self._checkers.append(inner)
            else:
                break
            inner = inner.env
        self.inner = inner

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
        self._peel()
        return seed

    def return_to(self, episode: int) -> None:
        """Where every episode has parameters of its own: makes the environment with those of an earlier one again."""
        if self._redraw is not None:
            self.env = self._redraw.restore(self.env, episode)
            self._peel()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the wrapped environment."""
        self.step.begin_episode()
        result = self.env.reset(seed=seed, options=options)
        if self._redraw is not None:
            self.after_access()
        return result

    def before_access(self) -> None:
        """To be called before anyone looks at the environment: puts the step count where it belongs."""
        restore(self.inner.action_space)
        if self._time_limit is not None and self._fused:
            self._time_limit._elapsed_steps = self.step.elapsed  # type: ignore[assignment]

    def after_access(self) -> None:
        """To be called after anyone may have changed the environment: steps by the wrappers, if need be."""
        quicken(self.inner.action_space)
        if self.inner is self.env:
            self.step.call(self.env.step)
        elif not self._fuse_if_settled():
            self.step.call(self._step_until_settled)

    def _step_until_settled(self, action: Any) -> StepResult:
        result = self.env.step(action)
        self._fuse_if_settled()
        return result

    def _fuse_if_settled(self) -> bool:
        time_limit = self._time_limit
        elapsed = 0 if time_limit is None else time_limit._elapsed_steps
        self._fused = elapsed is not None and self._wrappers_settled()
        if elapsed is not None and self._fused:
            limit = sys.maxsize if time_limit is None else time_limit._max_episode_steps
            self.step.call(self.inner.step, elapsed, limit)
        return self._fused

    def _wrappers_settled(self) -> bool:
        """Whether the wrappers have nothing more to do in a step than to count it.

        What they do not show, in some other version of Gymnasium, they may still have to do.
        """
        wrappers = [*self._enforcers, *self._checkers, *([self._time_limit] if self._time_limit else [])]
        return (
            not any("step" in vars(wrapper) for wrapper in wrappers)
            and all(getattr(enforcer, "_has_reset", False) for enforcer in self._enforcers)
            and all(_has_checked_all(checker) for checker in self._checkers)
        )


def _has_checked_all(checker: Any) -> bool:
    checks = ("checked_reset", "checked_step")
    return all(getattr(checker, check, False) for check in checks) and getattr(checker, "checked_data_reuse", True)
