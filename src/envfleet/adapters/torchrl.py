"""TorchRL on a fleet: ``as_torchrl_env(envs)`` and ``make_torchrl_env(id, n)``.

::

    from envfleet.adapters.torchrl import make_torchrl_env

    collector = Collector(make_torchrl_env("LunarLander-v3", 16), policy, frames_per_batch=2048, total_frames=-1)

The fleet takes the place of ``SerialEnv`` and ``ParallelEnv``: under the same seeds a collector gathers the same data,
to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from envfleet._optional import needs
from envfleet.adapters._fleet_check import check_fleet
from envfleet.backends import BackendName
from envfleet.make import make_vec
from envfleet.native.own.environment import OwnEnvironment
from envfleet.vector.vector_env import FleetVectorEnv

with needs("torchrl"):
    import torch
    from torchrl._utils import seed_generator
    from torchrl.envs import EnvBase, GymWrapper

__all__ = ["FleetEnv", "as_torchrl_env", "make_torchrl_env"]

EnvId: TypeAlias = "str | EnvSpec | OwnEnvironment | Callable[..., gymnasium.Env[Any, Any]]"

_MODES = (AutoresetMode.DISABLED, AutoresetMode.SAME_STEP)


def as_torchrl_env(
    envs: FleetVectorEnv, *, categorical_action_encoding: bool = False, device: torch.device | str | None = None
) -> EnvBase:
    """A fleet as TorchRL's environment, of batch size ``(num_envs,)``.

    Args:
        envs: A fleet of ``envfleet.make_vec`` in DISABLED or SAME_STEP mode with ``copy=True``. DISABLED is faster
            here. Closing the environment closes it.
        categorical_action_encoding: As for TorchRL's ``GymWrapper``: discrete actions as numbers instead of one-hot.
        device: Where tensors are given and taken.

    Raises:
        TypeError: It is no fleet of envfleet.
        ValueError: Its autoreset mode is NEXT_STEP, or it was made with ``copy=False``.
    """
    why = "TorchRL takes the last observation of an episode and resets between two steps, which is DISABLED"
    check_fleet(envs, "as_torchrl_env", "TorchRL", why, _MODES)
    return FleetEnv(envs, categorical_action_encoding=categorical_action_encoding, device=device)


def make_torchrl_env(
    env_id: EnvId,
    num_envs: int = 1,
    *,
    backend: BackendName = "auto",
    categorical_action_encoding: bool = False,
    device: torch.device | str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
) -> EnvBase:
    """Makes a fleet and returns it as TorchRL's environment.

    Args:
        env_id: A registered id, a spec, a class or function that makes one environment, or an environment of your own
            from ``envfleet.native``.
        num_envs: How many.
        backend: What runs the environments, as for ``make_vec``: "auto", the default, takes compiled environments if
            there are any, and otherwise measures.
        categorical_action_encoding: As for :func:`as_torchrl_env`.
        device: As for :func:`as_torchrl_env`.
        env_kwargs: Constructor arguments of the environments.
        vector_kwargs: Further arguments of the fleet, such as ``num_workers``.
    """
    of_fleet = {"autoreset_mode": AutoresetMode.DISABLED, **(vector_kwargs or {})}
    envs = make_vec(env_id, num_envs, backend, of_fleet, **(env_kwargs or {}))
    try:
        return as_torchrl_env(envs, categorical_action_encoding=categorical_action_encoding, device=device)
    except BaseException:
        envs.close()
        raise


class FleetEnv(GymWrapper):  # type: ignore[misc]
    """A fleet inside TorchRL's ``GymWrapper``, with the seeds of its ``SerialEnv`` and ``ParallelEnv``.

    It is not made directly: in SAME_STEP mode, ``GymWrapper`` puts a ``TransformedEnv`` around it.
    """

    @property
    def fleet(self) -> FleetVectorEnv:
        """What runs the environments."""
        fleet: FleetVectorEnv = self._env
        return fleet

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Resets all environments with seeds; each seed is made from that of the environment before.

        Args:
            seed: That of the first environment.
            static_seed: Whether all get the same.

        Returns:
            The seed for the next environment, if there were one.
        """
        seeds = []
        for _ in range(self.fleet.num_envs):
            seeds.append(seed)
            seed = seed if seed is None or static_seed else int(seed_generator(seed))
        self.reset(seed=seeds)
        return seed
