"""A program that was stopped and goes on (Ctrl-Z and fg, a paused container): nobody is taken for stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fleets import STEP_TIMEOUT, make, soon, zeros
from soaking.faulty import Fault

from envfleet.errors import WorkerStuckError
from envfleet.vector.runtime import AwakeClock

PAUSE = 3.5
PROGRAM = """
    import sys, time, warnings
    from pathlib import Path

    import gymnasium

    warnings.simplefilter("error")


    class SlowEnv(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, folder):
            self.folder = Path(folder)
            self.linger("making")

        def linger(self, what):
            time.sleep(0.8)  # the caller has looked at it by then, and will compare
            (self.folder / what).touch()
            time.sleep(0.1)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            self.linger(f"stepping {action}")
            return 1, 1.0, False, False, {}


    class MeasuredEnv(SlowEnv):
        def step(self, action):
            return 1, 1.0, False, False, {}


    def measure(folder):
        import envfleet, envfleet._trial
        envfleet._trial.TIME_LIMIT = 3.0
        with envfleet.make_vec(lambda: MeasuredEnv(folder), 2) as envs:
            print("measured" in envs.plan, envs.plan)


    def main(folder, backend):
        if backend == "auto":
            return measure(folder)
        if backend == "ray":
            import small_ray
            sys.modules["ray"] = small_ray
            from envfleet import RayVectorEnv as Fleet
            how = {}
        else:
            from envfleet import AsyncVectorEnv as Fleet
            how = {"context": "fork"}
        fns = [lambda: SlowEnv(folder)] * 2
        with Fleet(fns, num_workers=2, step_timeout=3.0, start_timeout=3.0, **how) as envs:
            envs.reset()
            print(envs.step([0, 0])[1].tolist())
            envs.send(envs.action_space.sample() * 0 + 1)
            print(sorted(envs.recv()[-1]["env_id"].tolist()))


    main(*sys.argv[1:])
"""


@pytest.mark.parametrize(("backend", "moments"), [("process", ("making", "stepping 1")), ("ray", ("stepping 0",))])
def test_nobody_is_ended_for_time_in_which_all_were_stopped(
    backend: str, moments: tuple[str, ...], tmp_path: Path
) -> None:
    """The whole process group is stopped while environments are made, in a step or on tickets."""
    assert shown_by_one_that_pauses(backend, moments, tmp_path) == "[1.0, 1.0]\n[0, 1]\n"


def test_an_environment_that_was_stopped_while_it_was_measured_did_not_hang(tmp_path: Path) -> None:
    shown = shown_by_one_that_pauses("auto", ("making",), tmp_path)
    assert shown.startswith("False"), shown


def shown_by_one_that_pauses(backend: str, moments: tuple[str, ...], tmp_path: Path) -> str:
    """What a program prints that is stopped, with all its processes, when these files appear."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    path = os.pathsep.join((str(Path(__file__).parents[1] / "conformance"), *sys.path))
    running = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path), backend],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        for sign in moments:
            deadline = time.monotonic() + 60
            while not (tmp_path / sign).exists():
                assert time.monotonic() < deadline, sign
                assert running.poll() is None, sign
                time.sleep(0.001)
            os.killpg(running.pid, signal.SIGSTOP)
            time.sleep(PAUSE)
            os.killpg(running.pid, signal.SIGCONT)
        shown, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    return shown


def test_a_worker_that_alone_is_stopped_is_stuck() -> None:
    envs = make(1, step_timeout=STEP_TIMEOUT)
    envs.reset()
    with soon(), pytest.raises(WorkerStuckError, match=f"after {STEP_TIMEOUT} s"):
        envs.step(zeros(envs, {1: Fault.STOP}))
    envs.close()


def test_the_clock_counts_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.05, 100.15, 3700.0, 3700.05])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    clock = AwakeClock(0.05)
    assert [round(clock.now(), 2) for _ in range(4)] == [0.05, 0.15, 0.2, 0.25]
