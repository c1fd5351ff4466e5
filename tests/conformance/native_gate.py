"""A native fleet whose environments stay in a step, or fail in it, when told to."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from envfleet import make_vec, native
from envfleet.vector.vector_env import FleetVectorEnv

QUICK, STUCK, FAIL = 0, 1, 2


class Gate:
    """A fleet whose environments stay in a step with action ``STUCK`` until they are let out."""

    def __init__(self, library: Path, **vector_kwargs: Any) -> None:
        self._functions = ctypes.CDLL(str(library))
        self._functions.gate_set(0)
        vector_kwargs = {"threads": 2, "batch_size": 3, **vector_kwargs}
        self.envs: FleetVectorEnv = make_vec(native.load(library), 4, vector_kwargs=vector_kwargs)

    def send(self, action: int, *env_ids: int) -> None:
        self.envs.send(np.full(len(env_ids), action), np.array(env_ids))

    def trap(self, env_id: int) -> None:
        """Has one stuck, in a thread other than this one."""
        before = self.inside()
        self.send(STUCK, env_id)
        wait_until(lambda: self.inside() > before, "no thread began to work")

    def inside(self) -> int:
        """How many are stuck."""
        return int(self._functions.gate_inside())

    def open(self) -> None:
        self._functions.gate_set(1)

    def open_later(self, seconds: float = 0.2) -> None:
        threading.Timer(seconds, self.open).start()


def wait_until(happened: Any, otherwise: str) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.001)


def ids(result: Any) -> list[int]:
    return sorted(result[-1]["env_id"].tolist())
