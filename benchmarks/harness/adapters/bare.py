"""One environment in a plain loop, whatever the workload's number: what an engine adds, or saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from harness.fleet import Fleet
from harness.workloads import Workload


@final
class BareEnv(Fleet):
    """One environment, reset as soon as an episode ends."""

    def __init__(self, env: Any) -> None:
        super().__init__(1, env.observation_space, env.action_space)
        self.env = env

    def reset(self) -> Any:
        """Reset it."""
        return self.env.reset(seed=0)[0]

    def step(self, actions: Any) -> tuple[Any, int]:
        """Step it."""
        observation, _, terminated, truncated, _ = self.env.step(actions)
        if terminated or truncated:
            observation, _ = self.env.reset()
        return observation, 1

    def batch(self, actions: list[Any]) -> list[Any]:
        """Single actions."""
        return [action[0] for action in actions]

    def close(self) -> None:
        """Close it."""
        self.env.close()


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:  # noqa: ARG001  there is nothing to choose
    """Make one environment."""
    return BareEnv(workload.env_fn()())
