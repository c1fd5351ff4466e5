"""The replay buffer: transitions of many environments at once, to be learnt from again and again.

    slots   0   1   2   3   4 …          one transition each, the oldest overwritten first
            o0  o1  o0  o1  o0           the observation it started from
            2   3   4  loose loose       where the one it led to lies

A step leads to the observation the next step of the same environment starts from, so that a slot number is all that has
to be kept of it and no frame is stored twice. Only observations nobody starts from are kept beside the slots, in
`_Loose`: the last ones of finished episodes, and what each environment shows now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space
from torch import Tensor

from envfleet.train.algorithms.priorities import Priorities, check_priorities
from envfleet.train.collecting import Rollout
from envfleet.train.observations import Array, Observations, Tensors, map_leaves, nested_like, parts_of, to_tensors
from envfleet.vector.runtime import generator_state

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions drawn from a buffer, as tensors on the device.

    Attributes:
        observations: [n, ...].
        actions: float32[n, components].
        rewards: float32[n]; of several steps, discounted and added up.
        next_observations: what the last of those steps led to, [n, ...]; for an episode's last its final observation.
        discounts: gamma to the power of their number, float32[n].
        terminated: whether the episode ended by itself, so that nothing follows, float32[n], 0 or 1. A time limit does
            not count: what would have followed is worth something.
        weights: what each one's error is to be multiplied by, because some are likelier to be drawn than others,
            float32[n]; None if all are drawn alike.
        slots: where they are in the buffer, int64[n].
    """

    observations: Tensors
    actions: Tensor
    rewards: Tensor
    next_observations: Tensors
    discounts: Tensor
    terminated: Tensor
    weights: Tensor | None = None
    slots: Indices | None = None


@dataclass(frozen=True, eq=False)
class _Path:
    """Where some steps from each of some slots led, and what was met on the way."""

    following: Indices
    rewards: npt.NDArray[np.float32]
    discounts: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.float32]


