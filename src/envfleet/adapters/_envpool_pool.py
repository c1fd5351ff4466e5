"""What EnvPool's pools do, on a fleet, and the kind of them that returns Gymnasium's tuples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.adapters._envpool_config import EnvSpec, PoolConfig
from envfleet.vector.vector_env import FleetVectorEnv

Ids = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Batch:
    """The results of some environments.

    Attributes:
        ids: Which environments, int64.
        observations: Theirs, batched.
        rewards: float32, 0 where an episode began.
        terminated: Without those that were truncated as well.
        truncated: Those whose time was up.
        began: Those whose episode began with this result.
        elapsed: How many steps their episodes have had, int32.
        infos: The fleet's, batched.
    """

    ids: Ids
    observations: Any
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    began: npt.NDArray[np.bool_]
    elapsed: npt.NDArray[np.int32]
    infos: dict[str, Any]

    def info(self) -> dict[str, Any]:
        """EnvPool's info: the environments, their steps, and what the environments say themselves.

        A key that only some environments have keeps its mask ``_key``, which EnvPool does not know.
        """
        ids = self.ids.astype(np.int32)
        masks = {f"_{key}" for key in self.infos if f"_{key}" in self.infos}
        shown = {key: value for key, value in self.infos.items() if key not in masks or not np.all(value)}
        shown.pop("env_id", None)
        return {**shown, "env_id": ids, "players": {"env_id": ids.copy()}, "elapsed_step": self.elapsed}


class EnvPool(ABC):
    """A pool of environments with EnvPool's calls.

    Args:
        fleet: What runs them, in NEXT_STEP mode.
        config: The settings it was made with.

    Attributes:
        fleet: What runs the environments.
        spec: The settings and the spaces.
        config: The settings, as a dict.
    """

    def __init__(self, fleet: FleetVectorEnv, config: PoolConfig) -> None:
        self.fleet = fleet
        self.spec: Any = EnvSpec.of(config, fleet.single_observation_space, fleet.single_action_space)
        self.config = config.as_dict()
        self._render_env_id = config.render_env_id
        self._first_seeds = list(config.env_seeds)
        self._begins = np.ones(config.num_envs, np.bool_)
        self._elapsed = np.zeros(config.num_envs, np.int32)
        self._sent: list[Ids] = []

    @abstractmethod
    def _shown(self, batch: Batch, is_reset: bool) -> Any:
        """What ``recv``, ``step`` and ``reset`` return."""

    def __len__(self) -> int:
        return self.fleet.num_envs

    @property
    def all_env_ids(self) -> npt.NDArray[np.int32]:
        """The numbers of all environments."""
        return np.arange(self.fleet.num_envs, dtype=np.int32)

    @property
    def is_async(self) -> bool:
        """Whether ``recv`` waits for some environments only."""
        return self.fleet.batch_size < self.fleet.num_envs

    # -- reset ----------------------------------------------------------------------------------------

    def async_reset(self) -> None:
        """Begins an episode in every environment; ``recv`` gives the first observations as they come."""
        self.fleet.async_reset(seed=self._seeds_of(np.ones(len(self), np.bool_)))
        self._begins[:] = True
        self._sent = [np.arange(len(self))]

    def reset(self, env_id: Any = None, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode in the given environments, or in all, and returns their first observations.

        Args:
            env_id: Which ones. If none are given, a pool with a ``batch_size`` returns those that are ready first.
            seed: Seeds them; by default the seeds that the pool was made with are used once.
            options: As for ``reset`` of a fleet.
        """
        ids = np.arange(len(self)) if env_id is None else np.atleast_1d(np.asarray(env_id)).astype(np.int64)
        if self.is_async and len(ids) == len(self) and seed is None and not options:
            self.async_reset()
            return self._shown(self._receive(), is_reset=True)
        mask = np.zeros(len(self), np.bool_)
        mask[ids] = True
        if self.is_async and len(ids) < len(self):
            first_seeds = self._seeds_of(mask)
            self.fleet.async_reset(
                env_ids=ids, seed=[first_seeds[env] for env in ids] if seed is None else seed, options=options
            )
            self._begins[ids] = True
            return self._shown(self._receive(), is_reset=True)
        if options and "reset_mask" in options:
            mask = options["reset_mask"]
            ids = np.flatnonzero(mask)
        seeds = self._seeds_of(mask) if seed is None else seed
        observations, infos = self.fleet.reset(seed=seeds, options={**(options or {}), "reset_mask": mask})
        self._begins[ids], self._sent = True, []
        nothing = np.zeros(len(ids))
        results = _taken(observations, ids), nothing, nothing.astype(bool), nothing.astype(bool), _taken(infos, ids)
        return self._shown(self._batch(ids, results), is_reset=True)

    def _seeds_of(self, mask: npt.NDArray[np.bool_]) -> list[int | None]:
        """The seeds that the pool was made with, for those environments that have not used theirs yet."""
        seeds = [seed if asked else None for seed, asked in zip(self._first_seeds, mask.tolist(), strict=True)]
        self._first_seeds = [
            None if asked else seed for seed, asked in zip(self._first_seeds, mask.tolist(), strict=True)
        ]
        return seeds

    # -- step -----------------------------------------------------------------------------------------

    def step(self, action: Any, env_id: Any = None) -> Any:
        """Steps the given environments, or all; a pool whose ``batch_size`` is smaller returns those ready first."""
        if env_id is None and not self.is_async and not isinstance(action, dict) and not self._sent:
            return self._shown(self._batch(np.arange(len(self)), self.fleet.step(action)), is_reset=False)
        self.send(action, env_id)
        return self.recv()

    def send(self, action: Any, env_id: Any = None) -> None:
        """Has some environments stepped, and returns at once."""
        if isinstance(action, dict) and "env_id" in action:
            env_id = action["env_id"] if env_id is None else env_id
            action = {key: value for key, value in action.items() if key not in ("env_id", "players", "players.env_id")}
            action = action["action"] if list(action) == ["action"] else action
        ids = np.arange(len(self)) if env_id is None else np.atleast_1d(np.asarray(env_id)).astype(np.int64)
        self.fleet.send(action, ids)
        self._sent.append(ids)

    def recv(self, reset: bool = False, return_info: bool = True) -> Any:  # noqa: ARG002  EnvPool's signature
        """Waits for ``batch_size`` environments and returns their results."""
        return self._shown(self._receive(), is_reset=reset)

    def _receive(self) -> Batch:
        *results, infos = self.fleet.recv()
        ids = infos["env_id"]
        if not self.is_async and self._sent:  # all have come: in the order in which they were sent
            wanted = np.concatenate(self._sent)
            self._sent = []
            places = np.empty(len(self), np.int64)
            places[ids] = np.arange(len(ids))
            order = places[wanted]
            ids, results, infos = wanted, [_taken(each, order) for each in results], _taken(infos, order)
        return self._batch(ids, (*results, infos))

    def _batch(self, ids: Ids, results: Any) -> Batch:
        observations, rewards, terminated, truncated, infos = results
        began = self._begins[ids]
        elapsed = np.where(began, 0, self._elapsed[ids] + 1).astype(np.int32)
        self._elapsed[ids] = elapsed
        self._begins[ids] = terminated | truncated
        return Batch(
            ids, observations, rewards.astype(np.float32), terminated & ~truncated, truncated, began, elapsed, infos
        )

    # -- the rest -------------------------------------------------------------------------------------

    def render(self, env_ids: Any = None) -> npt.NDArray[Any]:
        """Frames of the given environments, or of ``render_env_id``, batched."""
        asked = self._render_env_id if env_ids is None else env_ids
        return np.stack(self.fleet.call("render", indices=asked))

    def xla(self) -> Any:
        """Refused: compiled fleets have one of their own, with other functions."""
        raise NotImplementedError(
            "This pool has no XLA interface like EnvPool's: call step, or send and recv. Compiled environments have "
            "one of envfleet's own: handle, reset, step = envfleet.make_vec(id, n, backend='native').xla()."
        )

    def close(self, **_: Any) -> None:
        """Closes the fleet."""
        self.fleet.close()


