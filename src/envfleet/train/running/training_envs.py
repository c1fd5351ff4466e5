"""What a callback may do with the environments that a run trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from envfleet.randomize import ParameterTable
from envfleet.vector.arguments import env_indices, spread
from envfleet.vector.vector_env import FleetVectorEnv, Indices
from envfleet.wrappers._common import AnyVectorEnv


@final
class TrainingEnvs:
    """The environments of a run: to be asked and changed, but not to be stepped or reset, which is the training's part.

    Args:
        envs: the fleet.
        note: is told what `set_attr` sets: the name, and the values by environment.
    """

    def __init__(self, envs: AnyVectorEnv, note: Callable[[str, Mapping[int, Any]], None]) -> None:
        self._envs: Any = envs.unwrapped
        self._note = note

    @property
    def num_envs(self) -> int:
        """How many there are."""
        return int(self._envs.num_envs)

    @property
    def parameters(self) -> ParameterTable | None:
        """The randomised parameters that each environment has now, or None if none are."""
        return self._envs.parameters if isinstance(self._envs, FleetVectorEnv) else None

    def call(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method `name` (or read the attribute) of every environment, or of `indices`.

        What a method changes is lost with an environment that is restarted after a failure, and in a resumed run.
        """
        results: tuple[Any, ...] = self._envs.call(name, *args, indices=indices, **kwargs)
        return results

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """The attribute `name` of every environment, or of `indices`."""
        values: tuple[Any, ...] = self._envs.get_attr(name, indices)
        return values

    def set_attr(self, name: str, values: Any, indices: Indices = None) -> None:
        """Set the attribute `name`: a list or tuple gives one value per environment, else all get it.

        It stays set where an environment is restarted after a failure, and in a resumed run.
        """
        asked = env_indices(indices, self.num_envs)
        slots = spread(values, asked, self.num_envs)
        self._envs.set_attr(name, values, indices)
        self._note(name, {env: slots[env] for env in asked})