class ReplayBuffer:
    """The latest `capacity` transitions of `num_envs` environments.

    Memory is reserved now but taken only as it fills.

    Args:
        observation_space: of a single environment: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and
            Tuple of these.
        action_size: how many components an action has.
        num_envs: how many environments there are.
        capacity: how many transitions are kept, `num_envs` or more.
        seed: fixes what is drawn.
        priority_exponent: 0 draws all transitions alike. Else each one's chance is the size of its error, given to
            `prioritize`, to this power; a new one is as likely as the likeliest so far.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_size: int,
        num_envs: int,
        capacity: int,
        seed: int,
        *,
        priority_exponent: float = 0.0,
    ) -> None:
        if capacity < num_envs:
            raise ValueError(f"buffer_size must be at least num_envs ({num_envs}), got {capacity}.")
        _check_memory(observation_space, action_size, capacity)
        self._capacity = capacity
        self._observations = _reserve(observation_space, capacity)
        self._actions = np.empty((capacity, action_size), dtype=np.float32)
        self._rewards = np.empty(capacity, dtype=np.float32)
        self._terminated = np.empty(capacity, dtype=np.float32)
        self._next = np.empty(capacity, dtype=np.int64)
        self._loose = _Loose(observation_space, num_envs)
        self._latest = np.full(num_envs, -1, dtype=np.int64)
        """The slot whose next observation is what the environment shows now; -1 where an episode begins."""
        self._priorities = Priorities(capacity, priority_exponent) if priority_exponent > 0 else None
        self._head = self._size = 0
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        return self._size

    def add(self, rollout: Rollout) -> None:
        """Remember all transitions of a rollout; rows that are none (`valid` False) are left out."""
        self._cut_where_it_does_not_go_on(rollout)
        finals = iter(range(np.count_nonzero(rollout.done)))
        for step in range(len(rollout.rewards)):
            self._add_step(rollout, step, finals)
        self._loose.write(np.arange(len(self._latest)), rollout.end.observations)

    def sample(
        self, size: int, device: torch.device, *, steps: int = 1, gamma: float = 1.0, correction: float = 0.0
    ) -> Transitions:
        """Draw `size` transitions, each equally likely unless there are priorities, with replacement.

        Args:
            size: how many.
            device: where they are to be.
            steps: each is followed for so many steps: to the end of its episode, or as far as it is known.
            gamma: discount factor.
            correction: how far `weights` make good for unequal chances: 1 entirely, 0 not at all.
        """
        slots, weights = self._draw(size, correction)
        path = self._follow(slots, steps, gamma)
        late = np.flatnonzero(path.following >= self._capacity)

        def observed_next(stored: Array, loose: Array) -> Array:
            # Clipped, not looked up, where the observation is a loose one: those rows are filled in below.
            found = stored.take(path.following, axis=0, mode="clip")
            found[late] = loose[path.following[late] - self._capacity]
            return found

        observations = map_leaves(lambda stored: stored.take(slots, axis=0), self._observations)
        next_observations = map_leaves(observed_next, self._observations, self._loose.observations)
        return Transitions(
            to_tensors(observations, device),
            torch.from_numpy(self._actions.take(slots, axis=0)).to(device),
            torch.from_numpy(path.rewards).to(device),
            to_tensors(next_observations, device),
            torch.from_numpy(path.discounts).to(device),
            torch.from_numpy(path.terminated).to(device),
            None if weights is None else torch.from_numpy(weights).to(device),
            slots,
        )

    @property
    def has_priorities(self) -> bool:
        """Whether some transitions are likelier to be drawn than others."""
        return self._priorities is not None

    def prioritize(self, slots: Indices, errors: npt.NDArray[np.floating[Any]]) -> None:
        """Say how wrong the estimates were for the transitions that were drawn from these slots."""
        if self._priorities is not None:
            self._priorities.change(slots, errors)

    def _draw(self, size: int, correction: float) -> tuple[Indices, npt.NDArray[np.float32] | None]:
        """Slots, and what their errors are to be multiplied by."""
        if self._priorities is None:
            return self._generator.integers(self._size, size=size), None
        slots = self._priorities.draw(size, self._generator)
        weights = (self._size * self._priorities.chances(slots)) ** -correction
        return slots, (weights / weights.max()).astype(np.float32)

    def _follow(self, slots: Indices, steps: int, gamma: float) -> _Path:
        path = _Path(
            self._next.take(slots),
            self._rewards.take(slots),
            np.full(len(slots), gamma, np.float32),
            self._terminated.take(slots),
        )
        for _ in range(1, steps):
            going_on = np.flatnonzero(path.following < self._capacity)
            at = path.following[going_on]
            path.rewards[going_on] += path.discounts[going_on] * self._rewards[at]
            path.discounts[going_on] *= np.float32(gamma)
            path.terminated[going_on] = self._terminated[at]
            path.following[going_on] = self._next[at]
        return path

    def tensors(self) -> dict[str, Tensor]:
        """All that is needed to go on exactly: what is stored, and where the generator stands."""
        counters = [self._head, self._size, self._loose.used, *self._loose.free]
        largest = {}
        if self._priorities is not None:
            largest["largest_priority"] = torch.tensor(self._priorities.largest, dtype=torch.float64)
        return {
            **largest,
            **{name: torch.from_numpy(array[:length]) for name, array, length in self._arrays()},
            "latest": torch.from_numpy(self._latest),
            "counters": torch.tensor(counters, dtype=torch.int64),
            "generator": torch.from_numpy(_generator_words(self._generator)),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors()` gave, also where there is more room now than there was.

        The buffer must have been made for the same spaces and environments, and hold all that was saved.
        """
        head, size, used, *free = tensors["counters"].tolist()
        if size > self._capacity or len(tensors["latest"]) != len(self._latest):
            raise ValueError(
                f"The saved buffer holds {size} transitions of {len(tensors['latest'])} environments, this one has "
                f"room for {self._capacity} of {len(self._latest)}; resume with the settings the run was started with, "
                "or a larger buffer_size."
            )
        following, latest = tensors["next"].numpy(), tensors["latest"].numpy()
        capacity = self._saved_capacity(size, used, free, following, latest)
        self._check_places(capacity, head, size, used, free, following, latest)
        if self._priorities is not None:
            check_priorities(tensors["priorities"].numpy(), float(tensors["largest_priority"]))
        self._size = size
        self._loose.restore(used, free)
        # Oldest first, unless nothing has to move: then every draw finds the transition that it would have found.
        order = np.arange(size) if capacity == self._capacity else (head - size + np.arange(size)) % capacity
        self._head = head if capacity == self._capacity else size % self._capacity
        for name, array, length in self._arrays():
            saved = tensors[name].numpy()
            if saved.shape != (length, *array.shape[1:]):
                raise ValueError(f"The saved {name} have the shape {saved.shape}, not {(length, *array.shape[1:])}.")
            array[:length] = saved if name.startswith("loose.") else saved[order]
        place = np.empty(size, np.int64)
        place[order] = np.arange(size)
        stored = self._next[:size] < capacity
        self._next[:size][~stored] += self._capacity - capacity
        self._next[:size][stored] = place[self._next[:size][stored]]
        self._latest[:] = -1
        self._latest[latest >= 0] = place[latest[latest >= 0]]
        if self._priorities is not None:
            self._priorities.restore(float(tensors["largest_priority"]))
        _set_generator_words(self._generator, tensors["generator"].numpy())

    def _saved_capacity(self, size: int, used: int, free: list[int], following: Indices, latest: Indices) -> int:
        """The capacity of the buffer that was saved: what its links to loose observations were counted from."""
        finals = {*range(len(latest), min(used, len(latest) + size + len(free)))} - {*free}
        rows = [*np.flatnonzero(latest >= 0).tolist(), *finals]
        loose = following[following >= size]
        return int(loose.min()) - min(rows) if rows and len(loose) else self._capacity

    def _check_places(
        self, capacity: int, head: int, size: int, used: int, free: list[int], following: Indices, latest: Indices
    ) -> None:
        """Refuse numbers of slots and rows that do not exist: they would be looked up only much later."""
        num_envs = len(latest)
        stored, loose = (following >= 0) & (following < size), (following >= capacity) & (following < capacity + used)
        places = [
            (0 <= head < capacity and 0 <= size <= capacity and used >= num_envs, "counters"),
            (len({*free}) == len(free) and all(num_envs <= row < used for row in free), "counters"),
            (bool(((latest >= -1) & (latest < max(size, 0))).all()), "latest"),
            (bool((stored | loose).all()), "next"),
        ]
        for holds, name in places:
            if not holds:
                raise ValueError(f"The saved buffer's {name} name places that it does not have.")

    def _add_step(self, rollout: Rollout, step: int, finals: Iterator[int]) -> None:
        envs = np.flatnonzero(rollout.valid[step])
        slots = (self._head + np.arange(len(envs))) % self._capacity
        self._free_finals_of(slots[slots < self._size])
        # Who is so slow that its latest step is overwritten by now has nothing left to lead on from.
        self._latest[(self._latest - self._head) % self._capacity < len(envs)] = -1
        before = self._latest[envs]
        self._next[before[before >= 0]] = slots[before >= 0]
        self._next[slots] = self._capacity + envs
        self._latest[envs] = slots
        _assign(self._observations, slots, map_leaves(lambda leaf: leaf[step][envs], rollout.observations))
        self._actions[slots] = rollout.actions[step].reshape(len(self._latest), -1)[envs]
        self._rewards[slots] = rollout.rewards[step][envs]
        self._terminated[slots] = rollout.terminated[step][envs]
        if self._priorities is not None:
            self._priorities.add(slots)
        self._head = (self._head + len(envs)) % self._capacity
        self._size = min(self._size + len(envs), self._capacity)
        for env in np.flatnonzero(rollout.done[step]).tolist():
            self._end_episode(env, _rows(rollout.final_observations, next(finals)))

    def _end_episode(self, env: int, final_observation: Observations) -> None:
        if self._latest[env] < 0:  # an environment was restarted before its episode's first step was over
            return
        row = self._loose.keep(final_observation)
        self._next[self._latest[env]] = self._capacity + row
        self._latest[env] = -1

    def _cut_where_it_does_not_go_on(self, rollout: Rollout) -> None:
        # Environments may have been reset between two rollouts, in the middle of an episode.
        goes_on = np.ones(len(self._latest), dtype=np.bool_)
        for shown, first in zip(_leaves(self._loose.observations), _leaves(rollout.observations), strict=True):
            same = shown[: len(goes_on)] == first[0]
            goes_on &= same.reshape(len(goes_on), -1).all(-1)
        if rollout.dropped is not None:
            goes_on &= ~rollout.dropped[0]
        for env in np.flatnonzero(~goes_on & (self._latest >= 0)).tolist():
            self._end_episode(env, _rows(self._loose.observations, env))

    def _free_finals_of(self, slots: Indices) -> None:
        rows = self._next[slots] - self._capacity
        self._loose.free.extend(rows[rows >= len(self._latest)].tolist())

    def _arrays(self) -> Iterator[tuple[str, Array, int]]:
        """Every array that is saved: its name, and how much of it is in use."""
        for number, leaf in enumerate(_leaves(self._observations)):
            yield f"observations.{number}", leaf, self._size
        for number, leaf in enumerate(_leaves(self._loose.observations)):
            yield f"loose.{number}", leaf, self._loose.used
        yield "actions", self._actions, self._size
        yield "rewards", self._rewards, self._size
        yield "terminated", self._terminated, self._size
        yield "next", self._next, self._size
        if self._priorities is not None:
            yield "priorities", self._priorities.of_slots, self._size


