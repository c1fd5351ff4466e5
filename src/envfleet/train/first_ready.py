"""Acting on whichever environments are ready, so that neither the policy nor slow environments delay the others.

    recv ──▶ results of the first few ──▶ policy ──▶ send their next actions ──▶ recv …
                    meanwhile all the others step

On-policy algorithms need as many steps of every environment: `steps_of_all` stops each one when it has taken them.
Off-policy ones take what there is: `first_results` gives a rollout of one row that is valid only where something came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np

from envfleet.train.collecting import Position, Rollout, Rows, begin, causes_of, final_info, restarted_among
from envfleet.train.observations import Array, Observations, allocate, copied, map_leaves, stacked, write_row
from envfleet.wrappers._common import AnyVectorEnv

RowPolicy: TypeAlias = Callable[[Observations, Rows], Array]
"""From observations of some environments, and which they are, to their actions."""


@final
class FirstReady:
    """Collects rollouts from a fleet with `send` and `recv` and SAME_STEP autoreset.

    A policy draws its actions in the order in which environments get ready, so runs are not repeatable. Actions under
    way outlast a rollout of `first_results`: `begin` drops them.
    """

    def __init__(self, envs: AnyVectorEnv, info_names: Sequence[str] = ()) -> None:
        self._envs: Any = envs
        self._info_names = tuple(info_names)
        self._space = envs.single_observation_space
        self._shown: Observations = allocate(self._space, (envs.num_envs,))
        self._actions: Array | None = None
        self._idle = np.ones(envs.num_envs, dtype=np.bool_)
        self._fresh = False

    def begin(self, seed: int) -> Position:
        """Reset all environments."""
        position = begin(self._envs, seed)
        self._shown = copied(position.observations)
        self._idle[:] = True
        self._fresh = True
        return position

    def first_results(self, policy: RowPolicy) -> Rollout:
        """Have all idle environments act, and return what the first ones to be ready did: arrays [1, num_envs, ...]."""
        self._act(policy, np.flatnonzero(self._idle))
        record = _Record(self._envs, 1, self._actions, self._info_names)
        write_row(record.observations, 0, self._shown)
        record.actions[0] = self._actions
        self._receive(record, np.zeros(self._envs.num_envs, np.intp))
        return self._finished(record)

    def steps_of_all(self, policy: RowPolicy, steps: int) -> Rollout:
        """`steps` steps of every environment: arrays [steps, num_envs, ...], as `collect` gives."""
        taken = np.zeros(self._envs.num_envs, np.intp)
        record: _Record | None = None
        # In parts: the first environments step while the policy still thinks about the others.
        for ids in np.array_split(np.arange(len(taken)), -(-len(taken) // self._envs.unwrapped.batch_size)):
            self._act(policy, ids)
            record = record or _Record(self._envs, steps, self._actions, self._info_names)
            self._note_acted(record, taken, ids)
        assert record is not None
        while (taken < steps).any():
            ids = self._receive(record, taken)
            taken[ids] += 1
            unfinished = ids[taken[ids] < steps]
            if len(unfinished):
                self._act(policy, unfinished)
                self._note_acted(record, taken, unfinished)
        return self._finished(record)

    def _finished(self, record: _Record) -> Rollout:
        fresh, self._fresh = self._fresh, False
        return record.rollout(self._shown, fresh=fresh)

    def _act(self, policy: RowPolicy, ids: Rows) -> None:
        actions = policy(map_leaves(lambda leaf: leaf[ids], self._shown), ids)
        if self._actions is None:
            self._actions = np.zeros((len(self._idle), *actions.shape[1:]), dtype=actions.dtype)
        self._actions[ids] = actions
        self._envs.send(actions, ids)
        self._idle[ids] = False

    def _note_acted(self, record: _Record, taken: Rows, ids: Rows) -> None:
        at = taken[ids], ids
        write_row(record.observations, at, map_leaves(lambda leaf: leaf[ids], self._shown))
        record.actions[at] = self._actions[ids] if self._actions is not None else 0

    def _receive(self, record: _Record, taken: Rows) -> Rows:
        observations, rewards, terminated, truncated, infos = self._envs.recv()
        ids: Rows = infos["env_id"]
        at = taken[ids], ids
        record.rewards[at], record.terminated[at], record.truncated[at] = rewards, terminated, truncated
        record.valid[at] = True
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            record.note_ends(taken[ids], ids, ended, infos)
        write_row(self._shown, ids, observations)
        self._idle[ids] = True
        return ids


class _Record:
    """The arrays a rollout is written into, at (step, environment)."""

    def __init__(self, envs: AnyVectorEnv, steps: int, actions: Array | None, info_names: Sequence[str]) -> None:
        assert actions is not None, "there is no rollout before the first action"
        shape = (steps, envs.num_envs)
        self._space = envs.single_observation_space
        self.observations = allocate(self._space, shape)
        self.actions = np.zeros((steps, *actions.shape), dtype=actions.dtype)
        self.rewards = np.zeros(shape)
        self.terminated, self.truncated, self.valid = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        self.finals: dict[tuple[int, int], tuple[Any, list[float]]] = {}
        self._info_names = info_names
        self._restarted: list[tuple[int, int]] = []
        self._restart_causes: list[tuple[int, str]] = []

    def note_ends(self, steps: Rows, ids: Rows, ended: Rows, infos: Any) -> None:
        """Note which episodes have ended; `ended` are places in `steps`, `ids` and the infos."""
        columns = [final_info(infos, name, ended) for name in self._info_names]
        for number, place in enumerate(ended.tolist()):
            at = int(steps[place]), int(ids[place])
            self.finals[at] = infos["final_obs"][place], [float(column[number]) for column in columns]
        restarted = restarted_among(infos, ended)
        self._restart_causes += [(int(ids[place]), cause) for place, cause in causes_of(infos, restarted)]
        for place in restarted.tolist():
            self._restarted.append((int(steps[place]), int(ids[place])))
            self.valid[self._restarted[-1]] = False

    def rollout(self, shown: Observations, *, fresh: bool) -> Rollout:
        """The finished record; `shown` is what the environments show now."""
        ends = [self.finals[place] for place in sorted(self.finals)]
        finals = stacked(self._space, [observation for observation, _ in ends])
        infos = {name: np.array([values[i] for _, values in ends]) for i, name in enumerate(self._info_names)}
        restarted = None
        if self._restarted:
            restarted = np.zeros(self.valid.shape, dtype=np.bool_)
            restarted[tuple(np.transpose(self._restarted))] = True
        end = Position(copied(shown), np.zeros(self.rewards.shape[1], dtype=np.bool_))
        flags = self.terminated, self.truncated, self.valid
        return Rollout(
            self.observations,
            self.actions,
            self.rewards,
            *flags,
            finals,
            end,
            restarted=restarted,
            final_infos=infos,
            fresh=fresh,
            restart_causes=tuple(self._restart_causes),
        )
