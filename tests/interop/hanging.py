"""A program that makes many fleets of environments with threads of their own, and loses some of their workers.

python tests/interop/hanging.py CONTEXT COUNT

`fork`: the program has imported torch and JAX and computes with neither, as nobody's threads survive a fork. Any other
start method: a thread of the program computes with both for as long as it runs. In the environments, one computes with
torch on two threads and one with JAX, in every step.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

PATIENCE = 300
"""Seconds for one fleet, after which every thread says where it is, and the program ends."""


class TorchEnv(gymnasium.Env[Any, Any]):
    """Multiplies matrices on two threads."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(2)
        self._numbers = torch.ones(300, 300)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation(), 1.0, False, False, {}

    def _observation(self) -> Any:
        numbers = self._numbers @ self._numbers + float(self.np_random.random())
        return numbers[0, :4].numpy()


class JaxEnv(TorchEnv):
    """The same with JAX."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        self._multiply = jax.jit(lambda numbers, more: numbers @ numbers + more)
        self._numbers = jnp.ones((300, 300))

    def _observation(self) -> Any:
        return np.array(self._multiply(self._numbers, float(self.np_random.random())))[0, :4]


def keep_computing(over: threading.Event) -> None:
    """Keeps torch's and JAX's threads busy."""
    ours = TorchEnv(), JaxEnv()
    for env in ours:
        env.reset(seed=0)
    while not over.wait(0.005):
        for env in ours:
            env.step(0)


def live(context: str | None, number: int) -> None:
    """The whole life of a fleet; every third loses a worker."""
    from envfleet import AsyncVectorEnv

    kinds = (TorchEnv, JaxEnv) if number % 2 else (JaxEnv, TorchEnv)
    workers = 1 + number % 2
    with AsyncVectorEnv(kinds, context=context, num_workers=workers, on_failure="restart", step_timeout=120) as envs:
        observations, _ = envs.reset(seed=number)
        for step in range(4):
            if step == 2 and number % 3 == 0:
                os.kill(envs.processes[-1].pid or 0, signal.SIGKILL)
            observations, *_ = envs.step(np.zeros(2, np.int64))
        assert np.isfinite(observations).all()
        assert (observations >= 300).all()


def main() -> None:
    """Make so many fleets by a start method."""
    context, count = sys.argv[1], int(sys.argv[2])
    import jax  # noqa: F401
    import torch  # noqa: F401

    # Not faulthandler's own timer: that is a thread, and a program that forks is to have none.
    faulthandler.register(signal.SIGALRM, chain=True)
    over = threading.Event()
    thread = threading.Thread(target=keep_computing, args=(over,))
    print(0, flush=True)
    if context != "fork":
        thread.start()
    try:
        for number in range(count):
            signal.alarm(PATIENCE)
            live(None if context == "default" else context, number)
            print(number + 1, flush=True)
    finally:
        signal.alarm(0)
        over.set()
        if context != "fork":
            thread.join()


if __name__ == "__main__":
    main()
