"""Fleets that fail on command, driven beside an oracle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from soaking.faulty import Fault, FaultyEnv, Habits, faulty_fns
from soaking.oracle import Lone

from envfleet.testing import assert_same
from envfleet.testing.reference import stack_infos, stack_items
from envfleet.vector import AsyncVectorEnv

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

NUM_WORKERS = 2
# Generous for a loaded machine, short against the hang it stands for.
SOON = 10.0
# Short, but longer than a loaded machine keeps a worker from getting on.
STEP_TIMEOUT = 0.6

PLACES = ("step", "reset", "call", "send", "async_reset")

DEADLY = {Fault.EXIT: "exit code 41", Fault.KILL: "SIGKILL", Fault.CRASH: "SIGSEGV"}
STUCK = (Fault.STOP, Fault.LOOP, Fault.HOLD_GIL)
LOST = {**DEADLY, **dict.fromkeys(STUCK, f"had not finished after {STEP_TIMEOUT} s")}
BAD_OUTPUTS = {
    Fault.BAD_SHAPE: r"observation\['draw'\]: expected shape \(3,\), got \(1,\)",
    Fault.BAD_DTYPE: r"observation\['count'\]: expected dtype int64, got float64",
    Fault.BAD_KEY: r"expected the keys \['count', 'draw'\], got \['count', 'drawn'\]",
    Fault.NAN: r"observation\['draw'\]: expected no NaN .* at \[\(1,\)\]",
    Fault.BAD_REWARD: "reward: expected",
}


def make(envs_a_worker: int = 3, context: str = "fork", env_fns: Sequence[Any] = (), **kwargs: Any) -> AsyncVectorEnv:
    """A fleet of two workers."""
    fns = env_fns or faulty_fns(NUM_WORKERS * envs_a_worker)
    return AsyncVectorEnv(fns, context=context, num_workers=NUM_WORKERS, check_nan=True, **kwargs)


@contextmanager
def fleet(*args: Any, **kwargs: Any) -> Iterator[AsyncVectorEnv]:
    """The same, closed whatever happens."""
    envs = make(*args, **kwargs)
    try:
        yield envs
    finally:
        envs.close()
        vars(envs).clear()  # pytest keeps the last test's arguments longer than we look for what is left behind


def zeros(envs: AsyncVectorEnv, faults: dict[int, Fault] | None = None) -> Any:
    """Harmless actions, but for those told to fail."""
    actions = np.zeros(envs.num_envs, np.int64)
    for env, fault in (faults or {}).items():
        actions[env] = fault
    return actions


def options(envs: AsyncVectorEnv, victim: int, fault: Fault) -> list[Any]:
    """Reset options that tell one environment to fail."""
    return [{"fault": int(fault)} if env == victim else None for env in range(envs.num_envs)]


def inflict(envs: AsyncVectorEnv, where: str, victim: int, fault: Fault) -> Any:
    """Have one environment fail somewhere; returns what came out, until all have come."""
    if where == "step":
        return envs.step(zeros(envs, {victim: fault}))
    if where == "reset":
        return envs.reset(options=options(envs, victim, fault))
    if where == "call":
        return envs.call("suffer", int(fault), indices=[victim])
    envs.send(zeros(envs, {victim: fault})) if where == "send" else envs.async_reset(
        options=options(envs, victim, fault)
    )
    return [envs.recv() for _ in range(envs.num_envs)]


class ClosingEnv(FaultyEnv):
    """Leaves a mark when it is closed."""

    def __init__(self, habits: Habits, marks: str) -> None:
        super().__init__(habits)
        self.marks = marks

    def close(self) -> None:
        Path(self.marks, str(self.index)).touch()


class OnceEnv(FaultyEnv):
    """Obeys an order to fail in `reset` that names a mark only once: the mark outlives the process."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if options and "mark" in options:
            try:
                Path(options["mark"]).touch(exist_ok=False)
            except FileExistsError:
                options = None
        return super().reset(seed=seed, options=options)


def once_fns(num_envs: int) -> list[Callable[[], FaultyEnv]]:
    """As `faulty_fns`, of environments that recover."""
    return [partial(OnceEnv, Habits(index, 5 + index)) for index in range(num_envs)]


def siblings(envs: AsyncVectorEnv, victim: int) -> list[int]:
    """All environments of the victim's worker."""
    share = envs.num_envs // NUM_WORKERS
    first = victim // share * share
    return list(range(first, first + share))


@contextmanager
def soon(seconds: float = SOON) -> Iterator[None]:
    """Assert that the block takes no longer than this."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def wait_until_its_pipe_is_full(pid: int) -> None:
    """Wait until a worker sleeps in the kernel for room to write."""
    deadline = time.monotonic() + SOON
    while (place := Path(f"/proc/{pid}/wchan").read_text()) != "sock_alloc_send_pskb":
        assert time.monotonic() < deadline, f"the worker does not wait for room to write, but in {place!r}"


class Oracle:
    """The whole fleet by hand: each environment alone, told who is lost and when."""

    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, seed: int = 0) -> None:
        self.space = FaultyEnv(faulty_fns(1)[0]().habits).observation_space
        self.lone = [Lone(env_fn, mode) for env_fn in faulty_fns(num_envs)]
        self.reset(seed)

    def reset(self, seed: int | None = None, lost: Sequence[int] = ()) -> list[Any]:
        """All environments reset, some of them lost on the way."""
        rows = []
        for env, lone in enumerate(self.lone):
            own = None if seed is None else seed + env
            rows.append(lone.restart_and_reset(own) if env in lost else lone.reset(own))
        return rows

    def assert_step(self, result: Any, actions: Any, lost: Sequence[int] = (), ids: Any = None) -> None:
        """Assert that a step (or what recv gave) is what these environments say, those lost telling of it."""
        *outputs, infos = result
        ids = range(len(self.lone)) if ids is None else ids
        rows = [self.lone[env].restart() if env in lost else self.lone[env].step(actions[env]) for env in ids]
        causes = infos.pop("restart_cause", None)
        told = infos.pop("restarted", np.zeros(len(rows), np.bool_))
        for mask in ("_restart_cause", "_restarted"):
            assert_same(infos.pop(mask, told), told)
        assert [env for env, one in zip(ids, told, strict=True) if one] == [env for env in ids if env in lost]
        assert all(causes[place] for place in np.flatnonzero(told))
        observations, rewards, terminated, truncated, own = zip(*rows, strict=True)
        assert_same(outputs[0], stack_items(self.space, observations), "observations")
        assert_same(outputs[1], np.array(rewards), "rewards")
        assert_same(outputs[2], np.array(terminated), "terminated")
        assert_same(outputs[3], np.array(truncated), "truncated")
        assert_same(infos, stack_infos(own), "infos")

    def assert_steps(self, envs: AsyncVectorEnv, count: int) -> None:
        """Assert that both go on alike."""
        for number in range(count):
            actions = np.full(len(self.lone), number % 10)
            self.assert_step(envs.step(actions), actions)

    def assert_reset(self, result: Any, rows: list[Any], lost: Sequence[int] = ()) -> None:
        """Assert that a reset is what these environments say."""
        observations, infos = result
        told = infos.get("restarted", np.zeros(len(rows), np.bool_))
        assert np.flatnonzero(told).tolist() == list(lost)
        assert_same(observations, stack_items(self.space, [row[0] for row in rows]))
        assert_same(infos["episode"], np.array([row[1]["episode"] for row in rows]))
