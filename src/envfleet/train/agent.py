"""`Agent`: a trained policy, ready to act."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, final

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envfleet.errors import NonFiniteError
from envfleet.train.actions import EnvActions
from envfleet.train.config import TrainConfig
from envfleet.train.finite import all_finite, check_weights, first_exceeding
from envfleet.train.networks.compiled_policy import CompiledPolicy, why_no_compiled_policy
from envfleet.train.networks.distributions import is_continuous, is_nested
from envfleet.train.networks.memory import CarriedStates, MemoryActor
from envfleet.train.networks.modes import evaluation_mode
from envfleet.train.networks.networks import Actor
from envfleet.train.observations import Array, Observations, Tensors, map_leaves, parts_of, to_tensors
from envfleet.train.wrapping import Wrapping
from envfleet.wrappers._common import AnyVectorEnv
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
        wrapping: the vector wrappers that it was trained with, if there were any; its spaces are those they show.
    """

    def __init__(
        self,
        config: TrainConfig,
        actor: Actor | MemoryActor,
        observation_space: Space[Any],
        action_space: Space[Any],
        device: torch.device,
        wrapping: Wrapping | None = None,
    ) -> None:
        self.config = config
        self.actor = actor
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = device
        self.wrapping = wrapping
        self._states = _no_states(actor, device)
        # Its own, so that whoever draws actions in the middle of a training changes nothing of it.
        self._generator = torch.Generator(device).manual_seed(config.seed)
        self._to_env = EnvActions(action_space)
        self._compiled: CompiledPolicy | None = None

    @property
    def needs_resets(self) -> bool:
        """Whether the policy remembers, so that `act` must be told where episodes begin."""
        return isinstance(self.actor, MemoryActor)

    def wrapped(self, envs: AnyVectorEnv) -> AnyVectorEnv:
        """Vector environments to play in: with the wrappers of the training around them, if there were any.

        The wrappers have what they learnt in training, and learn nothing more. Rewards are the environments' own.
        """
        return envs if self.wrapping is None else self.wrapping.to_play(envs)

    @property
    def action_map(self) -> ActionMap | None:
        """What maps the policy's actions onto the bounds of the action space, if it has any."""
        return self._to_env.bounds

    @property
    def compiled(self) -> CompiledPolicy | None:
        """What takes the likeliest actions in compiled code; None if torch computes them."""
        is_wanted = getattr(self.config, "learner", "torch") != "torch"
        if self._compiled is None and is_wanted and isinstance(self.actor, Actor):
            can = why_no_compiled_policy(self.actor) is None
            self._compiled = CompiledPolicy(self.actor, noise_steps=0) if can else None
        return self._compiled

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled form, which is made again where it is needed."""
        return {**self.__dict__, "_compiled": None}

    @torch.inference_mode()
    def act(
        self,
        observations: Observations,
        deterministic: bool = True,
        *,
        resets: npt.NDArray[np.bool_] | None = None,
        env_ids: npt.NDArray[np.intp] | None = None,
    ) -> Any:
        """Actions for a batch of observations [batch, ...], one per row, as `envs.step` takes them.

        Args:
            observations: an array [batch, *shape], for Dict and Tuple spaces a dict or tuple of them. For a single
                observation, give a batch of one: `agent.act(observation[None])[0]`.
            deterministic: the most likely action; False draws from the policy, each action independently of those
                before (in training, SAC's and TD3's noise persists), from the agent's own generator: `seeded`.
            resets: only for a policy that remembers: whose observation is the first of an episode, bool[batch]. In the
                first call that is everybody's. The agent keeps what each environment's episode led it to remember.
            env_ids: whose observations these are, if not everybody's, int[batch]; only for a policy that remembers.
        """
        _check_batch(self.observation_space, observations, "observations")
        # Torch warns of arrays that cannot be written to and refuses some that are not laid out row by row.
        plain = map_leaves(lambda leaf: np.require(leaf, requirements=("C", "W")), observations)
        quick = self.compiled.likeliest(plain) if deterministic and self.compiled is not None else None
        if quick is not None:
            return self._to_env(quick)
        with evaluation_mode(self.actor) if self.actor.training else nullcontext():
            outputs = self._outputs(to_tensors(plain, self.device), resets, env_ids)
        self._check_outputs(outputs, plain)
        distribution = self.actor.distribution
        actions = distribution.mode(outputs) if deterministic else distribution.sample(outputs, self._generator)
        array: Array = actions.cpu().numpy()
        if is_nested(self.action_space) and not all_finite(array):
            self._refuse_outputs(outputs, plain)
        return self._to_env(array)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Let `act(deterministic=False)` draw what `seed` fixes for the length of a `with` block.

        A policy that remembers begins with nothing, and afterwards remembers what it did before.
        """
        before, states = self._generator, self._states
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._states = _no_states(self.actor, self.device)
        try:
            yield
        finally:
            self._generator, self._states = before, states

    def _outputs(
        self, observations: Tensors, resets: npt.NDArray[np.bool_] | None, env_ids: npt.NDArray[np.intp] | None
    ) -> Tensor:
        if self._states is None or not isinstance(self.actor, MemoryActor):
            outputs: Tensor = self.actor(observations)
            return outputs
        if resets is None:
            raise TypeError(
                "This policy remembers: tell it whose observations are the first of an episode, "
                "agent.act(observations, resets=...), bool[batch]; in the first call they all are."
            )
        begins = torch.from_numpy(np.array(resets, dtype=np.bool_))
        batch = _batch_size(observations)
        if begins.shape != (batch,):
            raise ValueError(f"resets must be bool[{batch}], one per observation, got shape {tuple(begins.shape)}.")
        rows = torch.arange(len(begins)) if env_ids is None else torch.from_numpy(np.array(env_ids, dtype=np.int64))
        before = self._states.read(rows, begins)
        outputs, states = self.actor(observations, before, begins.to(self.device))
        self._states.write(rows, states)
        return outputs

    def _check_outputs(self, outputs: Tensor, observations: Observations) -> None:
        """Refuse outputs that pick no action: the largest of NaN logits, for instance, is always the first."""
        # Logits of minus infinity are a way to forbid actions.
        largest = outputs.abs().amax() if is_continuous(self.action_space) else outputs.amax()
        if not math.isfinite(largest.item()):
            self._refuse_outputs(outputs, observations)

    def _refuse_outputs(self, outputs: Tensor, observations: Observations) -> NoReturn:
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


