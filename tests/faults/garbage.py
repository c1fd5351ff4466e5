"""A program that has environments write garbage into the block they share with the caller, in many ways.

``python garbage.py first_seed last_seed context`` ends with 0 if the caller survived all of it.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from envfleet import AsyncVectorEnv, FleetError
from envfleet.errors import AlreadyPendingCallError, NoAsyncCallError, ResetNeeded

NUM_ENVS, NUM_WORKERS, STEPS = 5, 2, 12
CONTROL_BYTES = 1024
PATTERNS = ("random", "ones", "zeros", "small numbers")


def block() -> tuple[int, int]:
    """Where the block lies in this process, and how long it is."""
    found = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*memfd:envfleet", Path("/proc/self/maps").read_text(), re.MULTILINE)
    assert found is not None, "this process shares no block"
    first, last = (int(word, 16) for word in found.groups())
    return first, last - first


def garbage(pattern: str, size: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    if pattern == "random":
        return rng.bytes(size)
    if pattern == "small numbers":
        return bytes(rng.integers(0, 3, size // 4, np.uint32).tobytes())
    return {"ones": b"\xff", "zeros": b"\0"}[pattern] * size


def scribble(pattern: str, part: str, seed: int) -> None:
    start, size = block()
    length = size if part == "all" else min(size, CONTROL_BYTES)
    ctypes.memmove(start, garbage(pattern, length, seed), length)


class Scribbler(gymnasium.Env[Any, Any]):
    """Has an info and a time limit; overwrites the block at one of its steps, perhaps again and again from then on."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seed: int, at: int | None) -> None:
        self._seed, self._at, self._steps = seed, at, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps == self._at:
            self._begin()
        ended = self._steps % 5 == 0
        return np.zeros(2, np.float32), 1.0, ended, False, {"steps": self._steps, "late": self._steps > 3}

    def _begin(self) -> None:
        pattern, part = PATTERNS[self._seed % 4], ("all", "control")[self._seed // 4 % 2]
        scribble(pattern, part, self._seed)
        if self._seed // 8 % 3 == 0:
            threading.Thread(target=self._go_on, args=(pattern, part), daemon=True).start()

    def _go_on(self, pattern: str, part: str) -> None:
        while True:
            time.sleep(0.01)
            scribble(pattern, part, self._seed)


def use(envs: AsyncVectorEnv, seed: int) -> None:
    actions = np.zeros(NUM_ENVS, np.int64)
    envs.reset(seed=seed)
    for _ in range(STEPS):
        try:
            if seed % 3 == 0:
                envs.send(actions)
                for _ in range(NUM_ENVS):
                    envs.recv()
            else:
                envs.step(actions)
        except (AlreadyPendingCallError, NoAsyncCallError, ResetNeeded, FleetError) as error:
            print(f"  {type(error).__name__}: {str(error).splitlines()[0][:170]}")
            envs.reset()


def survive(seed: int, context: str) -> None:
    rng = np.random.default_rng(seed)
    culprit, at = int(rng.integers(NUM_ENVS)), int(rng.integers(1, 8))
    env_fns = [partial(Scribbler, seed, at if env == culprit else None) for env in range(NUM_ENVS)]
    on_failure: Any = ("raise", "restart")[seed // 2 % 2]
    envs = AsyncVectorEnv(
        env_fns,
        context=context,
        num_workers=NUM_WORKERS,
        batch_size=1,
        on_failure=on_failure,
        max_restarts=3,
        autoreset_mode=("NextStep", "SameStep")[seed // 5 % 2],
    )
    print(f"seed {seed}: environment {culprit} at its step {at}, {on_failure}")
    try:
        use(envs, seed)
    except FleetError as error:
        print(f"  ended by {type(error).__name__}")
    finally:
        envs.close(timeout=1)


def main() -> None:
    warnings.simplefilter("ignore")
    first, last, context = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for seed in range(first, last):
        survive(seed, context)


if __name__ == "__main__":
    main()
