"""The Ray actors of a fleet: starts, calls, waits for, watches and ends them. No other module speaks to actors."""

from __future__ import annotations

import importlib
import logging
import math
import os
import pickle
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, final

import numpy as np

from envfleet.errors import FleetError
from envfleet.vector import failures
from envfleet.vector.failures import Failure
from envfleet.vector.ray.actor import Place, ShardActor
from envfleet.vector.recovery import LostWorker, all_made
from envfleet.vector.runtime import AwakeClock, fleet_seed, signals_blocked
from envfleet.vector.spaces import EnvFace

Demand: TypeAlias = Mapping[str, float]
"""What one actor takes of the cluster, by Ray's names: ``{"CPU": 1.0}``."""

_CPU = "CPU"


def import_ray() -> Any:
    """The package, or an error that says how to install it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            'RayVectorEnv needs Ray, which is not installed; run\n    pip install "envfleet[ray]"', name="ray"
        ) from None


def connect() -> Any:
    """Ray, connected: to the cluster it is connected to, or as ``ray.init()`` connects."""
    ray = import_ray()
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR)
    return ray


def checked_demand(num_cpus: Any, resources: Any) -> Demand:
    """The user's arguments, checked."""
    for name, amount in {"num_cpus": num_cpus, **dict(resources or {})}.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float | np.number) or not 0 <= amount < math.inf:
            raise ValueError(f"An actor's share of {name!r} must be a number, zero or more, got {amount!r}.")
    if {"CPU", "GPU"} & set(resources or {}):
        raise ValueError(f"`resources` are those you gave names to; CPUs go by `num_cpus`. Got {dict(resources)}.")
    return {_CPU: float(num_cpus), **{name: float(amount) for name, amount in dict(resources or {}).items()}}


def remote_options(demand: Demand) -> dict[str, Any]:
    """The demand as Ray's arguments."""
    own = {name: amount for name, amount in demand.items() if name != _CPU}
    return {"num_cpus": demand[_CPU], "resources": own or None}


def actors_that_fit(ray: Any, demand: Demand) -> int:
    """How many actors the cluster has room for now, at least one; as many as it has CPUs where they take nothing."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    counts = [free.get(name, 0.0) // amount for name, amount in demand.items() if amount]
    return max(1, int(min(counts, default=all_.get(_CPU, 1.0))))


def has_room(ray: Any, demand: Demand) -> bool:
    """Whether one more actor would find a place now."""
    free = ray.available_resources()
    return all(free.get(name, 0.0) >= amount for name, amount in demand.items() if amount)


def room_text(ray: Any, demand: Demand, actors: int) -> str:
    """What the actors of a fleet need, what there is, and what to do if that is not enough."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    parts = [
        f"{amount * actors:g} {name} ({amount:g} each), the cluster has {all_.get(name, 0.0):g}, "
        f"of which {free.get(name, 0.0):g} are free"
        for name, amount in demand.items()
        if amount
    ]
    return (
        f"{actors} actors need {'; '.join(parts) or 'nothing but a running cluster'}. Ask for fewer (num_workers), let "
        "them take less (num_cpus=0.5, or 0), close what holds the rest, or add machines."
    )


Ref: TypeAlias = Any
"""Ray's promise of an answer."""

_LONGEST_CAUSE = 400