class _Loose:
    """Observations no stored transition starts from: first what each environment shows now, then final ones."""

    def __init__(self, space: Space[Any], num_envs: int) -> None:
        self._space = space
        self.observations = cast("Observations", map_leaves(np.zeros_like, _reserve(space, num_envs)))
        self.used = num_envs
        self.free: list[int] = []
        """Rows below `used` whose transition has been overwritten."""

    def keep(self, observation: Observations) -> int:
        """Store one final observation; returns its row."""
        row = self.free.pop() if self.free else self.used
        self._grow_to(row + 1)
        self.used = max(self.used, row + 1)
        self.write(row, observation)
        return row

    def write(self, rows: Any, observations: Observations) -> None:
        """Overwrite `rows`."""
        _assign(self.observations, rows, observations)

    def restore(self, used: int, free: list[int]) -> None:
        """Make room for what was saved."""
        self._grow_to(used)
        self.used, self.free = used, free

    def _grow_to(self, rows: int) -> None:
        room = len(next(_leaves(self.observations)))
        if rows > room:
            larger = _reserve(self._space, max(rows, 2 * room))
            _assign(larger, slice(room), self.observations)
            self.observations = larger


def _reserve(space: Space[Any], rows: int) -> Observations:
    # Not zeros, and never filled: the system hands out the memory behind it only where something is written.
    arrays = nested_like(space, lambda leaf: np.empty((rows, *(leaf.shape or ())), dtype=leaf.dtype))
    return cast("Observations", arrays)


