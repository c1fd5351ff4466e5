"""Measurements run in a separate process, which can be ended at any time, whatever the environment is doing."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envfleet._single import make_env, spec_of
from envfleet.errors import EnvRaisedError, WorkerError
from envfleet.make import make_vec
from envfleet.plan import StepCost, measure_step
from envfleet.tuning.setups import EnvCost, Setup
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv
from envfleet.vector.failures import Failure, as_error
from envfleet.vector.fused_env import AnyEnv

_NUM_SAMPLES = 128
_SAMPLING_SECONDS = 0.2
_SLOW = 0.25
"""If a step takes more seconds than this, one step is measured and no more."""

_CLOSE_SECONDS = 2.0


@dataclass(frozen=True)
class Turn:
    """The result of one turn of a candidate; ``ready`` is the time until it could step."""

    steps: int
    seconds: float
    ready: float


class TooSlow(Exception):  # noqa: N818  not to be shown: whoever catches it knows what was too slow
    """The laboratory did not answer in time, and was ended."""


@final
class Laboratory:
    """The caller's side: asks for measurements, and stops those that take too long.

    Args:
        env: The first argument of ``make_vec``.
        env_kwargs: The environment's arguments.
        longest: The longest time that anyone waits for an answer, in seconds.
    """

    def __init__(self, env: Any, env_kwargs: Mapping[str, Any], longest: float) -> None:
        self._make_bench = partial(Bench, env, env_kwargs)
        self._longest = longest
        self._process: AsyncVectorEnv | None = None

    def ask(self, measurement: str, *args: Any, timeout: float) -> Any:
        """Returns the result of a method of Bench. Raises its exception, or TooSlow after ``timeout`` seconds."""
        if self._process is None:
            # Not a daemon, which may not start processes; the step_timeout keeps the engine from warning of long steps.
            self._process = AsyncVectorEnv(
                [self._make_bench], num_workers=1, daemon=False, step_timeout=2 * self._longest
            )
        try:
            self._process.call_async(measurement, *args)
            return self._process.call_wait(timeout)[0]
        except multiprocessing.TimeoutError:
            self.close(at_once=True)
            raise TooSlow from None
        except EnvRaisedError as error:
            failure = error.__cause__ or error
        except WorkerError:  # it has crashed; the next one who asks gets a new one
            self.close(at_once=True)
            raise
        raise failure  # out here, where it does not look like a mistake in handling another

    def close(self, *, at_once: bool = False) -> None:
        """Ends the process. Unless ``at_once`` is set, it may close its environments first."""
        process, self._process = self._process, None
        if process is not None:
            process.close(timeout=_CLOSE_SECONDS, terminate=at_once)


@final
class Bench(gymnasium.Env[Any, Any]):
    """The worker's side. Its methods measure. It is an environment only so that a worker can hold it."""

    observation_space = spaces.Discrete(1)
    action_space = spaces.Discrete(1)

    def __init__(self, env: Any, env_kwargs: Mapping[str, Any]) -> None:
        self._env, self._env_kwargs = env, dict(env_kwargs)
        self._env_fn = partial(make_env, spec_of(env), self._env_kwargs, (), {})

    def _make(self, setup: Setup) -> FleetVectorEnv:
        return make_vec(self._env, setup.num_envs, setup.backend, dict(setup.vector_kwargs), **self._env_kwargs)

    def cost(self) -> EnvCost:
        """Returns the cost of one environment. A broken one raises as in ``make_vec``, ``reset`` or ``step``."""
        self._first_steps()  # for the first one of its kind, modules are imported and files are read
        cost = self._first_steps()
        if cost.step.wall > _SLOW:
            return cost
        with _blamed_on_the_environment():
            return replace(cost, step=measure_step(self._env_fn))

    def _first_steps(self) -> EnvCost:
        start = time.perf_counter()
        with self._make(Setup(1, "sync")) as envs:
            made = time.perf_counter()
            envs.reset(seed=0)
            ready = time.perf_counter()
            return EnvCost(made - start, ready - made, _timed_step(envs, next(_samples(envs.action_space))))

    def bare(self, lead_in: float, seconds: float) -> Turn:
        """Measures one environment alone, in a plain loop."""
        start = time.perf_counter()
        with _blamed_on_the_environment(), closing(self._env_fn()) as env:
            env.reset(seed=0)
            ready = time.perf_counter() - start
            actions = _samples(env.action_space)
            if lead_in:
                _step_alone(env, actions, lead_in)
            return Turn(*_step_alone(env, actions, seconds), ready)

    def fleet(self, setup: Setup, lead_in: float, seconds: float) -> Turn:
        """Measures all environments, with the given setup."""
        start = time.perf_counter()
        with self._make(setup) as envs:
            envs.reset(seed=0)
            ready = time.perf_counter() - start
            loop = _Lockstep(envs) if setup.first_ready is None else _FirstReady(envs, setup.first_ready)
            if lead_in:
                loop.run(lead_in)
            return Turn(*loop.run(seconds), ready)


