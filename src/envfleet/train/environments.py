"""The environments and the device a configuration asks for."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode

from envfleet._single import spec_of
from envfleet.backends import BackendName
from envfleet.make import make_vec
from envfleet.native.atari import has_atari
from envfleet.train.actions import NestedAction
from envfleet.train.algorithms.learner import Learner, Task
from envfleet.train.algorithms.registry import learner_class
from envfleet.train.config import TrainConfig
from envfleet.train.networks.distributions import is_continuous, is_nested
from envfleet.train.networks.networks import Networks
from envfleet.train.observations import parts_of
from envfleet.train.wrapping import Measured, Wrap, Wrapping
from envfleet.wrappers import BoundedAction
from envfleet.wrappers._common import AnyVectorEnv
from envfleet.wrappers._leaves import named_leaves


def make_training_envs(
    config: TrainConfig,
    learner: type[Learner] | None = None,
    wrap: Wrap | None = None,
    *,
    pictures: bool = False,
) -> AnyVectorEnv:
    """The fleet to train on.

    It resets in the same step, so that every row is a transition, and does not copy observations, because `collect`
    does. Box actions are in units where -1 to 1 spans the bounds; those of nested spaces are rows of numbers.

    Args:
        config: what the run was told.
        learner: the algorithm, if it is not the one that `config` is for.
        wrap: puts the user's wrappers around the fleet.
        pictures: whether they are to be drawn while they train: they are then made with render_mode="rgb_array".
    """
    if wrap is not None and config.first_ready:
        raise ValueError(
            f"first_ready={config.first_ready} steps some environments at a time, and wrappers step all of them: leave "
            "out first_ready or wrap."
        )
    fleet = make_vec(
        config.env_id,
        config.num_envs,
        config.backend,
        vector_kwargs={
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "copy": wrap is not None,  # a wrapper may keep what it was given
            **config.vector_kwargs,
            **({"first_ready": config.first_ready} if config.first_ready else {}),
        },
        randomize=config.randomize,
        randomize_seed=config.seed if config.randomize else None,
        randomize_on=config.randomize_on,
        **{**({"render_mode": "rgb_array"} if pictures else {}), **config.env_kwargs},
    )
    try:
        envs: AnyVectorEnv = fleet if wrap is None else Measured(fleet, wrap, for_score=False)
        algorithm = learner or learner_class(config)
        if getattr(algorithm, "needs_bounded_actions", False):
            for _, leaf in named_leaves(envs.single_action_space):
                _check_bounded(leaf, algorithm.__name__)
        if is_nested(envs.single_action_space):
            return NestedAction(envs)
        return BoundedAction(envs) if is_continuous(envs.single_action_space) else envs
    except BaseException:
        fleet.close()
        raise


def _check_bounded(space: Space[Any], algorithm: str) -> None:
    """Refuse bounds that -1 to 1 cannot be scaled to."""
    if isinstance(space, spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"{algorithm} needs actions with finite bounds, got {space}: its policy acts between -1 and 1, which is "
            "scaled to the bounds, so it could never leave -1 to 1 here. Give the environment's action space the "
            "bounds that its actions need, or use A2C or PPO, which need none."
        )


def env_seed(seed: int, stream: int) -> int:
    """The seed the environments are reset with at the start of stream number `stream` of a run.

    Derived, so that runs with neighbouring seeds do not share environments: number i of a fleet gets seed + i. All of
    them stay below 2**30, which is where the seeds of evaluations begin.
    """
    return int(np.random.SeedSequence((seed, stream)).generate_state(1)[0]) % (2**30 - 2**20)


def make_task(
    config: TrainConfig, observation_space: Space[Any], action_space: Space[Any], networks: Networks | None
) -> Task:
    """What an algorithm has to learn under `config`; spaces without a single number are refused."""
    _check_size("observation space", observation_space)
    _check_size("action space", action_space)
    return Task(observation_space, action_space, config.num_envs, pick_device(config.device), networks)


def _check_size(what: str, space: Space[Any]) -> None:
    entries = parts_of(space)
    for key, entry in (entries or {}).items():
        _check_size(f"{what}'s entry {key!r}", entry)
    if not entries and (entries is not None or math.prod(space.shape or ()) == 0):
        raise ValueError(
            f"The {what} has no numbers in it: {space}. Nothing can be learnt from or with such a space; give it at "
            "least one number, or leave the entry out."
        )


def spaces_of(config: TrainConfig, wrapping: Wrapping | None = None) -> tuple[Space[Any], Space[Any]]:
    """The observation and the action space of one environment, found by making one; as the user's wrappers show it."""
    backend = backend_to_see(config)
    if wrapping is None:
        with make_vec(config.env_id, 1, backend, **config.env_kwargs) as envs:
            return envs.single_observation_space, envs.single_action_space
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    fleet = make_vec(config.env_id, 1, backend, vector_kwargs=same_step, **config.env_kwargs)
    with closing(wrapping.to_play(fleet)) as wrapped:
        return wrapped.single_observation_space, wrapped.single_action_space


def backend_to_see(config: TrainConfig) -> BackendName:
    """The backend on which environments show what they show in training: any of them, but for Atari's compiled games.

    Those preprocess what other backends show as it is, so an agent that was trained on them can play nowhere else.
    """
    compiled = getattr(config, "backend", "auto") == "native" and has_atari(spec_of(config.env_id))
    return "native" if compiled else "auto"


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is none that torch knows; use 'auto', 'cpu' or 'cuda'.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r} needs a GPU that torch can use, and there is none; use device='cpu'.")
    return device
