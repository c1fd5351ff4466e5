"""One fleet and several threads: one at a time may use it, and any may close it, at any moment."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from native_gate import QUICK, Gate, wait_until

from envfleet import AsyncVectorEnv, NativeVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.errors import AlreadyPendingCallError, ClosedEnvironmentError, FleetError, FleetInUseError
from envfleet.vector.vector_env import FleetVectorEnv

pytestmark = pytest.mark.usefixtures("stand_in_for_ray", "nothing_left_behind")

NUM_ENVS = 4
PATIENCE = 60.0
WAIT = np.array([0, 1, 0, 0])
GO = np.zeros(NUM_ENVS, np.int64)


class DoorEnv(gymnasium.Env[Any, Any]):
    """Told to by action 1, option or call, waits until a file appears; leaves another when it begins to."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.observation_space = gymnasium.spaces.Discrete(1000)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.steps = 0
        self.meddle: Callable[[], Any] | None = None

    def wait(self) -> None:
        (self.folder / "inside").touch()
        while not (self.folder / "open").exists():
            time.sleep(0.001)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if options:
            self.wait()
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        if action == 1:
            self.wait()
        if action == 2 and self.meddle is not None:
            self.meddle()
        self.steps += 1
        return self.steps, 0.0, False, False, {}

    def close(self) -> None:
        with (self.folder / "closed").open("a") as log:
            log.write("x")