@final
class Actors:
    """The actors of a fleet, of which ``number`` are to be started.

    Attributes:
        places: Where actors run, by their numbers, as far as they have said so.
    """

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
        """Has an actor started, perhaps in place of one that was ended; Ray does so when it has room for it."""
        with signals_blocked():  # or an interruption would leave an actor that nobody knows
            # The number of the start is part of the seed: one that takes another's place must not repeat its numbers.
            seed = [self._fleet_seed, worker, next(self._started)]
            self._handles[worker] = self._remote.remote(task, first_index, seed, list(sys.path))
            self.places.pop(worker, None)

    def where(self, worker: int) -> str:
        """Says where an actor runs, for messages."""
        return str(self.places.get(worker, "a Ray actor without a place"))

    def shortage(self) -> str | None:
        """Says why an actor may find no place; None if there is room for one more."""
        return None if has_room(self._ray, self._demand) else room_text(self._ray, self._demand, len(self))

    def check_usable(self) -> None:
        """Raises FleetError in a forked copy of the caller, and after Ray was shut down."""
        if os.getpid() != self._caller_pid:
            raise FleetError(
                "This fleet was made by another process, of which this one is a forked copy: its actors "
                "answer only to that one. Make a new fleet here."
            )
        if not self._ray.is_initialized():
            raise FleetError("Ray was shut down, and the actors of this fleet with it. Make a new fleet.")

    # -- speaking -------------------------------------------------------------------------------------

    def call(self, worker: int, method: str, *args: Any) -> Ref:
        """Calls a method of an actor, which runs it once it has done all it was told before."""
        return getattr(self._handles[worker], method).remote(*args)

    def wait(self, refs: Sequence[Ref], number: int, seconds: float) -> tuple[list[Ref], list[Ref]]:
        """Waits at most ``seconds`` until so many calls are answered or never will be; returns these, and the rest."""
        ready, rest = self._ray.wait(list(refs), num_returns=number, timeout=seconds)
        return ready, rest

    def answers(self, refs: Sequence[Ref], workers: Sequence[int]) -> list[Any]:
        """Returns the answers of calls that were waited for; raises LostWorker if one will never come."""
        try:
            answers: list[Any] = self._ray.get(list(refs))
        except self._ray.exceptions.RayError:
            return [self._answer(ref, worker) for ref, worker in zip(refs, workers, strict=True)]
        return answers

    def _answer(self, ref: Ref, worker: int) -> Any:
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self.end_one(worker)  # Ray may only have lost sight of it
            raise LostWorker(worker, f"is gone, Ray says: {_brief(error)}") from None

    def has_answered(self, ref: Ref) -> bool:
        """Returns whether a call was answered before its actor was gone."""
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
        """Ends all actors within about ``timeout`` seconds; returns what environments raised in close()."""
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
    """Returns the last line of what Ray says, which tells why."""
    return textwrap.shorten(str(error).strip().splitlines()[-1], _LONGEST_CAUSE, placeholder=" ...").rstrip(".")


INTERVAL = 0.5
"""Seconds after which a waiting caller looks at its actors."""


@dataclass(frozen=True)
class Call:
    """What an actor was told, so that another can be told the same.

    Attributes:
        worker: The number of the actor.
        env_indices: The environments concerned.
        method: The name of the actor's method.
        args: The arguments of that method.
    """

    worker: int
    env_indices: range
    method: str
    args: tuple[Any, ...]


