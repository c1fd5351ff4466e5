"""What a run's environments were told since their last reset with a seed, so that a resumed run can tell them again."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from envfleet.train.collecting import BoolArray, Position, begin, collect
from envfleet.train.folders.checkpoint import Checkpoint
from envfleet.train.folders.weights import check_names, damage
from envfleet.train.observations import Array, Observations, copied, parts_of
from envfleet.wrappers._common import AnyVectorEnv

_REPLAYED_AT_ONCE = 128


@final
@dataclass(frozen=True)
class AttributeSet:
    """An attribute that a callback has set.

    Attributes:
        after: how many steps of each environment had been taken since the stream's start.
        name: the attribute's.
        values: by environment.
    """

    after: int
    name: str
    values: Mapping[int, Any]

    def apply(self, envs: AnyVectorEnv) -> None:
        """Set it once more."""
        fleet: Any = envs.unwrapped
        fleet.set_attr(self.name, list(self.values.values()), list(self.values))


@final
class Journal:
    """The actions of the stream under way, and the attributes that callbacks have set since the run began."""

    def __init__(self) -> None:
        self._actions: list[Array] = []
        self._attributes: list[AttributeSet] = []
        self._unsaved: set[str] = set()
        """Names of attributes that were set to what JSON cannot hold."""
        self.restarts = 0
        """Of environments after failures, in the stream under way."""

    @property
    def steps(self) -> int:
        """How many steps each environment has taken in the stream under way."""
        return sum(map(len, self._actions))

    def begin_stream(self) -> None:
        """All environments are about to be reset with a seed: of what they were told only attributes still matter."""
        latest: dict[str, dict[int, Any]] = {}
        for entry in self._attributes:
            latest.setdefault(entry.name, {}).update(entry.values)
        self._attributes = [AttributeSet(0, name, values) for name, values in latest.items()]
        self._actions, self.restarts = [], 0

    def add(self, actions: Array) -> None:
        """Note the actions of a rollout, [steps, num_envs, ...]."""
        self._actions.append(actions)

    def note_attribute(self, name: str, values: Mapping[int, Any]) -> None:
        """Note what a callback has just set, by environment."""
        try:
            plain = {env: json.loads(json.dumps(value, default=_plain)) for env, value in values.items()}
        except (TypeError, ValueError, RecursionError):
            self._unsaved.add(name)
            return
        self._attributes.append(AttributeSet(self.steps, name, plain))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it: tensors."""
        return {"journal": torch.from_numpy(np.concatenate(self._actions))} if self._actions else {}

    def notes(self) -> dict[str, Any]:
        """What a checkpoint holds of it, as JSON holds it."""
        return {
            "restarts": self.restarts,
            "attributes": [[entry.after, entry.name, [*entry.values.items()]] for entry in self._attributes],
            "unsaved": sorted(self._unsaved),
        }

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from what `tensors` and `notes` gave; earlier versions wrote no notes."""
        notes = checkpoint.notes.get("journal", {"restarts": 0, "attributes": [], "unsaved": []})
        try:
            self.restarts, self._unsaved = int(notes["restarts"]), set(notes["unsaved"])
            self._attributes = [
                AttributeSet(int(after), str(name), {int(env): value for env, value in pairs})
                for after, name, pairs in notes["attributes"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise damage(checkpoint.path, f"the notes of the journal do not fit ({error})") from error
        self._actions = [checkpoint.tensors["journal"].numpy()] if "journal" in checkpoint.tensors else []
        if self._unsaved:
            warnings.warn(
                f"A callback had set {', '.join(sorted(self._unsaved))} to what JSON cannot hold: a checkpoint could "
                "not keep it. The environments have what their constructor gives; let the callback set it again.",
                stacklevel=2,
            )

    def set_attributes(self, envs: AnyVectorEnv) -> None:
        """Set what callbacks had set, on environments whose actions are not replayed."""
        for entry in self._attributes:
            entry.apply(envs)

    def replay(self, envs: AnyVectorEnv, seed: int) -> Position:
        """Reset the environments with the stream's seed and tell them all again; returns where they stand then."""
        actions = np.concatenate(self._actions) if self._actions else np.empty(0)
        told = iter(actions)
        to_set = sorted(self._attributes, key=lambda entry: entry.after)
        while to_set and to_set[0].after == 0:
            to_set.pop(0).apply(envs)
        position, taken = begin(envs, seed), 0
        while taken < len(actions):
            while to_set and to_set[0].after <= taken:
                to_set.pop(0).apply(envs)
            # In pieces: the observations on the way are not wanted, and all at once may not fit into memory.
            until = min(len(actions), taken + _REPLAYED_AT_ONCE, *(entry.after for entry in to_set[:1]))
            position = collect(envs, lambda _: next(told), until - taken, position).end
            taken = until
        for entry in to_set:
            entry.apply(envs)
        return position


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


