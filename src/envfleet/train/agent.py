"""`Agent`: a trained policy, ready to act."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, final

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envfleet.errors import NonFiniteError
from envfleet.train.config import TrainConfig
from envfleet.train.finite import check_weights, first_exceeding
from envfleet.train.networks.compiled_policy import CompiledPolicy, why_no_compiled_policy
from envfleet.train.networks.modes import evaluation_mode
from envfleet.train.networks.networks import Actor
from envfleet.train.observations import Array, Observations, map_leaves, to_tensors
from envfleet.wrappers.bounded_action import ActionMap


@final
class Agent:
    """A policy from observations, as the environment gives them, to actions, as it takes them.

    Normalisation is part of the network, with the statistics of the training; nothing here changes them.

    Args:
        config: what it was trained with.
        actor: the network.
        observation_space: of a single environment.
        action_space: of a single environment.
        device: the torch device of the network.
    """

    def __init__(
        self,
        config: TrainConfig,
        actor: Actor,
        observation_space: Space[Any],
        action_space: Space[Any],
        device: torch.device,
    ) -> None:
        self.config = config
        self.actor = actor
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = device
        # Its own, so that whoever draws actions in the middle of a training changes nothing of it.
        self._generator = torch.Generator(device).manual_seed(config.seed)
        self._to_bounds: ActionMap | None = None
        if isinstance(action_space, spaces.Box):
            self._to_bounds = ActionMap.between(action_space.low, action_space.high)
        self._compiled: CompiledPolicy | None = None

    @property
    def action_map(self) -> ActionMap | None:
        """What maps the policy's actions onto the bounds of the action space, if it has any."""
        return self._to_bounds

    @property
    def compiled(self) -> CompiledPolicy | None:
        """What takes the likeliest actions in compiled code; None if torch computes them."""
        is_wanted = getattr(self.config, "learner", "torch") != "torch"
        if self._compiled is None and is_wanted and why_no_compiled_policy(self.actor) is None:
            self._compiled = CompiledPolicy(self.actor, noise_steps=0)
        return self._compiled

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled form, which is made again where it is needed."""
        return {**self.__dict__, "_compiled": None}

    @torch.inference_mode()
    def act(self, observations: Observations, deterministic: bool = True) -> Array:
        """Actions for a batch of observations [batch, ...], one per row, as `envs.step` takes them.

        Args:
            observations: an array [batch, *shape], for Dict spaces a dict of them. For a single observation, give a
                batch of one: `agent.act(observation[None])[0]`.
            deterministic: the most likely action; False draws from the policy, each action independently of those
                before (in training, SAC's noise persists for some steps), from the agent's own generator: `seeded`.
        """
        _check_batch(self.observation_space, observations, "observations")
        # Torch warns of arrays that cannot be written to and refuses some that are not laid out row by row.
        plain = map_leaves(lambda leaf: np.require(leaf, requirements=("C", "W")), observations)
        quick = self.compiled.likeliest(plain) if deterministic and self.compiled is not None else None
        if quick is not None:
            return quick if self._to_bounds is None else self._to_bounds(quick)
        with evaluation_mode(self.actor) if self.actor.training else nullcontext():
            outputs = self.actor(to_tensors(plain, self.device))
        self._check_outputs(outputs, plain)
        distribution = self.actor.distribution
        actions = distribution.mode(outputs) if deterministic else distribution.sample(outputs, self._generator)
        array: Array = actions.cpu().numpy()
        return array if self._to_bounds is None else self._to_bounds(array)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Let `act(deterministic=False)` draw what `seed` fixes for the length of a `with` block."""
        before, self._generator = self._generator, torch.Generator(self.device).manual_seed(seed)
        try:
            yield
        finally:
            self._generator = before

    def _check_outputs(self, outputs: Tensor, observations: Observations) -> None:
        """Refuse outputs that pick no action: the largest of NaN logits, for instance, is always the first."""
        # Logits of minus infinity are a way to forbid actions.
        largest = outputs.amax() if self._to_bounds is None else outputs.abs().amax()
        if math.isfinite(largest.item()):
            return
        check_weights({"actor": self.actor}, "of this agent")
        row = int(torch.nonzero(~torch.isfinite(outputs).all(-1))[0])
        seen = first_exceeding(map_leaves(lambda leaf: leaf[row, None], observations))
        cause = "though its weights and what it saw are finite"
        if seen is not None:
            cause = f"because the observation is {seen.value:g} at {seen.path}{list(seen.place[1:])}"
        raise NonFiniteError(
            f"The network's outputs for row {row} of the observations (environment {row} of a fleet) are "
            f"{outputs[row].tolist()}, {cause}; no action follows from them.",
            quantity="actor output" if seen is None else "observation",
            env_index=row,
        )


def _check_batch(space: Space[Any], observations: Any, path: str) -> None:
    if isinstance(space, spaces.Dict):
        if not isinstance(observations, dict) or observations.keys() != space.keys():
            got = sorted(observations) if isinstance(observations, dict) else type(observations).__name__
            raise ValueError(f"{path} must be a dict with the keys {sorted(space)}, got {got}.")
        for key, entry in space.items():
            _check_batch(entry, observations[key], f"{path}[{key!r}]")
        return
    shape = tuple(space.shape or ())
    if not isinstance(observations, np.ndarray):
        raise TypeError(f"{path} must be a NumPy array [batch, {shape}], got {type(observations).__name__}.")
    if observations.shape[1:] != shape or observations.ndim != len(shape) + 1:
        hint = "; for a single observation give observation[None]" if observations.shape == shape else ""
        raise ValueError(f"{path} must have the shape (batch, *{shape}), got {observations.shape}{hint}.")
