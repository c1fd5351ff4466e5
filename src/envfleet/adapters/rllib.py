"""RLlib on a fleet: ``creator(id)``, to be registered under a name.

::

    from ray.tune import register_env

    register_env("fleet", creator("LunarLander-v3"))
    config = (
        PPOConfig()
        .environment("fleet")
        .env_runners(num_envs_per_env_runner=16, gym_env_vectorize_mode="vector_entry_point")
    )

Under the same seed an algorithm ends with the same weights as on Gymnasium's ``SyncVectorEnv``, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from gymnasium.vector import AutoresetMode

from envfleet._single import Wrapper
from envfleet.adapters._settled import FleetRecipe, SettledMode
from envfleet.backends import BackendName
from envfleet.make import EnvReference
from envfleet.vector.vector_env import FleetVectorEnv

__all__ = ["FleetCreator", "creator"]

_NUM_ENVS = "num_envs"
_SETTLED = SettledMode(
    AutoresetMode.NEXT_STEP,
    "RLlib takes the last observation of an episode from the step that ends it, which is NEXT_STEP, and keeps "
    "observations beyond the next step. In another mode it would train on other data without a word",
)


def creator(
    id: EnvReference,  # noqa: A002  Gymnasium's name
    backend: BackendName = "auto",
    vector_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    **arguments: Any,
) -> FleetCreator:
    """What RLlib calls for environments: it makes a fleet in each env runner.

    Args:
        id: What to make, as for ``envfleet.make_vec``. A string or anything else that can be pickled.
        backend: What runs the environments.
        vector_kwargs: Arguments of the vector environment.
        wrappers: Applied to each environment.
        **arguments: Further arguments of ``make_vec``, such as ``num_workers``, and the constructor arguments of the
            environment. RLlib's ``env_config`` adds to them and goes before them.

    Raises:
        ValueError: The autoreset mode is not NEXT_STEP, or ``copy`` is False.
    """
    return FleetCreator(FleetRecipe.checked(_SETTLED, id, backend, vector_kwargs, wrappers, arguments))


@final
@dataclass(frozen=True)
class FleetCreator:
    """Makes a fleet from the context that RLlib gives; see :func:`creator`."""

    recipe: FleetRecipe

    def __call__(self, context: Mapping[str, Any]) -> FleetVectorEnv:
        """A fleet of as many environments as RLlib wants in one env runner.

        Args:
            context: ``env_config``, to which RLlib adds ``num_envs`` if it makes vector environments.
        """
        if _NUM_ENVS not in context:
            raise ValueError(
                "RLlib asked for a single environment; this creator makes fleets. Say\n"
                '    config.env_runners(num_envs_per_env_runner=16, gym_env_vectorize_mode="vector_entry_point")'
            )
        configured = {key: value for key, value in context.items() if key != _NUM_ENVS}
        return self.recipe.make(context[_NUM_ENVS], _SETTLED.checked(configured, "env_config"))
