"""Minari datasets from fleets: ``record(envs, policy, episodes, dataset_id)``, and back into a replay buffer.

::

    from envfleet.adapters.minari import record

    with envfleet.make_vec("CartPole-v1", 16) as envs:
        dataset = record(envs, agent.act, 1000, "cartpole/expert-v0", seed=0)

All environments of a fleet go into one dataset, whole episodes only. Each is what Minari's own ``DataCollector``
records around a single environment with the same seed and actions, to the bit. ``MinariRecorder`` does the same in a
loop of your own. ``replay_from`` reads any dataset into a replay buffer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from envfleet._optional import needs
from envfleet.adapters._minari_episodes import Episode, EpisodeCutter
from envfleet.vector.arguments import positive_integer, reset_options, seeds
from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    info_dict,
    reset_envs,
)

with needs("minari"):
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage.datasets_root_dir import get_dataset_path

if TYPE_CHECKING:
    from envfleet.train import ReplayBuffer

__all__ = ["MinariRecorder", "record", "replay_from"]

_KEPT_STEPS = 10_000
"""Whole episodes are written when there are so many steps of them: opening the file for each would take longer."""

_OF_THE_FLEET = (
    *("num_envs", "vectorization_mode", "vector_kwargs", "wrappers"),
    *("randomize", "randomize_seed", "randomize_on"),
)
"""Arguments of `make_vec` in the spec of a fleet, which no single environment has."""

_METADATA = ("algorithm_name", "author", "author_email", "code_permalink", "description", "requirements")
_SETS = ("author", "author_email")


def record(
    envs: AnyVectorEnv,
    policy: Callable[[Any], Any],
    episodes: int,
    dataset_id: str,
    *,
    seed: Seed = None,
    record_infos: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> minari.MinariDataset:
    """Let a policy play episodes, and make a dataset of them.

    Every environment plays a number of episodes fixed beforehand. To take the first ones to finish instead would
    record too many short episodes.

    Args:
        envs: A fleet of any backend and in any autoreset mode, or a vector wrapper around one. It is reset, and not
            closed.
        policy: From a batch of observations to a batch of actions, such as ``agent.act``.
        episodes: How many.
        dataset_id: Minari's name for the dataset, such as "cartpole/expert-v0". It must not exist yet.
        seed: Of the reset at the beginning, as for ``envs.reset``.
        record_infos: As for ``MinariRecorder``.
        metadata: As for ``MinariRecorder``.
    """
    episodes = positive_integer("episodes", episodes)
    recorder = MinariRecorder(envs, dataset_id, record_infos=record_infos, metadata=metadata)
    share, more = divmod(episodes, envs.num_envs)
    recorder._wanted = np.array([share + (env < more) for env in range(envs.num_envs)])
    disabled = autoreset_mode(envs) is AutoresetMode.DISABLED
    observations, _ = recorder.reset(seed=seed)
    while recorder._wanted.any():
        observations, _, terminated, truncated, _ = recorder.step(policy(observations))
        if disabled and (done := terminated | truncated).any():
            observations, _ = recorder.reset(options={"reset_mask": done})
    return recorder.dataset


@final
class MinariRecorder(BatchWrapper):
    """Records every whole episode of a fleet into one Minari dataset, in the order in which they end.

    The dataset exists from the beginning, and is complete up to some thousand steps ago if the program is killed.
    ``dataset`` writes what is left. An episode is not whole, and left out, while it is under way, if ``reset`` cuts it
    off, and if its environment was restarted after a failure.

    Each episode has the seed and the options of the reset that began it, if there were any: episodes that an autoreset
    began have none.

    Args:
        envs: A vector environment that states ``metadata["autoreset_mode"]``, in any mode.
        dataset_id: Minari's name for the dataset, such as "cartpole/expert-v0". It must not exist yet.
        record_infos: Keep the entries that all infos of an episode have, that of its reset included.
        metadata: What the dataset says about itself, by Minari's names: "algorithm_name", "author", "author_email",
            "code_permalink", "description", "requirements". Spaces, the environment's spec and the numbers of steps and
            episodes are there anyway.
    """

    def __init__(
        self,
        envs: AnyVectorEnv,
        dataset_id: str,
        *,
        record_infos: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(envs)
        self._cutter = EpisodeCutter(
            envs.single_observation_space,
            envs.single_action_space,
            envs.num_envs,
            autoreset_mode(envs),
            with_infos=record_infos,
        )
        self._unwritten: list[Episode] = []
        self._unwritten_steps = 0
        self._wanted: Any = None
        """How many more episodes of each environment are recorded; None: all."""
        self._storage = _new_storage(envs, dataset_id, _checked_metadata(metadata))

    @property
    def dataset(self) -> minari.MinariDataset:
        """The dataset with all episodes that have ended so far."""
        self._write()
        return minari.MinariDataset(self._storage.data_path)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given)."""
        observations, infos, mask = reset_envs(self.env, seed, options)
        _, told = reset_options(options, self.num_envs)
        self._cutter.reset(observations, info_dict(infos, type(self).__name__), mask, seeds(seed, self.num_envs), told)
        return observations, infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments."""
        result = self.env.step(actions)
        info_dict(result[-1], type(self).__name__)
        for episode in self._cutter.step(actions, result):
            if self._wanted is not None:
                if not self._wanted[episode.env]:
                    continue
                self._wanted[episode.env] -= 1
            self._unwritten.append(episode)
            self._unwritten_steps += len(episode.rewards)
        if self._unwritten_steps >= _KEPT_STEPS:
            self._write()
        return result

    def close(self, **kwargs: Any) -> None:
        """Write what is left, and close the environments."""
        self._write()
        super().close(**kwargs)

    def _write(self) -> None:
        if not self._unwritten:
            return
        first = self._storage.total_episodes
        self._storage.update_episodes([_buffer(episode) for episode in self._unwritten])
        numbers = range(first, first + len(self._unwritten))
        about = minari.EpisodeMetadataCallback()
        self._storage.update_episode_metadata(self._storage.apply(about, numbers), numbers)
        self._unwritten.clear()
        self._unwritten_steps = 0


def replay_from(dataset: minari.MinariDataset, *, capacity: int | None = None, seed: int = 0) -> ReplayBuffer:
    """A replay buffer with the transitions of a dataset, any dataset of Minari's: `.sample` draws from it.

    Box actions are in units where -1 to 1 spans the bounds, as policies give them. Where an episode was only cut off,
    the transition before is not terminated: what would have followed is worth something.

    Args:
        dataset: Whose observations are Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, and whose
            actions are Box, or Dict and Tuple of these, or discrete.
        capacity: How many transitions are kept, the latest ones; by default all.
        seed: Fixes what is drawn.
    """
    with needs("train"):
        from envfleet.train.algorithms.demonstrations import filled_replay

    return filled_replay(dataset, capacity, seed)


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(metadata or {})
    unknown = [name for name in given if name not in _METADATA]
    if unknown:
        raise ValueError(f"metadata may have {', '.join(_METADATA)}, got {unknown[0]!r}.")
    for name in _SETS:  # Minari takes one or several
        if isinstance(given.get(name), str):
            given[name] = {given[name]}
    return given


def _new_storage(envs: AnyVectorEnv, dataset_id: str, metadata: dict[str, Any]) -> MinariStorage:
    namespace, spec = parse_dataset_id(dataset_id)[0], _spec_of(envs)
    path = get_dataset_path(dataset_id).resolve()  # Minari cannot add to what lies in a relative folder
    if path.exists():
        raise ValueError(
            f"There is a dataset {dataset_id!r} already, in {path}. Give another name or version, or delete it: "
            f"minari.delete_dataset({dataset_id!r})."
        )
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    (path / "data").mkdir(parents=True)
    storage = MinariStorage.new(
        path / "data",
        observation_space=envs.single_observation_space,
        action_space=envs.single_action_space,
        env_spec=spec,
    )
    storage.update_metadata({"dataset_id": dataset_id, "minari_version": minari.__version__, **metadata})
    return storage


def _spec_of(envs: AnyVectorEnv) -> EnvSpec | None:
    """The spec of a single environment, with its arguments; None if it was made by a function."""
    fleet: Any = envs.unwrapped
    try:
        spec = fleet.get_attr("spec")[0]
    except AttributeError:  # compiled environments have none: what would make the fleet again says what is in it
        spec = deepcopy(fleet.spec)
        if isinstance(spec, EnvSpec):
            for name in _OF_THE_FLEET:
                spec.kwargs.pop(name, None)
            spec.max_episode_steps = spec.kwargs.pop("max_episode_steps", spec.max_episode_steps)
    return _serializable(spec) if isinstance(spec, EnvSpec) else None


def _serializable(spec: EnvSpec) -> EnvSpec | None:
    """The spec in a form that can be written as JSON; None, and a warning, if there is none."""
    if isinstance(spec.entry_point, type):
        spec = replace(spec, entry_point=f"{spec.entry_point.__module__}:{spec.entry_point.__qualname__}")
    try:
        spec.to_json()
    except (TypeError, ValueError) as error:
        warnings.warn(
            f"The dataset will not say which environment it was recorded with: the spec of {spec.id} cannot be written "
            f"as JSON. {error}",
            stacklevel=2,
        )
        return None
    return spec


def _buffer(episode: Episode) -> EpisodeBuffer:
    return EpisodeBuffer(
        seed=episode.seed,
        options=episode.options,
        observations=episode.observations,
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=episode.terminations,
        truncations=episode.truncations,
        infos=episode.infos,
    )
