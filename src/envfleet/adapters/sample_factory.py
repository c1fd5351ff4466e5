"""Sample Factory on fleets: ``creator(id, n)``, to be registered under a name.

::

    from sample_factory.envs.env_utils import register_env

    register_env("fleet", creator("CartPole-v1", 16))
    # --env=fleet --batched_sampling=True --num_envs_per_worker=1 --worker_num_splits=1

Sample Factory takes a vector environment for one environment with many agents: each row is an agent.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet._single import Wrapper
from envfleet.adapters._info_rows import info_rows
from envfleet.adapters._settled import FleetRecipe, SettledMode
from envfleet.backends import BackendName
from envfleet.make import EnvReference
from envfleet.vector.arguments import positive_integer
from envfleet.vector.infos import Info

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of functions that it compiles, while it is imported
        from sample_factory.algo.utils.make_env import BatchedListToDictWrapper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is needed for this and is not installed. Sample Factory asks for an older Gymnasium than we do "
        "and runs on newer ones, so install it without its requirements and add what it imports; the lines are in "
        "docs/coming_from/sample_factory.md, and the first is\n    pip install --no-deps sample-factory==2.1.1",
        name=error.name,
    ) from error

__all__ = ["FleetCreator", "FleetOfAgents", "creator"]

_SETTLED = SettledMode(
    AutoresetMode.SAME_STEP,
    "Sample Factory takes the first observation of the next episode in the step that ends one, which is SAME_STEP, and "
    "keeps observations beyond the next step",
)


def creator(
    id: EnvReference,  # noqa: A002  Gymnasium's name
    num_envs: int,
    backend: BackendName = "auto",
    vector_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    **arguments: Any,
) -> FleetCreator:
    """What Sample Factory calls for environments: it makes a fleet in each rollout worker.

    Args:
        id: What to make, as for ``envfleet.make_vec``.
        num_envs: How many environments a fleet has.
        backend: What runs them.
        vector_kwargs: Arguments of the vector environment.
        wrappers: Applied to each environment.
        **arguments: Further arguments of ``make_vec``, such as ``num_workers``, and the constructor arguments of the
            environment.

    Raises:
        ValueError: The autoreset mode is not SAME_STEP, or ``copy`` is False.
    """
    recipe = FleetRecipe.checked(_SETTLED, id, backend, vector_kwargs, wrappers, arguments)
    return FleetCreator(recipe, positive_integer("num_envs", num_envs))


@final
@dataclass(frozen=True)
class FleetCreator:
    """Makes a fleet whenever Sample Factory asks for an environment; see :func:`creator`."""

    recipe: FleetRecipe
    num_envs: int

    def __call__(
        self,
        name: str,  # noqa: ARG002  what Sample Factory calls with
        cfg: Any = None,
        env_config: Any = None,  # noqa: ARG002
        render_mode: str | None = None,
    ) -> FleetOfAgents:
        """A fleet as an environment with many agents."""
        if cfg is not None and not cfg.batched_sampling:
            raise ValueError(
                "A fleet is sampled as a whole, and Sample Factory was about to sample row by row. Say "
                "--batched_sampling=True."
            )
        _show_agents()
        drawn = {} if render_mode is None else {"render_mode": render_mode}
        return FleetOfAgents(self.recipe.make(self.num_envs, drawn))


@final
class FleetOfAgents(gymnasium.Env[Any, Any]):
    """An environment with as many agents as the fleet has environments.

    Attributes:
        fleet: What runs the environments.
        num_agents: How many there are.
        is_multiagent: Always, also with one: results are batched.
        observation_space: Of one environment.
        action_space: Of one environment.
    """

    is_multiagent = True

    def __init__(self, envs: Any) -> None:
        self.fleet = envs
        self.num_agents: int = envs.num_envs
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.render_mode = envs.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, list[Info]]:  # type: ignore[override]
        """Resets all environments.

        Args:
            seed: The number that Sample Factory gives to this fleet. Environment i of fleet k is seeded with k * n + i,
                as Sample Factory would seed it if it were one of its own, and no two of them alike.
            options: Passed to every environment.
        """
        observations, infos = self.fleet.reset(seed=None if seed is None else seed * self.num_agents, options=options)
        return observations, info_rows(infos, self.num_agents)

    def step(  # type: ignore[override]
        self, action: Any
    ) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_], list[Info]]:
        """Steps all environments.

        The info of an environment whose episode has ended is that of its last step, with ``reset_info``.
        """
        observations, rewards, terminated, truncated, infos = self.fleet.step(np.asarray(action))
        rows = info_rows(infos, self.num_agents)
        for env in np.flatnonzero(terminated | truncated).tolist():
            last, info = rows[env].pop("final_obs"), rows[env].pop("final_info")
            rows[env] = {**info, "final_obs": last, "reset_info": rows[env]}
        return observations, rewards.astype(np.float32), terminated, truncated, rows

    def render(self) -> Any:
        """A frame of the first environment."""
        return self.fleet.call("render")[0]

    def close(self) -> None:
        """Closes the fleet."""
        self.fleet.close()


def _show_agents() -> None:
    """Has the one wrapper of Sample Factory that hides how many agents there are show them again.

    It relies on wrappers passing attributes on, which they no longer do since Gymnasium 1.0.
    """
    for name in ("num_agents", "is_multiagent"):
        if not hasattr(BatchedListToDictWrapper, name):
            setattr(BatchedListToDictWrapper, name, property(partial(_attribute_of_wrapped, name)))


def _attribute_of_wrapped(name: str, wrapper: Any) -> Any:
    return wrapper.env.get_wrapper_attr(name)