def _batch_size(observations: Tensors) -> int:
    parts = parts_of(observations)
    return len(observations) if parts is None else _batch_size(next(iter(parts.values())))


def _no_states(actor: Actor | MemoryActor, device: torch.device) -> CarriedStates | None:
    return CarriedStates(actor.state_size, device) if isinstance(actor, MemoryActor) else None


def _check_batch(space: Space[Any], observations: Any, path: str) -> None:
    if isinstance(space, spaces.Dict):
        if not isinstance(observations, dict) or observations.keys() != space.keys():
            got = sorted(observations) if isinstance(observations, dict) else type(observations).__name__
            raise ValueError(f"{path} must be a dict with the keys {sorted(space)}, got {got}.")
    elif isinstance(space, spaces.Tuple) and (not isinstance(observations, tuple) or len(observations) != len(space)):
        got = f"one of {len(observations)}" if isinstance(observations, tuple) else type(observations).__name__
        raise ValueError(f"{path} must be a tuple of {len(space)}, got {got}.")
    if (entries := parts_of(space)) is not None:
        for key, entry in entries.items():
            _check_batch(entry, observations[key], f"{path}[{key!r}]")
        return
    shape = tuple(space.shape or ())
    if not isinstance(observations, np.ndarray):
        raise TypeError(f"{path} must be a NumPy array [batch, {shape}], got {type(observations).__name__}.")
    if observations.shape[1:] != shape or observations.ndim != len(shape) + 1:
        hint = "; for a single observation give observation[None]" if observations.shape == shape else ""
        raise ValueError(f"{path} must have the shape (batch, *{shape}), got {observations.shape}{hint}.")
