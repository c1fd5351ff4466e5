"""What environments leave behind, and what cannot be had: closing stays quick, and errors say whose fault it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleets import soon
from processes import still_running
from soaking.faulty import FaultyEnv, Habits, faulty_fns

from envfleet import AsyncVectorEnv
from envfleet.errors import EnvRaisedError


class ParentEnv(FaultyEnv):
    """Leaves a child behind that holds everything open that can be."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        result[1]["child"] = child
        return result


def test_a_child_that_an_environment_left_behind_does_not_keep_close_waiting() -> None:
    envs = AsyncVectorEnv([partial(ParentEnv, Habits(index)) for index in range(2)], context="fork", num_workers=2)
    children = envs.reset(seed=0)[1]["child"]
    try:
        with soon(4):  # of the five that it has
            envs.close()
        assert [process.exitcode for process in envs.processes] == [0, 0]
    finally:
        for child in children:
            os.kill(int(child), 9)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_closed_fleet_holds_no_descriptors(context: str) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    envs = AsyncVectorEnv(faulty_fns(4), context=context, num_workers=2)
    envs.reset()
    envs.close()
    assert count() <= before + 1  # the block's: observations may lie in it
    assert [process.exitcode for process in envs.processes] == [0, 0]
    assert not any(process.is_alive() for process in envs.processes)


class Relative:
    """Makes an environment from a file that it looks for when it is unpickled."""

    def __init__(self, index: int, file: str) -> None:
        self.index, self.file = index, file

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        Path(self.file).read_text()

    def __call__(self) -> FaultyEnv:
        return FaultyEnv(Habits(self.index))


def test_a_task_that_cannot_be_unpickled_names_the_environment_and_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)  # where workers are, too
    fns = [Relative(index, "missing" if index == 2 else "here") for index in range(4)]
    with pytest.raises(EnvRaisedError, match=r"(?s)Environment 2 .*could not be unpickled") as caught:
        AsyncVectorEnv(fns, context="spawn", num_workers=1)
    assert isinstance(caught.value, FileNotFoundError)
    assert "missing" in str(caught.value)


FORBIDDEN = """
import ctypes, errno, os, struct, sys
from envfleet.testing.envs import endless_fns
from envfleet.vector import AsyncVectorEnv

number = {"pidfd_open": 434, "sched_getaffinity": 204, "socketpair": 53}[sys.argv[1]]
program = b"".join(struct.pack("HBBI", *line) for line in [
    (0x20, 0, 0, 0),                          # the number of the system call
    (0x15, 0, 1, number),
    (0x06, 0, 0, 0x00050000 | errno.EPERM),
    (0x06, 0, 0, 0x7FFF0000),
])
text = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxQ", 4, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(filter), 0, 0) == 0, ctypes.get_errno()
try:
    envs = AsyncVectorEnv(endless_fns(4), context="fork", num_workers=2, on_failure="restart")
except OSError as error:
    print(error)
    sys.exit()
envs.reset(seed=0)
envs.processes[0].kill()
for step in range(1, 4):
    assert envs.step([0] * 4)[0][:, 2].tolist() == [step] * 4
print(*(process.pid for process in envs.processes), flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86-64")
@pytest.mark.parametrize("call", ["pidfd_open", "sched_getaffinity", "socketpair"])
def test_what_a_sandbox_forbids_is_done_without_or_named(call: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORBIDDEN, call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline()
        process.stdin.close()
        if call == "socketpair":
            assert "Operation not permitted: worker 0 could not be started" in said
            assert "Unix socket" in said
            return
        workers = [int(pid) for pid in said.split()]
        assert len(workers) == 2
        process.wait()
        assert still_running(workers, 20) == []
