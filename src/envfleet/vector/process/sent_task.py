"""A worker's task on its way to a process that has not inherited the caller's memory."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from envfleet.vector.failures import Failure
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.worker import WorkerTask

_NOTE = (
    "What makes it was sent to a worker process and could not be unpickled there: files and modules that it refers to "
    "must be found from that process too, which is in the same folder and has the same sys.path."
)

_being_loaded = 0


@final
class _Mark:
    """When it is unpickled, the environment with this number is about to be."""

    def __init__(self, env_index: int) -> None:
        self._env_index = env_index

    def __reduce__(self) -> tuple[Any, ...]:
        return _note_loading, (self._env_index,)


def _note_loading(env_index: int) -> None:
    global _being_loaded
    _being_loaded = env_index


def dump_task(task: WorkerTask) -> bytes:
    """Pickles a task so that whoever cannot unpickle it can say which environment that is about."""
    shard = task.shard
    marked = [(_Mark(index), env_fn) for index, env_fn in enumerate(shard.env_fns, shard.first_index)]
    payload = dumps_by_value((replace(task, shard=replace(shard, env_fns=())), marked))
    return pickle.dumps((present_folder(), shard.first_index, payload))


def present_folder() -> str:
    """Where we are; nothing if that has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def load_task(parcel: bytes) -> WorkerTask | Failure:
    """The task, in the folder in which it was pickled; or why it cannot be had."""
    folder, first_index, payload = pickle.loads(parcel)
    with suppress(OSError):
        os.chdir(folder)
    _note_loading(first_index)
    try:
        task: WorkerTask
        task, marked = pickle.loads(payload)
    except Exception as error:
        failure = Failure.of(error, _being_loaded, "make")
        failure.note = _NOTE
        return failure
    return replace(task, shard=replace(task.shard, env_fns=[env_fn for _, env_fn in marked]))