class Door:
    """A fleet of such environments, and a thread of ours that gets stuck in a call of it."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.folder = folder
        fns = [partial(DoorEnv, str(folder))] * NUM_ENVS
        kind, _, context = backend.partition(" ")
        made: FleetVectorEnv
        if kind == "process":
            made = AsyncVectorEnv(fns, context=context, num_workers=2)
        else:
            made = SyncVectorEnv(fns) if kind == "sync" else RayVectorEnv(fns, num_workers=2)
        self.envs = made
        self.envs.reset(seed=0)

    def open(self) -> None:
        (self.folder / "open").touch()

    def stuck_in(self, call: Callable[[FleetVectorEnv], Any]) -> Outcome:
        """Returns once an environment waits in that call."""
        (self.folder / "inside").unlink(missing_ok=True)
        outcome = Outcome(partial(call, self.envs))
        wait_until((self.folder / "inside").exists, "no environment began to wait")
        return outcome


class Outcome:
    """What a call in another thread comes to."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=(call,), name="the other one")
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.result = error

    def wait(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the other thread hangs"
        return self.result


def send_and_receive(envs: FleetVectorEnv) -> Any:
    envs.send(WAIT)
    return envs.recv()


def step_and_wait(envs: FleetVectorEnv) -> Any:
    envs.step_async(WAIT)
    return envs.step_wait(timeout=PATIENCE)


CALLS: dict[str, Callable[[FleetVectorEnv], Any]] = {
    "step": lambda envs: envs.step(WAIT),
    "step_wait": step_and_wait,
    "reset": lambda envs: envs.reset(options={"wait": True}),
    "recv": send_and_receive,
    "call": lambda envs: envs.call("wait", indices=[1]),
}
OTHER_CALLS: dict[str, Callable[[FleetVectorEnv], Any]] = {
    "step": lambda envs: envs.step(GO),
    "step_async": lambda envs: envs.step_async(GO),
    "step_wait": lambda envs: envs.step_wait(),
    "reset": lambda envs: envs.reset(),
    "reset_async": lambda envs: envs.reset_async(),
    "reset_wait": lambda envs: envs.reset_wait(),
    "async_reset": lambda envs: envs.async_reset(),
    "send": lambda envs: envs.send(GO),
    "recv": lambda envs: envs.recv(),
    "call": lambda envs: envs.get_attr("steps"),
    "call_async": lambda envs: envs.call_async("steps"),
    "call_wait": lambda envs: envs.call_wait(),
    "set_attr": lambda envs: envs.set_attr("steps", 7),
}
BACKENDS = ("sync", "process fork", "ray")


@pytest.fixture
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    """A fleet that is let go in the end."""
    door = Door(request.param, tmp_path)
    yield door
    door.open()
    door.envs.close()


def refuses_all(envs: FleetVectorEnv) -> None:
    for name, call in OTHER_CALLS.items():
        with pytest.raises(
            FleetInUseError, match=rf"^{name}\(\) .* in use by another thread \(the other one\)"
        ) as told:
            call(envs)
        assert isinstance(told.value, FleetError)
        assert isinstance(told.value, AlreadyPendingCallError)


@pytest.mark.parametrize("door", BACKENDS, indirect=True)
def test_a_second_thread_is_told_and_changes_nothing(door: Door) -> None:
    door.envs.step(GO)
    other = door.stuck_in(CALLS["step"])
    refuses_all(door.envs)
    door.open()
    assert other.wait()[0].tolist() == [2] * NUM_ENVS
    assert door.envs.step(GO)[0].tolist() == [3] * NUM_ENVS  # one thread after another is fine


@pytest.mark.parametrize("door", BACKENDS, indirect=True)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_during_which_the_fleet_is_closed_says_so(name: str, door: Door) -> None:
    other = door.stuck_in(CALLS[name])
    closing = Outcome(door.envs.close)
    wait_until(lambda: door.envs.closed, "close() did not begin")
    if isinstance(door.envs, SyncVectorEnv):
        door.open()  # nobody can end what a thread does
    assert isinstance(other.wait(), ClosedEnvironmentError)
    door.open()
    assert closing.wait() is None
    assert (door.folder / "closed").read_text() == "x" * NUM_ENVS
    with pytest.raises(ClosedEnvironmentError):
        door.envs.step(GO)


@pytest.mark.parametrize("door", ["process spawn", "process forkserver"], indirect=True)
def test_the_same_however_workers_are_started(door: Door) -> None:
    other = door.stuck_in(CALLS["step"])
    refuses_all(door.envs)
    door.envs.close(terminate=True)
    assert isinstance(other.wait(), ClosedEnvironmentError)


@pytest.mark.parametrize("backend", ["sync", "process fork", "ray", "native"])
def test_closing_a_fleet_that_is_stepped_all_the_time(backend: str, tmp_path: Path) -> None:
    """Whatever the moment: the thread that steps gets ClosedEnvironmentError and nothing else."""
    for number in range(8):
        envs = NativeVectorEnv("CartPole-v1", 2048) if backend == "native" else Door(backend, tmp_path).envs
        envs.reset(seed=0)
        stepped = threading.Event()

        def step_on(envs: FleetVectorEnv = envs, stepped: threading.Event = stepped) -> None:
            actions = np.zeros(envs.num_envs, np.int64)
            while True:
                envs.step(actions)
                stepped.set()

        other = Outcome(step_on)
        assert stepped.wait(PATIENCE)
        time.sleep(number * 0.0007)
        envs.close()
        assert isinstance(other.wait(), ClosedEnvironmentError)


def test_threads_that_step_a_native_fleet_at_once_do_not_hang() -> None:
    """One gets through, the others are told; nothing moves by halves."""
    with NativeVectorEnv("CartPole-v1", 2048, threads=2) as envs:
        envs.reset(seed=0)
        actions = np.zeros(envs.num_envs, np.int64)
        done = threading.Event()

        def step_on() -> int:
            steps = 0
            while not done.is_set():
                try:
                    envs.step(actions)
                    steps += 1
                except FleetInUseError:
                    pass
            return steps

        others = [Outcome(step_on) for _ in range(3)]
        time.sleep(0.3)
        done.set()
        total = sum(other.wait() for other in others)
        assert total > 0
        # All of them were steps of all environments: the same number, alone, comes to the same.
        with NativeVectorEnv("CartPole-v1", 2048, threads=1) as alone:
            alone.reset(seed=0)
            for _ in range(total):
                alone.step(actions)
            np.testing.assert_array_equal(envs.step(actions)[0], alone.step(actions)[0])


def test_a_second_thread_is_told_while_compiled_environments_are_waited_for(gate: Gate) -> None:
    gate.trap(1)
    other = Outcome(gate.envs.recv)
    wait_until(lambda: gate.envs._exclusive.owner != 0, "recv() did not begin")
    refuses_all(gate.envs)
    with pytest.raises(FleetInUseError, match="get_state"):
        gate.envs.get_state(0)  # type: ignore[attr-defined]
    gate.open()
    assert other.wait()[-1]["env_id"].tolist() == [1]
    gate.send(QUICK, 0, 1)
    gate.envs.recv()


def test_closing_while_compiled_environments_are_waited_for(gate: Gate) -> None:
    gate.trap(1)
    other = Outcome(partial(gate.envs.recv, 1000.0))
    wait_until(lambda: gate.envs._exclusive.owner != 0, "recv() did not begin")
    with pytest.warns(RuntimeWarning, match=r"Environments \[1\] did not return"):
        gate.envs.close(timeout=0.1)
    assert isinstance(other.wait(), ClosedEnvironmentError)


def test_close_does_not_wait_for_ever_for_a_thread(tmp_path: Path) -> None:
    """The thread that does not come back closes the fleet when it does."""
    door = Door("sync", tmp_path)
    other = door.stuck_in(CALLS["step"])
    with pytest.warns(RuntimeWarning, match="another thread was inside a call of it that did not return within 1 s"):
        door.envs.close(timeout=0.1)
    assert not (tmp_path / "closed").exists()
    door.open()
    assert isinstance(other.wait(), ClosedEnvironmentError)
    assert (tmp_path / "closed").read_text() == "x" * NUM_ENVS


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Has something called by a signal handler, soon."""

    def set_off(what: Callable[[], Any]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: what())
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    before = signal.getsignal(signal.SIGALRM)
    yield set_off
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["step", "recv"])
@pytest.mark.parametrize("door", BACKENDS, indirect=True)
def test_a_signal_handler_may_close(door: Door, name: str, alarm: Callable[[Callable[[], Any]], None]) -> None:
    def close() -> None:
        door.envs.close()
        door.open()

    alarm(close)
    with pytest.raises(ClosedEnvironmentError):
        CALLS[name](door.envs)
    assert (door.folder / "closed").read_text() == "x" * NUM_ENVS


def test_a_signal_handler_that_closes_may_end_the_program(
    tmp_path: Path, alarm: Callable[[Callable[[], Any]], None]
) -> None:
    door = Door("process fork", tmp_path)

    def end() -> None:
        door.envs.close()
        door.open()
        raise SystemExit(3)

    alarm(end)
    with pytest.raises(SystemExit):
        CALLS["step"](door.envs)
    assert (door.folder / "closed").read_text() == "x" * NUM_ENVS


@pytest.mark.parametrize("what", ["close", "reset"])
def test_a_signal_handler_may_not_hang_a_native_fleet(
    gate: Gate, what: str, alarm: Callable[[Callable[[], Any]], None]
) -> None:
    told: list[Any] = []

    def act() -> None:
        try:
            gate.envs.close(timeout=0.1) if what == "close" else gate.envs.reset()
        except FleetInUseError as error:
            told.append(error)
        gate.open()

    gate.trap(1)
    alarm(act)
    if what == "close":
        with pytest.raises(ClosedEnvironmentError):
            gate.envs.recv()
        return
    assert gate.envs.recv()[-1]["env_id"].tolist() == [1]
    assert "this thread is inside another call" in str(told)


def test_an_environment_may_not_use_its_own_fleet_but_may_close_it(tmp_path: Path) -> None:
    with SyncVectorEnv([partial(DoorEnv, str(tmp_path))] * NUM_ENVS) as envs:
        envs.reset(seed=0)
        meddler = envs.envs[1]
        assert isinstance(meddler, DoorEnv)
        meddler.meddle = partial(envs.step, GO)
        with pytest.raises(FleetInUseError, match="inside another call"):
            envs.step([0, 2, 0, 0])
        assert envs.reset()[0].tolist() == [0] * NUM_ENVS
        assert envs.step(GO)[0].tolist() == [1] * NUM_ENVS
        meddler.meddle = envs.close
        with pytest.raises(ClosedEnvironmentError):
            envs.step([0, 2, 0, 0])
    assert (tmp_path / "closed").read_text() == "x" * NUM_ENVS
