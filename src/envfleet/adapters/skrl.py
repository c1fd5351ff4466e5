"""skrl on a fleet: ``wrap_env(envfleet.make_vec(...))`` is all it needs; this passes last observations on to agents.

::

    from envfleet.adapters.skrl import with_final_observations

    env = wrap_env(envfleet.make_vec("Pendulum-v1", 16, autoreset_mode="SAME_STEP"), wrapper="gymnasium")
    agent = with_final_observations(SAC(...))

skrl's trainers record what ``step`` returned as the next observations. In SAME_STEP mode, those of an episode that has
ended are the first ones of the next: a time limit would be bootstrapped from another episode.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from envfleet._optional import needs

with needs("skrl"):
    import torch
    from skrl.agents.torch import Agent
    from skrl.utils.spaces.torch import flatten_tensorized_space, tensorize_space

__all__ = ["with_final_observations"]

AnyAgent = TypeVar("AnyAgent", bound="Agent")


def with_final_observations(agent: AnyAgent) -> AnyAgent:
    """Has an agent record the last observation of an episode as the one that its last action led to.

    It takes them from ``infos["final_obs"]``, which vector environments in SAME_STEP mode have, ours and Gymnasium's.
    In other modes nothing changes.

    Args:
        agent: An agent of skrl for torch. It is changed in place.

    Returns:
        The agent.

    Raises:
        ValueError: When it records: the agent is one of several that share the environments.
    """
    record = agent.record_transition
    if getattr(record, "takes_final_observations", False):
        return agent

    @functools.wraps(record)
    def record_with_final_observations(*, next_observations: torch.Tensor, infos: Any, **transition: Any) -> None:
        reached = _reached(agent.observation_space, next_observations, infos)
        record(next_observations=reached, infos=infos, **transition)

    record_with_final_observations.takes_final_observations = True  # type: ignore[attr-defined]
    agent.record_transition = record_with_final_observations
    return agent


def _reached(space: gymnasium.Space[Any], next_observations: torch.Tensor, infos: Any) -> torch.Tensor:
    """The observations that the actions led to: the last ones where episodes have ended."""
    if not isinstance(infos, dict) or "final_obs" not in infos:
        return next_observations
    ended = np.flatnonzero(infos["_final_obs"])
    if len(infos["_final_obs"]) != len(next_observations):
        raise ValueError(
            f"The infos are those of {len(infos['_final_obs'])} environments, the observations those of "
            f"{len(next_observations)}: with_final_observations is for an agent that has all environments to itself."
        )
    rows: Any = [infos["final_obs"][env] for env in ended]
    empty: Any = create_empty_array(space, len(rows))
    batch = concatenate(space, rows, empty)
    last = flatten_tensorized_space(tensorize_space(space, batch, device=next_observations.device))
    reached = next_observations.clone()
    reached[torch.as_tensor(ended, device=reached.device)] = last
    return reached