@contextmanager
def _blamed_on_the_environment() -> Iterator[None]:
    """Turns errors of an environment outside a fleet into those that a fleet raises."""
    try:
        yield
    except Exception as error:
        raise as_error(Failure.of(error, 0, "step"), worker=None) from error


def _samples(space: Space[Any]) -> Iterator[Any]:
    """Returns random actions in an endless cycle. They are sampled now, so that sampling takes no time later."""
    space = deepcopy(space)  # an environment's own may be shared with others
    space.seed(0)
    deadline = time.perf_counter() + _SAMPLING_SECONDS
    samples = [space.sample()]
    while len(samples) < _NUM_SAMPLES and time.perf_counter() < deadline:
        samples.append(space.sample())
    return cycle(samples)


def _timed_step(envs: FleetVectorEnv, action: Any) -> StepCost:
    wall, cpu = time.perf_counter(), time.process_time()
    envs.step(action)
    return StepCost(time.perf_counter() - wall, time.process_time() - cpu)


def _step_alone(env: AnyEnv, actions: Iterator[Any], seconds: float) -> tuple[int, float]:
    step, clock = env.step, time.perf_counter
    start = clock()
    count = 0
    while True:
        _, _, terminated, truncated, _ = step(next(actions))
        count += 1
        if terminated or truncated:
            env.reset()
        now = clock()
        if now - start >= seconds:
            return count, now - start


@final
class _Lockstep:
    """Steps all environments at once."""

    def __init__(self, envs: FleetVectorEnv) -> None:
        self._envs, self._actions = envs, _samples(envs.action_space)
        self._resets_take_rows = _resets_take_rows(envs)
        self._resting = 0

    def run(self, seconds: float) -> tuple[int, float]:
        """Returns the number of steps and the seconds they took; all environments step at least once."""
        step, actions, num_envs, clock = self._envs.step, self._actions, self._envs.num_envs, time.perf_counter
        start = clock()
        count = 0
        while True:
            _, _, terminated, truncated, _ = step(next(actions))
            count += num_envs - self._resting
            if self._resets_take_rows:
                self._resting = int(np.count_nonzero(terminated | truncated))
            now = clock()
            if now - start >= seconds:
                return count, now - start


@final
class _FirstReady:
    """Steps the environments that are ready."""

    def __init__(self, envs: FleetVectorEnv, first_ready: int) -> None:
        self._envs, self._actions = envs, _samples(batch_space(envs.single_action_space, first_ready))
        self._resets_take_rows = _resets_take_rows(envs)
        self._resting = np.zeros(envs.num_envs, np.bool_)
        envs.send(next(_samples(envs.action_space)))

    def run(self, seconds: float) -> tuple[int, float]:
        """Returns the number of results and the seconds they took; there is at least one batch."""
        recv, send, actions, clock = self._envs.recv, self._envs.send, self._actions, time.perf_counter
        start = clock()
        count = 0
        while True:
            _, _, terminated, truncated, infos = recv()
            env_ids = infos["env_id"]
            send(next(actions), env_ids)
            count += len(env_ids) - int(np.count_nonzero(self._resting[env_ids]))
            if self._resets_take_rows:
                self._resting[env_ids] = terminated | truncated
            now = clock()
            if now - start >= seconds:
                return count, now - start


def _resets_take_rows(envs: FleetVectorEnv) -> bool:
    return envs.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP
