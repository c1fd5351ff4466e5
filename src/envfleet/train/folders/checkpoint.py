"""Checkpoints: all a stopped run needs to go on as if it had never stopped; and agents, loaded from runs.

A checkpoint holds tensors and notes, the loop's counters and statistics. It is checked before anything is restored.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envfleet._names import explains_names
from envfleet._single import EnvMaker
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.own import found_learner
from envfleet.train.environments import make_task, spaces_of
from envfleet.train.finite import check_weights
from envfleet.train.folders.folder import AnyPath, RunFolder
from envfleet.train.folders.trust import AllowImport
from envfleet.train.folders.weights import check_names, damage, load_module, load_tensors, save_tensors
from envfleet.train.networks.networks import Networks
from envfleet.train.wrapping import Wrap, Wrapping

WRAP = "wrap"
"""The entry of config.json with the name of the function that puts the user's wrappers around environments."""

_KIND = "checkpoint"
_ADAM = ("step", "exp_avg", "exp_avg_sq")
"""What Adam remembers of each parameter it has moved."""

_COUNTERS = ("step", "rollouts", "stream", "episodes")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run at rest.

    Attributes:
        tensors: by name: networks, optimisers, the algorithm's own, random numbers, and the loop's (see `training.py`).
        notes: the loop's counters and statistics, as JSON holds them.
        path: the file it was read from.
    """

    tensors: dict[str, Tensor]
    notes: dict[str, Any]
    path: Path

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


def load_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Read the run's latest checkpoint; None if the run was ended before it had saved anything at all."""
    if not folder.checkpoint.exists() and not folder.actor.exists():
        return None
    if not folder.checkpoint.exists():
        raise FileNotFoundError(
            f"{folder.checkpoint} does not exist, so that the run cannot go on. Restore it from a copy, or train again "
            "in another folder; the agent that is there can still be evaluated."
        )
    return Checkpoint(*load_tensors(folder.checkpoint, _KIND), folder.checkpoint)


def restore_learner(learner: Learner, checkpoint: Checkpoint, *, learned: bool = False) -> None:
    """Put networks, optimisers, the algorithm's own state and torch's generator back.

    Args:
        learner: what to fill, made as the saved one was.
        checkpoint: what to fill it with; one that does not hold everything is refused.
        learned: whether the saved learner has certainly learnt something, so that its optimisers have a memory.
    """
    extra = checkpoint.group("extra")
    check_names(
        checkpoint.path, checkpoint.tensors, ["random/cpu", *(f"extra/{name}" for name in learner.extra_tensors())]
    )
    memories = {name: checkpoint.group(f"optimizer/{name}") for name in learner.optimizers}
    for name, memory in memories.items():
        is_adam = isinstance(learner.optimizers[name], torch.optim.Adam)  # others may remember nothing
        if not memory and is_adam and (learned or any(memories.values())):
            raise damage(checkpoint.path, f"it lacks the tensors of the {name}'s optimiser")
    for name, module in learner.modules.items():
        load_module(module, checkpoint.group(f"module/{name}"), f"{checkpoint.path}: the checkpoint's {name}")
    for name, optimizer in learner.optimizers.items():
        _load_optimizer(optimizer, memories[name], checkpoint.path, name)
    try:
        learner.load_extra_tensors(extra)
    except (LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise damage(checkpoint.path, f"the algorithm's own tensors do not fit ({str(error).rstrip('.')})") from error
    restore_generator(checkpoint)


def restore_generator(checkpoint: Checkpoint) -> None:
    """Let torch's generator go on where it was."""
    try:
        torch.set_rng_state(checkpoint.tensors["random/cpu"])
    except (TypeError, RuntimeError) as error:
        raise damage(checkpoint.path, f"random/cpu is no state of torch's generator ({error})") from error


@explains_names
def load_agent(
    run: AnyPath,
    *,
    env: str | EnvMaker | None = None,
    networks: Networks | None = None,
    learner: type[Learner] | None = None,
    wrap: Wrap | None = None,
    device: str = "cpu",
    allow_import: AllowImport = False,
) -> Agent:
    """The agent a run has trained, from its config.json and actor.safetensors; nothing is unpickled.

    Args:
        run: the run's folder.
        env: the environment, instead of the one that the run names: for one that was defined in a notebook or a script
            and cannot be imported, or that has another name by now.
        networks: for a run with networks of your own: fresh ones of the same architecture, to be filled.
        learner: for a run with an algorithm of your own: its class. It may be left out where its module was imported.
        wrap: for a run with vector wrappers of your own: the function that puts them around environments.
        device: where to put it.
        allow_import: for a run that was not trained here by you: True imports the modules that its configuration names,
            a module's name or several only these. A run of your own needs no permission.
    """
    folder = RunFolder(Path(run))
    config, custom_networks = folder.read_allowed_config(allow_import, env)
    check_networks(folder, networks, custom=custom_networks)
    tensors, _ = load_tensors(folder.actor, "actor weights")
    history = folder.read_history()
    algorithm = found_learner(folder.path, config, history, learner)
    wrapping = found_wrapping(folder, history, wrap)
    observation_space, action_space = spaces_of(config, wrapping)
    task = make_task(dataclasses.replace(config, device=device), observation_space, action_space, networks)
    with torch.random.fork_rng(devices=[]):
        actor = algorithm.actor_for(config, task)
    load_module(actor, tensors, str(folder.actor))
    check_weights({"actor": actor}, f"in {folder.actor}")
    return Agent(config, actor.eval(), observation_space, action_space, task.device, wrapping)


def found_wrapping(folder: RunFolder, history: Mapping[str, Any], wrap: Wrap | None) -> Wrapping | None:
    """The wrappers that a run was trained with, and what they had learnt; the function must be given again.

    Args:
        folder: the run's.
        history: what its config.json says besides the configuration.
        wrap: the function, None if it was left out.
    """
    check_wrap(folder, history, wrap)
    return None if wrap is None else Wrapping(wrap, folder.read_wrappers())


def check_wrap(folder: RunFolder, history: Mapping[str, Any], wrap: Wrap | None) -> None:
    """Refuse a run with wrappers of the user's own if their function is not given again, and the reverse."""
    name = history.get(WRAP)
    if name is not None and wrap is None:
        raise ValueError(
            f"{folder.path} was trained with vector wrappers of your own, which a file cannot describe; pass the "
            f"function that puts them around environments, {name}: load_agent(run, wrap=...) or resume(run, wrap=...). "
            "Functions that take an agent or a run, such as evaluate, take the agent that was loaded so."
        )
    if wrap is not None and name is None:
        raise ValueError(f"{folder.path} was trained without wrappers of your own; leave wrap= out.")


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
        f"{index}/{name}": torch.as_tensor(value)
        for index, state in states.items()
        for name, value in state.items()
        if value is not None
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], path: Path, name: str) -> None:
    states: dict[int, dict[str, Tensor]] = {}
    parameters: list[Tensor] = [one for group in optimizer.param_groups for one in group["params"]]
    for place, tensor in tensors.items():
        index, _, entry = place.partition("/")
        if not index.isdecimal() or int(index) >= len(parameters):
            raise damage(path, f"the {name}'s optimiser has no parameter for the tensor optimizer/{name}/{place}")
        if tensor.shape != (() if entry == "step" else parameters[int(index)].shape):
            raise damage(path, f"optimizer/{name}/{place} has the shape {tuple(tensor.shape)}, which does not fit")
        states.setdefault(int(index), {})[entry] = tensor
    entries = _ADAM if isinstance(optimizer, torch.optim.Adam) else ()
    expected = [f"optimizer/{name}/{number}/{entry}" for number in states for entry in entries]
    check_names(path, {f"optimizer/{name}/{place}": tensor for place, tensor in tensors.items()}, expected)
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})


