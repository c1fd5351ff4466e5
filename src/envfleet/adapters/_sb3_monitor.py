"""What ``Monitor`` does, for a whole fleet at once: nothing but a list's append in most steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor

from envfleet.vector.infos import Info

_MOST_OLD_STEPS = 256
"""How many steps that belong to no episode any more are kept before they are dropped, all at once."""


@final
class _Echo(gymnasium.Env[Any, Any]):
    """What a ``Monitor`` wraps here: its step returns what it is given."""

    def __init__(self, spec: EnvSpec | None) -> None:
        self.spec = spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:  # noqa: ARG002
        """Nothing: the fleet has been reset."""
        return None, {}

    def step(self, action: Any) -> Any:
        """What was given."""
        return action


@final
class FleetMonitor:
    """One ``Monitor`` per environment, which hears of an episode when it is over.

    The numbers of an episode, the files and the refusals are those of Stable-Baselines3's class itself.

    Args:
        num_envs: How many environments.
        spec: Theirs, for the files.
        folder: Where the files go, one per environment; None for no files.
        start_index: The rank of the first environment.
        monitor_kwargs: Further arguments of ``Monitor``.

    Attributes:
        names: The attributes and methods that a ``Monitor`` adds to an environment.
    """

    def __init__(
        self, num_envs: int, spec: EnvSpec | None, folder: str | None, start_index: int, monitor_kwargs: dict[str, Any]
    ) -> None:
        files = [None if folder is None else str(Path(folder) / str(start_index + i)) for i in range(num_envs)]
        self._monitors = [Monitor(_Echo(spec), filename=file, **monitor_kwargs) for file in files]
        self.names = frozenset({*dir(self._monitors[0])} - {*dir(gymnasium.Wrapper(_Echo(spec)))})
        self._steps = 0
        self._starts = [0] * num_envs
        self._rewards: list[npt.NDArray[np.float64]] = []
        self._first = 0

    def of(self, env: int) -> Monitor:
        """The ``Monitor`` of an environment, as it would be if it had seen every step."""
        monitor = self._monitors[env]
        monitor.rewards, monitor.total_steps = self._rewards_of(env), self._steps
        return monitor

    def before_reset(self, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]) -> None:
        """Refuses a reset that the ``Monitor`` does not allow, before anything is reset."""
        for env, monitor in enumerate(self._monitors):
            given = {} if options[env] is None else {"options": options[env]}
            monitor.reset(seed=seeds[env], **given)

    def begin_episodes(self) -> None:
        """All environments have been reset."""
        self._rewards, self._first = [], self._steps
        self._starts = [self._steps] * len(self._starts)

    def add(self, rewards: npt.NDArray[np.float64]) -> None:
        """All environments have made a step; the array is kept."""
        self._rewards.append(rewards)
        self._steps += 1

    def end_episode(self, env: int, terminated: bool, truncated: bool, info: Info) -> None:
        """An episode has ended with the last step, and another begun: adds what is known of it to the info."""
        monitor = self._monitors[env]
        *earlier, last = self._rewards_of(env)
        monitor.rewards, monitor.total_steps = earlier, self._steps - 1
        monitor.step((None, last, terminated, truncated, info))
        monitor.reset()
        self._starts[env] = self._steps
        self._drop_old_steps()

    def _rewards_of(self, env: int) -> list[float]:
        return [rewards.item(env) for rewards in self._rewards[self._starts[env] - self._first :]]

    def _drop_old_steps(self) -> None:
        old = min(self._starts) - self._first
        if old > _MOST_OLD_STEPS:
            del self._rewards[:old]
            self._first += old

    def close(self) -> None:
        """Closes the files."""
        for monitor in self._monitors:
            monitor.close()
