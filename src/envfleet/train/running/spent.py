"""What a training spends its time on: the policy, the engine with the environments, the update."""

from __future__ import annotations

import time
from typing import Any, final

from envfleet.train.observations import Array
from envfleet.train.watch import Shielded


@final
class Spent:
    """Seconds of a training, by part.

    Attributes:
        policy: takes the place of the policy while it is measured; None while it is not.
    """

    def __init__(self) -> None:
        self.policy: TimedPolicy | None = None
        self._collecting = self._learning = 0.0
        self._since = -1

    def note(self, collecting: float, learning: float) -> None:
        """Count a rollout and its update."""
        self._collecting += collecting
        self._learning += learning

    def measure(self, policy: Shielded | None) -> None:
        """Measure this policy from now on, or none any more."""
        if (policy is None) != (self.policy is None):
            self.policy = None if policy is None else TimedPolicy(policy)

    def parts(self, step: int) -> dict[str, Any]:
        """Seconds since the last time, and the steps made meanwhile; the counting begins anew.

        `policy` is None where it is not known: not measured, or in one call of compiled code with the engine.
        """
        policy = None if self.policy is None or not self.policy.calls else self.policy.seconds
        found = {
            "steps": step - self._since if self._since >= 0 else 0,
            "policy": policy,
            "collecting": self._collecting,
            "update": self._learning,
        }
        self._collecting = self._learning = 0.0
        self._since = step
        if self.policy is not None:
            self.policy.seconds, self.policy.calls = 0.0, 0
        return found


@final
class TimedPolicy:
    """A policy that says how long it took.

    Args:
        policy: the policy.
    """

    def __init__(self, policy: Shielded) -> None:
        self._policy, self.compiled = policy, policy.compiled
        self.seconds, self.calls = 0.0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """Actions, one per row."""
        began = time.perf_counter()
        actions = self._policy(*args, **kwargs)
        self.seconds += time.perf_counter() - began
        self.calls += 1
        return actions