def problems_of(notes: Mapping[str, Any], num_envs: int) -> Iterator[str]:
    """What is missing in a checkpoint's notes or no such thing, as parts of a sentence; nothing if all is well."""
    for name in _COUNTERS:
        yield from _unless(_is_whole(notes.get(name)), name, "an integer of 0 or more", notes)
    yield from _unless(_is_time(notes.get("seconds")), "seconds", "a number of 0 or more", notes)
    yield from _unless(_are_numbers(notes.get("recent")), "recent", "a list of returns", notes)
    yield from _unless(
        _is_tracker(notes.get("tracker"), num_envs),
        "tracker",
        f"the returns and lengths of {num_envs} episodes under way",
        notes,
    )
    yield from _unless(
        _is_interval(notes.get("interval")), "interval", "sums, counts, episodes, steps and seconds since a row", notes
    )
    if "restarts" in notes:  # as above
        yield from _unless(_is_whole(notes["restarts"]), "restarts", "an integer of 0 or more", notes)
        yield from _unless(isinstance(notes.get("reached_goal"), bool), "reached_goal", "true or false", notes)
        yield from _unless(_is_evaluation(notes.get("evaluation")), "evaluation", "two returns or null", notes)
    if "watch" in notes:  # earlier versions wrote none
        yield from _unless(_is_watch(notes["watch"], num_envs), "watch", "which episodes are dropped", notes)


def _unless(holds: bool, name: str, wanted: str, notes: Mapping[str, Any]) -> Iterator[str]:
    if not holds:
        yield f"{name} must be {wanted}, got {str(notes[name])[:80]}" if name in notes else f"it lacks {name!r}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_evaluation(value: Any) -> bool:
    if value is None:
        return True
    returns = [value.get("latest"), value.get("best")] if isinstance(value, dict) else [""]
    return all(one is None or _is_number(one) for one in returns)


def _is_watch(value: Any, num_envs: int) -> bool:
    if not isinstance(value, dict) or not _is_whole(value.get("dropped")):
        return False
    dropping = value.get("dropping")
    return isinstance(dropping, list) and len(dropping) == num_envs and all(isinstance(one, bool) for one in dropping)


def _is_tracker(value: Any, num_envs: int) -> bool:
    if not isinstance(value, dict):
        return False
    returns, lengths = value.get("returns"), value.get("lengths")
    return (
        isinstance(returns, list)
        and isinstance(lengths, list)
        and _are_numbers(returns)
        and all(map(_is_whole, lengths))
        and len(returns) == len(lengths) == num_envs
    )


def _is_interval(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    sums, counts, episodes = value.get("sums"), value.get("counts"), value.get("episodes")
    return (
        isinstance(sums, dict)
        and isinstance(counts, dict)
        and sums.keys() == counts.keys()
        and all(map(_is_number, sums.values()))
        and all(map(_is_whole, counts.values()))
        and isinstance(episodes, list)
        and all(isinstance(pair, list) and len(pair) == 2 and _are_numbers(pair) for pair in episodes)
        and _is_whole(value.get("steps"))
        and _is_whole(value.get("restarts", 0))
        and _is_time(value.get("seconds"))
    )