def _leaves(tree: Any) -> Iterator[Array]:
    if (parts := parts_of(tree)) is not None:
        for entry in parts.values():
            yield from _leaves(entry)
    else:
        yield tree


def _rows(tree: Any, rows: Any) -> Any:
    return map_leaves(lambda leaf: leaf[rows], tree)


def _assign(tree: Any, rows: Any, values: Any) -> None:
    def assign(leaf: Array, value: Array) -> None:
        leaf[rows] = value

    map_leaves(assign, tree, values)


def _generator_words(generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    state: Any = generator.bit_generator.state
    words = state["state"]["state"].to_bytes(16, "little") + state["state"]["inc"].to_bytes(16, "little")
    buffered = state["uinteger"].to_bytes(4, "little") + bytes([state["has_uint32"]])
    return np.array(bytearray(words + buffered), dtype=np.uint8)


def _set_generator_words(generator: np.random.Generator, words: npt.NDArray[np.uint8]) -> None:
    if words.dtype != np.uint8 or words.shape != (37,) or words[16] % 2 == 0 or words[36] > 1:
        # Taken as they are, such words may make a generator that draws the same number for ever.
        raise ValueError("The saved buffer's generator is no state of NumPy's PCG64.")
    state, increment, uinteger, has_uint32 = (
        int.from_bytes(part.tobytes(), "little") for part in np.split(words, [16, 32, 36])
    )
    generator.bit_generator.state = generator_state(state, increment, has_uint32, uinteger)


def _check_memory(space: Space[Any], action_size: int, capacity: int) -> None:
    single = sum(leaf.nbytes for leaf in _leaves(_reserve(space, 1))) + 4 * action_size + 16
    available = _available_memory()
    if available is not None and single * capacity > available:
        raise ValueError(
            f"{capacity:,} transitions of {single:,} bytes take {single * capacity / 1e9:.1f} GB, but only "
            f"{available / 1e9:.1f} GB of memory are free; "
            f"set buffer_size to at most {available * 9 // 10 // single:,}."
        )


def _available_memory() -> int | None:
    """Bytes this process can hope for, or None where the system does not say."""
    meminfo, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    try:
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            available = min(available, int(text))
    except (OSError, KeyError, ValueError):
        return None
    return available