def stand_as_saved(
    envs: AnyVectorEnv, position: Position, checkpoint: Checkpoint, restarts: int
) -> tuple[Position, npt.NDArray[np.intp]]:
    """Compare where the environments stand after a replay with where they stood, and reset those that stand elsewhere.

    Their episodes begin anew, since nobody knows what became of the old ones. A warning says so.

    Args:
        envs: the environments.
        position: where they stand.
        checkpoint: what was saved.
        restarts: after failures, in the stream that was replayed.

    Returns:
        Where they stand now, and which were reset.
    """
    saved = {**checkpoint.tensors, **_of_old(position.observations, checkpoint)}
    leaves = observation_leaves(position.observations)
    check_names(checkpoint.path, saved, [name for name, _ in leaves])
    elsewhere = _differing([(leaf, saved[name].numpy()) for name, leaf in leaves], envs.num_envs)
    differing = np.flatnonzero(elsewhere)
    if not len(differing):
        return position, differing
    which = f"{len(differing)} of {envs.num_envs} environments" if len(differing) > 5 else _listed(differing.tolist())
    why = (
        "The environments do not repeat themselves: the same seed and actions led elsewhere than before the run was "
        "stopped"
    )
    if restarts:
        why = (
            f"Environments had been restarted {restarts} time{'s' * (restarts != 1)} after failures, and failures do "
            "not repeat themselves: the same seed and actions led elsewhere than before the run was stopped"
        )
    warnings.warn(
        f"{why} ({which}). Their episodes begin anew. Training goes on, but not as it would have without the "
        "interruption.",
        stacklevel=2,
    )
    observations, _ = envs.reset(options={"reset_mask": elsewhere})
    starting = None if position.starting is None else position.starting | elsewhere
    return Position(copied(observations), position.resetting & ~elsewhere, starting=starting), differing


def _listed(envs: Sequence[int]) -> str:
    return f"environment{'s' * (len(envs) > 1)} {', '.join(map(str, envs))}"


def _differing(pairs: Sequence[tuple[Array, Array]], num_envs: int) -> BoolArray:
    elsewhere = np.zeros(num_envs, dtype=np.bool_)
    for leaf, saved in pairs:
        if leaf.shape != saved.shape or leaf.dtype != saved.dtype:
            elsewhere[:] = True
            continue
        same = leaf == saved
        if leaf.dtype.kind == "f":
            same |= np.isnan(leaf) & np.isnan(saved)
        elsewhere |= ~same.reshape(num_envs, -1).all(-1)
    return elsewhere


def _of_old(observations: Observations, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What earlier versions have saved under names in which a key's own slashes were not told from ours."""
    names = zip(observation_leaves(observations), observation_leaves(observations, escape=str), strict=True)
    tensors = checkpoint.tensors
    return {new: tensors[old] for (new, _), (old, _) in names if new not in tensors and old in tensors}


def _escaped(key: object) -> str:
    """A key of a Dict space as a part of a tensor's name: no two keys are written alike."""
    text = key.replace("~", "~0") if isinstance(key, str) else f"~2{key!r}"
    return text.replace("/", "~1")


def observation_leaves(
    observations: Observations, path: str = "position", escape: Callable[[object], str] = _escaped
) -> list[tuple[str, Array]]:
    """The arrays of a batch of observations, each with the name it has in a checkpoint."""
    if (parts := parts_of(observations)) is not None:
        return [
            pair for key, leaf in parts.items() for pair in observation_leaves(leaf, f"{path}/{escape(key)}", escape)
        ]
    assert isinstance(observations, np.ndarray)
    return [(path, observations)]