@final
class Watch:
    """Finds actors that are stuck.

    An actor works on the oldest call that it has not answered, so the time of that call is taken. It counts from when
    the call was first seen to be the oldest: a caller that looks seldom finds nobody stuck. What goes on inside an
    actor cannot be seen from here, so a call for several environments may take as long as all of them.
    """

    def __init__(self, actors: Actors, step_timeout: float | None) -> None:
        self._actors, self._step_timeout = actors, step_timeout
        self._seen: dict[int, tuple[Ref, float]] = {}
        self._warned: Ref = None
        self._last_look = 0.0
        self._clock = AwakeClock(INTERVAL)

    def is_due(self) -> bool:
        """Returns whether it is time to look at all actors, if others keep the caller from waiting."""
        return time.monotonic() - self._last_look > INTERVAL

    def look(self, unanswered: Iterable[tuple[Ref, Call]]) -> None:
        """Looks at all calls without an answer, the oldest first; raises LostWorker for a stuck actor, ended here."""
        self._last_look = time.monotonic()
        now = self._clock.now()
        oldest: dict[int, tuple[Ref, Call]] = {}
        for ref, call in unanswered:
            oldest.setdefault(call.worker, (ref, call))
        for worker, (ref, call) in oldest.items():
            seen, since = self._seen.get(worker, (None, now))
            if seen != ref:
                self._seen[worker] = ref, now
                continue
            self._judge(ref, call, now - since)

    def _judge(self, ref: Ref, call: Call, seconds: float) -> None:
        """Ends an actor that has been at a call for too long, or warns of it."""
        who = failures.in_words(call.env_indices)
        if self._step_timeout is None:
            if seconds > failures.STUCK_WARNING_AFTER and self._warned != ref:
                self._warned = ref
                warnings.warn(
                    f"Worker {call.worker} ({self._actors.where(call.worker)}, {who}) has not finished for "
                    f"{seconds:.0f} s. Pass step_timeout=seconds to have stuck actors ended.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        limit = self._step_timeout * len(call.env_indices)
        if seconds > limit:
            self._actors.end_one(call.worker)
            del self._seen[call.worker]
            each = "" if len(call.env_indices) == 1 else f", {self._step_timeout:g} s each"
            raise LostWorker(
                call.worker, f"was ended: {who} had not finished after {limit:g} s (step_timeout{each})", is_stuck=True
            )


_LOOK_AROUND = 0.5
_TELL_AFTER = 15.0
"""Seconds without a place after which the user is warned."""


@final
class Startup:
    """Waits for actors that start.

    Args:
        actors: All of the fleet.
        sizes: The number of environments of each.
        start_timeout: Seconds that an actor may take to find a place, and then for each environment; None: no limit.
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(
        self, actors: Actors, sizes: Sequence[int], start_timeout: float | None, check_wanted: Callable[[], None]
    ) -> None:
        self._actors, self._sizes, self._start_timeout = actors, sizes, start_timeout
        self._check_wanted = check_wanted
        self._told = False

    def envs_of(self, workers: Sequence[int]) -> list[EnvFace]:
        """Waits until these actors have made their environments, and returns what these show, in order.

        Raises the error of the first environment that could not be made. Raises LostWorker for the first actor that
        ended, or that took too long and is ended here.
        """
        placing = {self._actors.call(worker, "place"): worker for worker in workers}
        making = {self._actors.call(worker, "make"): worker for worker in workers}
        self._collect(placing, self._actors.places, self._look_for_places)
        answers: dict[int, bytes] = {}
        self._collect(making, answers, self._look_at_makers)
        return all_made({worker: pickle.loads(answer) for worker, answer in answers.items()})

    def _collect(
        self, calls: dict[Ref, int], answers: dict[int, Any], look: Callable[[list[int], float], None]
    ) -> None:
        """Puts the answers of calls into ``answers``; ``look`` is told who has not answered, and after how long."""
        clock, rest = AwakeClock(_LOOK_AROUND), list(calls)
        while rest:
            ready, rest = self._actors.wait(rest, 1, _LOOK_AROUND)
            came = [calls[ref] for ref in ready]
            answers.update(zip(came, self._actors.answers(ready, came), strict=True))
            self._check_wanted()
            look([calls[ref] for ref in rest], clock.now())

    def _look_for_places(self, homeless: list[int], seconds: float) -> None:
        if not homeless:
            return
        limit = self._start_timeout
        if limit is not None and seconds > limit:
            advice = self._actors.shortage() or "Ray may still be starting machines or installing packages."
            cause = f"had found no place after {limit:g} s (start_timeout). {advice}"
            self._actors.end_one(homeless[0])
            raise LostWorker(homeless[0], cause.rstrip("."), is_stuck=True)
        if seconds > _TELL_AFTER and not self._told and (shortage := self._actors.shortage()):
            self._told = True
            until = "for ever" if limit is None else f"up to {limit:g} s"
            warnings.warn(
                f"{len(homeless)} of {len(self._actors)} actors wait for a place. {shortage} They are waited for "
                f"{until} (start_timeout).",
                RuntimeWarning,
                stacklevel=2,
            )

    def _look_at_makers(self, busy: list[int], seconds: float) -> None:
        for worker in busy:
            if self._start_timeout is not None and seconds > self._start_timeout * self._sizes[worker]:
                self._actors.end_one(worker)
                cause = f"was ended: its environments were still being made after {seconds:.0f} s (start_timeout)"
                raise LostWorker(worker, cause, is_stuck=True)
