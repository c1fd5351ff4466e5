"""Checkpoints: all a stopped run needs to go on as if it had never stopped; and agents, loaded from runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envfleet.train.agent import Agent
from envfleet.train.algorithms import make_learner
from envfleet.train.environments import make_task, spaces_of
from envfleet.train.finite import check_weights
from envfleet.train.folder import AnyPath, RunFolder
from envfleet.train.learner import Learner
from envfleet.train.networks import Networks
from envfleet.train.weights import load_module, load_tensors, save_tensors

_KIND = "checkpoint"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run at rest.

    Attributes:
        tensors: by name: networks, optimisers, the algorithm's own, random numbers, and the loop's (see `run.py`).
        notes: the loop's counters and statistics, as JSON holds them.
    """

    tensors: dict[str, Tensor]
    notes: dict[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix/`, without it."""
        start = f"{prefix}/"
        return {name.removeprefix(start): tensor for name, tensor in self.tensors.items() if name.startswith(start)}


def save_checkpoint(
    folder: RunFolder, learner: Learner, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]
) -> None:
    """Write the learner's state, torch's generator and the loop's own tensors and notes."""
    everything = {**tensors, "random/cpu": torch.get_rng_state()}
    for name, module in learner.modules.items():
        everything |= _prefixed(f"module/{name}", module.state_dict())
    for name, optimizer in learner.optimizers.items():
        everything |= _prefixed(f"optimizer/{name}", _optimizer_tensors(optimizer))
    everything |= _prefixed("extra", learner.extra_tensors())
    save_tensors(folder.checkpoint, _KIND, everything, notes)


def load_checkpoint(folder: RunFolder) -> Checkpoint:
    """Read the run's latest checkpoint."""
    return Checkpoint(*load_tensors(folder.checkpoint, _KIND))


def restore_learner(learner: Learner, checkpoint: Checkpoint) -> None:
    """Put networks, optimisers, the algorithm's own state and torch's generator back."""
    for name, module in learner.modules.items():
        load_module(module, checkpoint.group(f"module/{name}"), f"the checkpoint's {name}")
    for name, optimizer in learner.optimizers.items():
        _load_optimizer(optimizer, checkpoint.group(f"optimizer/{name}"))
    learner.load_extra_tensors(checkpoint.group("extra"))
    torch.set_rng_state(checkpoint.tensors["random/cpu"])


def load_agent(run: AnyPath, *, networks: Networks | None = None, device: str = "cpu") -> Agent:
    """The agent a run has trained, from its config.json and actor.safetensors; nothing is unpickled.

    Args:
        run: the run's folder.
        networks: for a run with networks of your own: fresh ones of the same architecture, to be filled.
        device: where to put it.
    """
    folder = RunFolder(Path(run))
    config, custom_networks = folder.read_config()
    check_networks(folder, networks, custom=custom_networks)
    tensors, _ = load_tensors(folder.actor, "actor weights")
    observation_space, action_space = spaces_of(config)
    task = make_task(dataclasses.replace(config, device=device), observation_space, action_space, networks)
    with torch.random.fork_rng(devices=[]):
        learner = make_learner(config, task)
    load_module(learner.actor, tensors, str(folder.actor))
    check_weights({"actor": learner.actor}, f"in {folder.actor}")
    return Agent(config, learner.actor.eval(), observation_space, action_space, task.device)


def check_networks(folder: RunFolder, networks: Networks | None, *, custom: bool) -> None:
    """Refuse a run with networks of the user's own if they are not given again, and the reverse."""
    if custom and networks is None:
        raise ValueError(
            f"{folder.path} was trained with networks of your own, which a file cannot describe; "
            "pass fresh ones of the same architecture: networks=Networks(actor=..., critic=...)."
        )
    if networks is not None and not custom:
        raise ValueError(f"{folder.path} was trained with envfleet's own networks; leave networks= out.")


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    states = optimizer.state_dict()["state"]
    return {
        f"{index}/{name}": torch.as_tensor(value) for index, state in states.items() for name, value in state.items()
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    states: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        index, name = path.split("/")
        states.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
