"""The actors of a fleet: started, called, waited for, ended. The only module that calls Ray."""

from __future__ import annotations

import os
import pickle
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeAlias, final

from envfleet.errors import FleetError
from envfleet.vector.failures import Failure
from envfleet.vector.global_generators import fleet_seed
from envfleet.vector.interruptions import signals_blocked
from envfleet.vector.lost import LostWorker
from envfleet.vector.ray.actor import Place, ShardActor
from envfleet.vector.ray.cluster import Demand, has_room, remote_options, room_text

Ref: TypeAlias = Any
"""Ray's promise of an answer."""

_LONGEST_CAUSE = 400


@final
class Actors:
    """``number`` actors, once each was started."""

    def __init__(self, ray: Any, demand: Demand, number: int) -> None:
        self._ray, self._demand = ray, demand
        self._remote = ray.remote(**remote_options(demand), max_restarts=0, max_task_retries=0)(ShardActor)
        self._handles: list[Any] = [None] * number
        self.places: dict[int, Place] = {}
        self._caller_pid = os.getpid()
        self._fleet_seed, self._started = fleet_seed(), count()

    def __len__(self) -> int:
        return len(self._handles)

    def start(self, worker: int, task: bytes, first_index: int) -> None:
        """Has an actor started, in place of another if there was one; Ray does so when it has room for it."""
        with signals_blocked():  # or an interruption would leave an actor that nobody knows
            self.end_one(worker)
            # The number of the start is part of the seed: one that takes another's place must not repeat its numbers.
            seed = [self._fleet_seed, worker, next(self._started)]
            self._handles[worker] = self._remote.remote(task, first_index, seed)
            self.places.pop(worker, None)

    def where(self, worker: int) -> str:
        """Where an actor runs, for messages."""
        return str(self.places.get(worker, "a Ray actor without a place"))

    def shortage(self) -> str | None:
        """What to say to someone whose actors find no place; None where there is room for one more."""
        return None if has_room(self._ray, self._demand) else room_text(self._ray, self._demand, len(self))

    def check_usable(self) -> None:
        """Refuses what cannot work any more."""
        if os.getpid() != self._caller_pid:
            raise FleetError(
                "This fleet was made by another process, of which this one is a forked copy: its actors "
                "answer only to that one. Make a new fleet here."
            )
        if not self._ray.is_initialized():
            raise FleetError("Ray was shut down, and the actors of this fleet with it. Make a new fleet.")

    # -- speaking -------------------------------------------------------------------------------------

    def call(self, worker: int, method: str, *args: Any) -> Ref:
        """Has an actor do something once it has done all it was told before."""
        return getattr(self._handles[worker], method).remote(*args)

    def wait(self, refs: Sequence[Ref], number: int, seconds: float) -> tuple[list[Ref], list[Ref]]:
        """Waits until so many are answered, or that no answer will come; those that are, and the rest."""
        ready, rest = self._ray.wait(list(refs), num_returns=number, timeout=seconds)
        return ready, rest

    def answers(self, refs: Sequence[Ref], workers: Sequence[int]) -> list[Any]:
        """The answers of calls that were waited for; a LostWorker says that one will not come."""
        try:
            answers: list[Any] = self._ray.get(list(refs))
        except self._ray.exceptions.RayError:
            return [self._answer(ref, worker) for ref, worker in zip(refs, workers, strict=True)]
        return answers

    def _answer(self, ref: Ref, worker: int) -> Any:
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            raise LostWorker(worker, f"is gone, Ray says: {_brief(error)}") from None

    def has_answered(self, ref: Ref) -> bool:
        """Whether the answer came before its actor was gone."""
        if not self.wait([ref], 1, 0)[0]:
            return False
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError:
            return False
        return True

    # -- ending ---------------------------------------------------------------------------------------

    def end_one(self, worker: int) -> None:
        """Kills an actor, if there is one."""
        handle = self._handles[worker]
        if handle is not None:
            with suppress(Exception):  # it is gone already, or Ray is
                self._ray.kill(handle)

    def end(self, timeout: float, terminate: bool) -> list[Failure]:
        """Ends all within about ``timeout`` seconds; returns what environments raised in close()."""
        if os.getpid() != self._caller_pid or not self._ray.is_initialized():
            return []
        try:
            return [] if terminate else self._close_envs(timeout)
        finally:  # a Ctrl-C while they are asked: then they are not asked any longer
            for worker in range(len(self)):
                self.end_one(worker)

    def _close_envs(self, timeout: float) -> list[Failure]:
        # Those that have not found a place have nothing to close, and would not answer.
        refs = [self.call(worker, "close") for worker in self.places]
        failures: list[Failure] = []
        for ref in self.wait(refs, len(refs), timeout)[0] if refs else []:
            with suppress(self._ray.exceptions.RayError):  # it was lost before, or had no environments to close
                failures += pickle.loads(self._ray.get(ref)).failures
        return failures


def _brief(error: Exception) -> str:
    """What of Ray's many lines tells what happened: the last, which says why."""
    return textwrap.shorten(str(error).strip().splitlines()[-1], _LONGEST_CAUSE, placeholder=" ...").rstrip(".")
