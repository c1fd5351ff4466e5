"""Where an agent plays: the environments of an evaluation or a showcase, their seeds and their time limit."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.envs.registration import _find_spec
from gymnasium.vector import AutoresetMode
from torch import nn

from envfleet.make import make_vec
from envfleet.randomize import Distribution
from envfleet.train.agent import Agent
from envfleet.train.finite import check_weights
from envfleet.train.running.checkpoint import load_agent
from envfleet.train.running.trust import AllowImport
from envfleet.vector import FleetVectorEnv
from envfleet.vector.arguments import checked_integer

_PATIENCE = 30_000
"""Steps granted to an episode where nobody set a limit: more than the 27,000 of an Atari game's half hour."""

_EVALUATION = zlib.crc32(b"evaluation")
"""Sets the stream of evaluation's seeds apart from all others drawn from the same seed."""


class UnfitError(ValueError):
    """The environment's observations or actions are not those of the agent."""


@dataclass(frozen=True)
class PlaySetup:
    """Where an agent plays.

    Attributes:
        env_id: a registered id.
        env_kwargs: for the constructor, the time limit included if one had to be set.
        randomize: parameters that differ from episode to episode.
        limit: the time limit that was set, None where the environment's own is enough.
        vector_kwargs: how the engine ran the environments in training, on `trained_on`.
        trained_on: the backend of the training.
    """

    env_id: str
    env_kwargs: Mapping[str, Any]
    randomize: Mapping[str, Distribution]
    limit: int | None
    vector_kwargs: Mapping[str, Any]
    trained_on: str

    @classmethod
    def of(
        cls,
        agent: Agent,
        env_kwargs: Mapping[str, Any] | None,
        randomize: Mapping[str, Distribution] | None,
        max_steps: int | None,
    ) -> PlaySetup:
        """The environments an agent was trained in, but for what is given here."""
        if max_steps is not None:
            check_integer("max_steps", max_steps, 1)
        randomize = randomize or {}
        trained = {name: value for name, value in agent.config.env_kwargs.items() if name not in randomize}
        arguments = {**trained, **(env_kwargs or {})}
        own = arguments.get("max_episode_steps", _find_spec(agent.config.env_id).max_episode_steps)
        own = None if own == -1 else own  # Gymnasium's way to ask for no limit
        limit: int | None = max_steps or own or _PATIENCE
        if "max_episode_steps" in randomize or (own is not None and own <= limit):
            limit = None
        else:
            arguments["max_episode_steps"] = limit
        config = agent.config
        # What else plays like an agent may know nothing of engines.
        engine = getattr(config, "vector_kwargs", {}), getattr(config, "backend", "auto")
        return cls(config.env_id, arguments, randomize, limit, *engine)

    def make_fleet(self, num_envs: int, seed: int, backend: str) -> FleetVectorEnv:
        """Environments that begin the next episode in the step that ended the last."""
        return make_vec(
            self.env_id,
            num_envs,
            backend,
            # Another backend may not take the same arguments.
            {
                **(self.vector_kwargs if backend in ("auto", self.trained_on) else {}),
                "autoreset_mode": AutoresetMode.SAME_STEP,
            },
            randomize=self.randomize,
            randomize_seed=seed,
            **self.env_kwargs,
        )


def as_agent(agent: Agent | str | os.PathLike[str], allow_import: AllowImport) -> Agent:
    """The agent itself, or the one a run's folder holds; with weights that are not finite it is refused."""
    if not isinstance(agent, (str, os.PathLike)):
        # What else plays like an agent may well have no network.
        actor = getattr(agent, "actor", None)
        if isinstance(actor, nn.Module):
            check_weights({"actor": actor}, "of this agent")
        return agent
    return load_agent(Path(agent), allow_import=allow_import)


def evaluation_seed(seed: int) -> int:
    """The first of the environments' seeds: from 2**30 on, while those of training lie below.

    With millions of episodes counted on it is still less than 2**31, for environments that keep 32 bits.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(_EVALUATION,))
    return 2**30 + int(sequence.generate_state(1)[0]) % (2**30 - 2**24)


def check_fits(agent: Agent, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Refuse an environment in which the agent cannot play; the spaces are those of a single one."""
    for what, wanted, found in (
        ("observations", agent.observation_space, observation_space),
        ("actions", agent.action_space, action_space),
    ):
        if not _same_layout(wanted, found):
            raise UnfitError(
                f"The agent was trained with {what} {wanted}, but in this scenario they are {found}: it cannot play."
            )


def _same_layout(one: Space[Any], other: Space[Any]) -> bool:
    """Whether elements look alike. Bounds may differ: they may well depend on the scenario."""
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return one.shape == other.shape and one.dtype == other.dtype
    if isinstance(one, spaces.Dict) and isinstance(other, spaces.Dict):
        return one.keys() == other.keys() and all(_same_layout(one[key], other[key]) for key in one)
    return one == other


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let actions be drawn from torch's generators as `seed` leaves them, and put these back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if checked_integer(name, value) < least:
        raise ValueError(f"{name} must be {least} or more, got {value}.")
