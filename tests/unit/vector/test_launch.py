"""Starting workers: how many cores there are, what workers inherit, and what the caller keeps."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import AsyncVectorEnv
from envfleet.testing.envs import CounterConfig, CounterEnv, EnvFn, endless_fns
from envfleet.vector.runtime import usable_cores

START_METHODS = ("fork", "spawn", "forkserver")

# --- cores -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # one core and a half are worth two workers
        ("50000 100000\n", 1),
        ("1000 100000\n", 1),
        ("1600000 100000\n", 8),  # more than there are
        ("25000 50000\n", 1),
        (None, 8),  # no such file: no container, or another kind
        ("", 8),
    ],
)
def test_a_containers_quota_counts(monkeypatch: pytest.MonkeyPatch, quota: str | None, cores: int) -> None:
    def read_text(path: Path) -> str:
        assert str(path) == "/sys/fs/cgroup/cpu.max"
        if quota is None:
            raise FileNotFoundError(path)
        return quota

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(Path, "read_text", read_text)
    assert usable_cores() == cores


def test_the_affinity_of_this_process_counts() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cores() == 1
        with AsyncVectorEnv(endless_fns(3)) as envs:
            assert len(envs.processes) == 1
    finally:
        os.sched_setaffinity(0, allowed)


# --- what workers inherit --------------------------------------------------------------------------------


class CuriousEnv(CounterEnv):
    """Says what it sees around it."""

    def environ(self, name: str) -> str | None:
        return os.environ.get(name)

    def main_file(self) -> str | None:
        return getattr(sys.modules["__main__"], "__file__", None)

    def process(self) -> tuple[str, bool]:
        current = multiprocessing.current_process()
        return current.name, bool(current.daemon)


def curious_fns(num_envs: int) -> list[EnvFn]:
    return [lambda i=i: CuriousEnv(CounterConfig(index=i)) for i in range(num_envs)]  # type: ignore[misc]


@pytest.mark.parametrize("context", START_METHODS)
def test_variables_of_mpi_are_hidden_from_workers_and_kept_by_the_caller(
    monkeypatch: pytest.MonkeyPatch, context: str
) -> None:
    for name in "OMPI_COMM_WORLD_RANK", "PMI_RANK", "ENVFLEET_TEST":
        monkeypatch.setenv(name, "3")
    with AsyncVectorEnv(curious_fns(2), context=context, num_workers=2) as envs:
        assert envs.call("environ", "OMPI_COMM_WORLD_RANK") == (None, None)
        assert envs.call("environ", "PMI_RANK") == (None, None)
        if context != "forkserver":  # whose server may have been started before
            assert envs.call("environ", "ENVFLEET_TEST") == ("3", "3")
    assert os.environ["OMPI_COMM_WORLD_RANK"] == os.environ["PMI_RANK"] == "3"


@pytest.mark.parametrize("context", START_METHODS)
def test_the_main_module_is_in_its_place_afterwards(context: str) -> None:
    main = sys.modules["__main__"]
    with AsyncVectorEnv(curious_fns(2), context=context, num_workers=1) as envs:
        assert sys.modules["__main__"] is main
        here = getattr(main, "__file__", None)
        assert envs.call("main_file") == ((here, here) if context == "fork" else (None, None))


@pytest.mark.parametrize("daemon", [True, False])
def test_workers_are_named_and_daemonic_as_asked(daemon: bool) -> None:
    with AsyncVectorEnv(curious_fns(2), num_workers=2, daemon=daemon) as envs:
        assert envs.call("process") == (("envfleet-worker-0", daemon), ("envfleet-worker-1", daemon))
        assert [process.name for process in envs.processes] == ["envfleet-worker-0", "envfleet-worker-1"]


def test_a_start_that_fails_leaves_no_worker_and_the_main_module() -> None:
    main, lock = sys.modules["__main__"], threading.Lock()
    before = set(multiprocessing.active_children())
    fns: list[Any] = [*endless_fns(2), lambda: lock]
    with pytest.raises(TypeError, match="lock"):
        AsyncVectorEnv(fns, context="spawn", num_workers=3)
    assert sys.modules["__main__"] is main
    for process in set(multiprocessing.active_children()) - before:
        process.join(10)
        assert not process.is_alive()


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'thread'"):
        AsyncVectorEnv(endless_fns(1), context="thread")


# --- random numbers --------------------------------------------------------------------------------------

LOTS = """
import sys
import numpy as np
from envfleet import AsyncVectorEnv
from envfleet.testing.envs import LotteryEnv
np.random.seed(int(sys.argv[1]))
for _ in range(2):
    with AsyncVectorEnv([LotteryEnv] * 3, context=sys.argv[2], num_workers=2) as envs:
        print(envs.get_attr("lots"))
print(np.random.random())
"""


def lots(seed: int, context: str) -> list[str]:
    command = [sys.executable, "-c", LOTS, str(seed), context]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_constructors_draw_the_same_again_in_a_run_with_the_same_seed() -> None:
    first = lots(5, "fork")
    assert lots(5, "fork") == first
    assert lots(5, "spawn") == first  # however the workers are started
    assert lots(6, "fork")[:2] != first[:2]
    assert first[0] != first[1]  # two fleets of one run
    np.random.seed(5)
    assert first[2] == str(np.random.random())  # the caller's own generator was left alone


def test_torch_is_seeded_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        seeds: list[int] = []  # noqa: RUF012

        @classmethod
        def manual_seed(cls, seed: int) -> None:
            cls.seeds.append(seed)

    class TorchEnv(CounterEnv):
        def torch_seeds(self) -> list[int]:
            return list(Torch.seeds)

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    with AsyncVectorEnv([TorchEnv] * 2, context="fork", num_workers=2) as envs:
        first, second = envs.call("torch_seeds")
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert Torch.seeds == []


def test_the_callers_generators_are_left_alone() -> None:
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index, union-attr]
    with AsyncVectorEnv(endless_fns(2), context="fork", num_workers=2, caller_works=True) as envs:
        envs.reset()
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # type: ignore[index, union-attr]


OTHER_GENERATOR = """
import numpy as np
from envfleet import AsyncVectorEnv
from envfleet.testing.envs import endless_fns
np.random.set_bit_generator(np.random.PCG64(1))
with AsyncVectorEnv(endless_fns(2)) as envs:
    print(envs.reset()[0].shape)
"""


def test_another_global_bit_generator_will_do() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_GENERATOR], capture_output=True, text=True, timeout=60)
    assert done.stdout == "(2, 5)\n", done.stderr
