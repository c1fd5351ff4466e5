"""As much of Ray as envfleet uses, with forked processes for actors: a hundred lines that start in milliseconds.

A real actor takes a second to start, the whole contract makes hundreds. What Ray itself does, and that this does the
same, is the business of test_ray.py.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

CPUS = 4.0


class RayError(Exception):
    """Anything that Ray itself has to complain of."""


class _Ref:
    """A promise; ``outcome`` is ``(whether it went well, answer or error)`` once it is known."""

    def __init__(self, actor: _Actor) -> None:
        self.actor = actor
        self.outcome: tuple[bool, Any] | None = None


class _Actor:
    """A forked process that answers calls in order."""

    def __init__(self, make: Callable[[], Any]) -> None:
        fork = multiprocessing.get_context("fork")
        self.connection, theirs = fork.Pipe()
        self.process = fork.Process(target=_serve, args=(make, theirs, self.connection), daemon=True)
        self.process.start()
        theirs.close()
        self.waiting: list[_Ref] = []

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *args: self._call(method, args))

    def _call(self, method: str, args: tuple[Any, ...]) -> _Ref:
        ref = _Ref(self)
        self.waiting.append(ref)
        try:
            self.connection.send_bytes(pickle.dumps((method, args)))
        except OSError:
            self.give_up()
        return ref

    def pull(self) -> None:
        """Take over the answers that are there."""
        try:
            while self.waiting and self.connection.poll():
                self.waiting[0].outcome = pickle.loads(self.connection.recv_bytes())
                self.waiting.pop(0)
        except (EOFError, OSError):
            self.give_up()

    def give_up(self) -> None:
        """The process has ended: no more answers will come."""
        for ref in self.waiting:
            ref.outcome = False, RayError("The actor died unexpectedly.\nIts process ended.")
        self.waiting.clear()


def _serve(make: Callable[[], Any], connection: Any, callers_end: Any) -> None:
    callers_end.close()
    actor = make()
    while True:
        try:
            method, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            os._exit(0)
        try:
            answer = True, getattr(actor, method)(*args)
        except BaseException as error:
            answer = False, RayError(f"{type(error).__name__}: {error}")
        connection.send_bytes(pickle.dumps(answer))


def is_initialized() -> bool:
    """It always is."""
    return True


def remote(**options: Any) -> Callable[[Any], Any]:
    """As Ray's decorator with arguments."""
    assert options.keys() <= {"num_cpus", "resources", "max_restarts", "max_task_retries"}
    return lambda actor: SimpleNamespace(remote=lambda *args: _Actor(lambda: actor(*args)))


def wait(refs: Sequence[_Ref], *, num_returns: int, timeout: float) -> tuple[list[_Ref], list[_Ref]]:
    """Those that are answered, at most ``num_returns`` and in the order given, and the rest."""
    assert 0 < num_returns <= len(refs) == len(set(refs))
    deadline = time.monotonic() + timeout
    while True:
        actors = {ref.actor for ref in refs if ref.outcome is None}
        for actor in actors:
            actor.pull()
        ready = [ref for ref in refs if ref.outcome is not None][:num_returns]
        left = deadline - time.monotonic()
        if len(ready) == num_returns or left <= 0:
            return ready, [ref for ref in refs if ref not in ready]
        multiprocessing.connection.wait([actor.connection for actor in actors], left)


def get(refs: Any) -> Any:
    """The answer, or the answers."""
    if isinstance(refs, list):
        return [get(ref) for ref in refs]
    wait([refs], num_returns=1, timeout=60)
    went_well, answer = refs.outcome
    if not went_well:
        raise answer
    return answer


def kill(actor: _Actor) -> None:
    """Ends an actor at once."""
    actor.process.kill()
    actor.process.join()
    actor.give_up()
    actor.connection.close()


def cluster_resources() -> dict[str, float]:
    """What there is."""
    return {"CPU": CPUS}


available_resources = cluster_resources
exceptions = SimpleNamespace(RayError=RayError)
util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.1")
