"""The calls of OpenAI Baselines' ``VecEnv`` on a fleet: ``as_vec_env(envs)``.

::

    venv = as_vec_env(envfleet.make_vec("CartPole-v1", 8, autoreset_mode="SAME_STEP"), seed=0)
    obs = venv.reset()
    venv.step_async(actions)
    obs, rewards, dones, infos = venv.step_wait()

Baselines itself is not needed: its runners and wrappers only call these methods.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import VectorEnv

from envfleet.adapters._fleet_check import check_same_step
from envfleet.adapters._info_rows import info_rows
from envfleet.vector.infos import Info
from envfleet.vector.vector_env import Seed

__all__ = ["BaselinesVecEnv", "as_vec_env"]


def as_vec_env(envs: VectorEnv[Any, Any, Any], seed: Seed = None) -> BaselinesVecEnv:
    """A fleet with the calls of Baselines' ``VecEnv``.

    Args:
        envs: A fleet of ``envfleet.make_vec`` in SAME_STEP mode with ``copy=True``, or a vector wrapper around one.
            Closing the ``VecEnv`` closes it.
        seed: For the first reset, as ``envs.reset`` takes it. Baselines seeds environments when it makes them.

    Raises:
        TypeError: It is no fleet of envfleet.
        ValueError: Its autoreset mode is another, or it was made with ``copy=False``.
    """
    check_same_step(envs, "as_vec_env", "Baselines")
    return BaselinesVecEnv(envs, seed)


@final
class BaselinesVecEnv:
    """What :func:`as_vec_env` returns.

    Attributes:
        fleet: What runs the environments.
        num_envs: How many there are.
        observation_space: Of one environment.
        action_space: Of one environment.
        closed: Whether it is closed.
    """

    def __init__(self, envs: Any, seed: Seed) -> None:
        self.fleet = envs
        self.num_envs: int = envs.num_envs
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.metadata = {"render.modes": ["rgb_array"]}
        self.closed = False
        self._seed = seed
        self._actions: Any = None

    @property
    def unwrapped(self) -> BaselinesVecEnv:
        """This one, where wrappers of Baselines end."""
        return self

    def reset(self) -> Any:
        """Resets all environments; returns the observations only. A step that was begun is forgotten."""
        observations, _ = self.fleet.reset(seed=self._seed)
        self._seed = self._actions = None
        return observations

    def step_async(self, actions: Any) -> None:
        """Takes the actions for the next :meth:`step_wait`."""
        if self._actions is not None:
            raise AlreadyPendingCallError("step_async was called twice: call step_wait in between.", "step")
        self._actions = np.asarray(actions) if isinstance(actions, list) else actions

    def step_wait(self) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Info]]:
        """Steps all environments; returns observations, rewards, dones and one info per environment.

        The observation of an environment whose episode has ended is the first one of the next; its info is that of the
        last step, with ``terminal_observation``, and ``TimeLimit.truncated`` if it did not terminate.
        """
        if self._actions is None:
            raise NoAsyncCallError("step_wait was called without a step: call step_async(actions) first.", "step")
        actions, self._actions = self._actions, None
        observations, rewards, terminated, truncated, infos = self.fleet.step(actions)
        dones = terminated | truncated
        rows = info_rows(infos, self.num_envs)
        for env in np.flatnonzero(dones).tolist():
            last, info = rows[env]["final_obs"], rows[env]["final_info"]
            limit = {"TimeLimit.truncated": True} if truncated[env] and not terminated[env] else {}
            rows[env] = {**info, "terminal_observation": last, **limit}
        return observations, rewards.astype(np.float32), dones, rows

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Info]]:
        """Both at once."""
        self.step_async(actions)
        return self.step_wait()

    def get_images(self) -> list[Any]:
        """A frame of each environment, which must have been made with ``render_mode="rgb_array"``."""
        return list(self.fleet.call("render"))

    def close(self) -> None:
        """Closes the fleet."""
        if not self.closed:
            self.fleet.close()
        self.closed = True