def _taken(tree: Any, rows: Ids) -> Any:
    """The given rows of everything in a tree of arrays."""
    if isinstance(tree, dict):
        return {key: _taken(part, rows) for key, part in tree.items()}
    if isinstance(tree, np.ndarray):
        return tree[rows]
    if tree and all(isinstance(part, np.ndarray | dict | tuple) for part in tree):
        return tuple(_taken(part, rows) for part in tree)
    return tuple(tree[row] for row in rows.tolist())  # of a leaf without a fixed layout


@final
class GymnasiumEnvPool(EnvPool, VectorEnv, gymnasium.Env):  # type: ignore[misc]
    """A pool whose ``recv`` and ``step`` return Gymnasium's tuples. Its spaces are those of a single environment."""

    def __init__(self, fleet: FleetVectorEnv, config: PoolConfig) -> None:
        super().__init__(fleet, config)
        self.num_envs = fleet.num_envs
        self.metadata = {**fleet.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = fleet.render_mode
        self.observation_space = self.single_observation_space = fleet.single_observation_space
        self.action_space = self.single_action_space = fleet.single_action_space

    def _shown(self, batch: Batch, is_reset: bool) -> Any:
        if is_reset:
            return batch.observations, batch.info()
        return batch.observations, batch.rewards, batch.terminated, batch.truncated, batch.info()
