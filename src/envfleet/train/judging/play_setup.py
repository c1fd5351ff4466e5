"""Where an agent plays: the environments of an evaluation or a showcase, their seeds and their time limit."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from torch import nn

from envfleet._single import Wrapper, is_function, spec_of, time_limit_of
from envfleet.backends import BackendName
from envfleet.device.families import functional_time_limit, is_only_functional
from envfleet.make import make_vec
from envfleet.randomize import Distribution
from envfleet.train.agent import Agent
from envfleet.train.environments import backend_to_see
from envfleet.train.finite import check_weights
from envfleet.train.folders.checkpoint import load_agent
from envfleet.train.folders.trust import AllowImport
from envfleet.train.observations import parts_of
from envfleet.train.wrapping import Wrapping
from envfleet.vector.arguments import checked_integer
from envfleet.wrappers._common import AnyVectorEnv

_PATIENCE = 30_000
"""Steps granted to an episode where nobody set a limit: more than the 27,000 of an Atari game's half hour."""

_EVALUATION = zlib.crc32(b"evaluation")
"""Sets the stream of evaluation's seeds apart from all others drawn from the same seed."""

_DRIVER = "SDL_VIDEODRIVER"


class UnfitError(ValueError):
    """The environment's observations or actions are not those of the agent."""


@dataclass(frozen=True)
class PlaySetup:
    """Where an agent plays.

    Attributes:
        env_id: the environment, as the agent's configuration names it.
        env_kwargs: for the constructor, the time limit included if one had to be set.
        randomize: parameters that differ from episode to episode.
        limit: the time limit that was set, None where the environment's own is enough.
        wrappers: put around each environment: the time limit, where no constructor and no registry knows of any.
        vector_kwargs: how the engine ran the environments in training, on `trained_on`.
        trained_on: the backend of the training.
        default_backend: what "auto" means here: the backend on which the agent can play, where it is one alone.
        wrapping: the user's vector wrappers, if the agent was trained with any.
    """

    env_id: str
    env_kwargs: Mapping[str, Any]
    randomize: Mapping[str, Distribution]
    limit: int | None
    wrappers: tuple[Wrapper, ...]
    vector_kwargs: Mapping[str, Any]
    trained_on: str
    wrapping: Wrapping | None = None
    default_backend: BackendName = "auto"

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
        spec = spec_of(agent.config.env_id)
        own = functional_time_limit(spec, arguments) if is_only_functional(spec) else time_limit_of(spec, arguments)
        longest = max_steps or own or _PATIENCE
        limit: int | None = longest
        wrappers: tuple[Wrapper, ...] = ()
        default_backend = backend_to_see(agent.config)
        if default_backend == "native":
            # Atari's games end after half an hour by themselves, and count frames.
            limit = max_steps
            if limit is not None:
                arguments["max_num_frames_per_episode"] = limit * arguments.get("frameskip", spec.kwargs["frameskip"])
        elif "max_episode_steps" in randomize or (own is not None and own <= longest):
            limit = None
        elif is_function(spec):
            # Not as an argument: a class may have one of that name, with a meaning of its own.
            wrappers = (partial(TimeLimit, max_episode_steps=longest),)
        else:
            arguments["max_episode_steps"] = limit
        config = agent.config
        # What else plays like an agent may know nothing of engines.
        engine = getattr(config, "vector_kwargs", {}), getattr(config, "backend", "auto")
        wrapping = getattr(agent, "wrapping", None)
        return cls(config.env_id, arguments, randomize, limit, wrappers, *engine, wrapping, default_backend)

    def make_fleet(self, num_envs: int, seed: int, backend: BackendName) -> AnyVectorEnv:
        """Environments that begin the next episode in the step that ended the last."""
        fleet = make_vec(
            self.env_id,
            num_envs,
            self.default_backend if backend == "auto" else backend,
            # Another backend may not take the same arguments.
            {
                **(self.vector_kwargs if backend in ("auto", self.trained_on) else {}),
                "autoreset_mode": AutoresetMode.SAME_STEP,
            },
            self.wrappers,
            randomize=self.randomize,
            randomize_seed=seed,
            randomize_on="make",
            **self.env_kwargs,
        )
        return fleet if self.wrapping is None else self.wrapping.to_play(fleet)


def as_agent(agent: Agent | str | os.PathLike[str], allow_import: AllowImport) -> Agent:
    """The agent itself, or the one a run's folder holds; with weights that are not finite it is refused."""
    if not isinstance(agent, (str, os.PathLike)):
        if isinstance(agent, type) or not (hasattr(agent, "act") and hasattr(agent, "config")):
            raise TypeError(f"expected an agent, such as train(...).agent, or the folder of a run, got {agent!r:.100}.")
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
    ours, theirs = parts_of(one), parts_of(other)
    if ours is not None and theirs is not None and type(one) is type(other):
        return ours.keys() == theirs.keys() and all(_same_layout(ours[key], theirs[key]) for key in ours)
    return one == other


@contextmanager
def seeded(agent: Agent, seed: int) -> Iterator[None]:
    """Let an agent draw what `seed` fixes, and leave every generator as it was: a training under way notices nothing.

    Torch's, NumPy's and Python's global ones are among them, for the sake of environments and networks that draw from
    these.
    """
    pythons, numpys = random.getstate(), np.random.get_state(legacy=False)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), ExitStack() as stack:
        stack.callback(np.random.set_state, numpys)
        stack.callback(random.setstate, pythons)
        torch.manual_seed(seed)
        if isinstance(agent, Agent):  # what else plays like one draws as it likes
            stack.enter_context(agent.seeded(seed))
        yield


def has_screen() -> bool:
    """Whether something says where a window can be opened."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", _DRIVER))


@contextmanager
def no_screen_needed() -> Iterator[None]:
    """Where there is no screen, tell SDL, which draws many environments, not to look for one and complain."""
    if has_screen():
        yield
        return
    os.environ[_DRIVER] = "dummy"
    try:
        yield
    finally:
        os.environ.pop(_DRIVER, None)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute on one thread: for a few observations at a time, others would only be waited for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if checked_integer(name, value) < least:
        raise ValueError(f"{name} must be {least} or more, got {value}.")
