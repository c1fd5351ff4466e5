"""The compiled mailroom: turns passed between threads and between processes, none lost."""

from __future__ import annotations

import mmap
import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from envfleet._core import Mailroom, exit_with_process

NOW = (0.0, 0.0, 0.0)
ASLEEP = (10.0, 0.0, 0.0)
AWAKE = (10.0, 1e-4, 0.0)
STOP = 99


def aligned(size: int, offset: int = 0) -> npt.NDArray[np.uint8]:
    raw = np.zeros(size + 128, np.uint8)
    return raw[-raw.ctypes.data % 64 + offset :][:size]


def mailroom(workers: int) -> Mailroom:
    return Mailroom(aligned(Mailroom.bytes(workers, workers)), workers, workers, create=True)


@contextmanager
def threads(room: Mailroom, workers: int, turn: Callable[[int, int], int]) -> Iterator[list[list[int]]]:
    """Workers in threads; yields what each was told so far."""
    told: list[list[int]] = [[] for _ in range(workers)]

    def work(worker: int) -> None:
        while True:
            command = room.take(worker, *ASLEEP)
            assert command is not None
            told[worker].append(command)
            room.finish(worker, turn(worker, command))
            if command == STOP:
                return

    running = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in running:
        thread.start()
    try:
        yield told
    finally:
        room.post(0, workers, STOP)
        for thread in running:
            thread.join(20)
            assert not thread.is_alive()


# --- one turn after another ------------------------------------------------------------------------------


def test_a_turn_is_given_taken_and_finished() -> None:
    room = mailroom(2)
    assert room.wait_done(*NOW)
    assert room.take(0, *NOW) is None
    room.post(0, 2, 7)
    assert [room.is_finished(worker) for worker in range(2)] == [False, False]
    assert room.take(0, *NOW) == 7
    assert room.take(0, *NOW) == 7  # until it is finished it is the same turn
    room.finish(0, 3)
    assert room.take(0, *NOW) is None
    assert [room.is_finished(worker) for worker in range(2)] == [True, False]
    assert not room.wait_done(*NOW)
    assert room.take(1, *NOW) == 7
    room.finish(1, 4)
    assert room.wait_done(*NOW)
    assert [room.status(worker) for worker in range(2)] == [3, 4]


def test_some_workers_can_be_called_and_the_others_hear_nothing() -> None:
    room = mailroom(4)
    room.post(1, 3, 5)
    assert [room.take(worker, *NOW) for worker in range(4)] == [None, 5, 5, None]
    room.finish(2, 0)
    assert not room.wait_done(*NOW)
    room.finish(1, 0)
    assert room.wait_done(*NOW)


def test_an_attached_mailroom_sees_the_same_turns() -> None:
    memory = aligned(Mailroom.bytes(2, 2))
    ours = Mailroom(memory, 2, 2, create=True)
    ours.post(0, 2, 6)
    theirs = Mailroom(memory, 2, 2, create=False)
    assert theirs.take(1, *NOW) == 6
    theirs.finish(1, 8)
    assert (ours.is_finished(0), ours.is_finished(1), ours.status(1)) == (False, True, 8)
    assert Mailroom(memory, 2, 2, create=True).take(0, *NOW) is None  # laid out anew


@pytest.mark.parametrize("patience", [(0.0, 0.0), (0.001, 0.0), (0.0, 0.001)])
def test_waiting_ends_when_the_time_is_over_and_nothing_is_lost(patience: tuple[float, float]) -> None:
    room = mailroom(1)
    start = time.monotonic()
    assert room.take(0, 0.02, *patience) is None
    room.post(0, 1, 4)
    assert not room.wait_done(0.02, *patience)
    assert 0.04 <= time.monotonic() - start < 5
    assert room.take(0, 0.02, *patience) == 4
    room.finish(0, 1)
    assert room.wait_done(0.02, *patience)


# --- memory that others write to -------------------------------------------------------------------------


def two_sides() -> tuple[npt.NDArray[np.uint8], Mailroom, Mailroom]:
    """The memory, the caller's side, and that of a worker with four rows."""
    memory = aligned(Mailroom.bytes(1, 4))
    ours = Mailroom(memory, 1, 4, create=True)
    ours.assign(0, 0, 4)
    return memory, ours, Mailroom(memory, 1, 4, create=False)


@pytest.mark.parametrize("garbage", [0, 1, 127, 255, "random"])
def test_garbage_is_noticed_on_both_sides(garbage: int | str) -> None:
    memory, ours, theirs = two_sides()
    rows, statuses = np.zeros(4, np.intp), np.zeros(4, np.uint8)
    ours.post(0, 1, 1)
    assert theirs.take(0, *NOW) == 1
    theirs.finish(0, 0)
    ours.send(np.arange(2), 0)
    assert theirs.take(0, *NOW) is not None
    theirs.publish(0, 0, 0)
    assert not ours.is_garbled(0)
    memory[:] = np.random.default_rng(0).integers(0, 256, memory.size) if garbage == "random" else garbage
    assert ours.is_garbled(0)
    assert (ours.num_ready(), ours.collect(rows, statuses), ours.is_silent(0)) == (0, 0, False)
    with pytest.raises(RuntimeError, match="garbage was written into the shared block"):
        theirs.take(0, *NOW)
    ours.clear(0)
    assert not ours.is_garbled(0)
    ours.send(np.arange(4), 0)
    assert Mailroom(memory, 1, 4, create=False).take(0, *NOW) is not None


def test_results_of_rows_that_are_not_out_are_not_believed() -> None:
    _, ours, theirs = two_sides()
    ours.send(np.array([1, 2]), 0)
    theirs.publish(0, 3, 0)
    assert ours.collect(np.zeros(4, np.intp), np.zeros(4, np.uint8)) == 0
    assert ours.is_garbled(0)


def test_a_row_that_is_out_is_not_sent_again() -> None:
    _, ours, _ = two_sides()
    for rows in ([1, 1], [0, 9], [0, -1]):
        with pytest.raises((ValueError, IndexError)):
            ours.send(np.array(rows), 0)
        assert [ours.kind_out(row) for row in range(4)] == [None] * 4
    ours.send(np.array([1]), 0)
    with pytest.raises(ValueError, match="still out"):
        ours.send(np.array([0, 1]), 0)
    assert [ours.kind_out(row) for row in range(4)] == [None, 0, None, None]


def test_whoever_has_no_rows_publishes_nothing() -> None:
    with pytest.raises(IndexError, match="no such row"):
        mailroom(1).publish(0, 0, 0)


# --- arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", [2, 1000])
@pytest.mark.parametrize("method", ["take", "finish", "status", "is_finished"])
def test_workers_that_do_not_exist_are_refused(method: str, worker: int) -> None:
    arguments = {"take": NOW, "finish": (0,)}.get(method, ())
    with pytest.raises(IndexError, match="no such worker"):
        getattr(mailroom(2), method)(worker, *arguments)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (1, 1), (2, 1), (0, 0), (5, 6)])
def test_a_range_of_workers_that_is_none_is_refused(first: int, last: int) -> None:
    room = mailroom(2)
    with pytest.raises(IndexError, match="no such workers"):
        room.post(first, last, 1)
    assert [room.take(worker, *NOW) for worker in range(2)] == [None, None]


@pytest.mark.parametrize(
    ("worker", "error"), [(-1, TypeError), (2**32, TypeError), ("0", TypeError), (None, TypeError)]
)
def test_what_is_no_worker_number_is_refused(worker: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        mailroom(2).is_finished(worker)


@pytest.mark.parametrize("create", [True, False])
def test_memory_that_does_not_do_is_refused(create: bool) -> None:
    size = Mailroom.bytes(2, 2)
    with pytest.raises(ValueError, match="too small"):
        Mailroom(aligned(size - 1), 2, 2, create)
    with pytest.raises(ValueError, match="too small"):
        Mailroom(aligned(size), 2**32 - 1, 2, create)
    for offset in 1, 8, 32:
        with pytest.raises(ValueError, match="aligned to a cache line"):
            Mailroom(aligned(size, offset), 2, 2, create)
    locked = aligned(size)
    locked.flags.writeable = False
    for wrong in locked, aligned(size).reshape(1, -1), bytes(size), None:
        with pytest.raises(TypeError):
            Mailroom(wrong, 2, 2, create)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["float64", "every other byte"])
def test_memory_is_never_copied(kind: str) -> None:
    size = Mailroom.bytes(2, 2)
    memory = aligned(size * 8).view(np.float64) if kind == "float64" else aligned(2 * size)[::2]
    with pytest.raises(TypeError):
        Mailroom(memory, 2, 2, create=True)  # type: ignore[arg-type]


# --- threads and signals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [ASLEEP, AWAKE], ids=["asleep", "awake"])
def test_every_turn_reaches_every_thread_once(patience: tuple[float, float, float]) -> None:
    room = mailroom(3)
    with threads(room, 3, lambda worker, command: worker + command) as told:
        for turn in range(200, 700):
            room.post(0, 3, turn)
            assert room.wait_done(*patience)
            assert [room.status(worker) for worker in range(3)] == [turn, turn + 1, turn + 2]
    assert told == [[*range(200, 700), STOP]] * 3


def test_waiting_lets_other_threads_run() -> None:
    room, go = mailroom(1), threading.Event()
    with threads(room, 1, lambda worker, command: int(command == STOP or go.wait(20))):
        room.post(0, 1, 1)
        helper = threading.Thread(target=go.set)
        helper.start()
        assert room.wait_done(*ASLEEP)
        helper.join()
    assert room.status(0) == 1


@pytest.mark.parametrize("side", ["take", "wait_done"])
def test_a_signal_ends_the_wait_so_that_its_handler_runs(side: str) -> None:
    room, heard = mailroom(1), threading.Event()
    if side == "wait_done":
        room.post(0, 1, 1)
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    timer.start()
    try:
        start = time.monotonic()
        assert not (room.wait_done(*ASLEEP) if side == "wait_done" else room.take(0, *ASLEEP))
        assert heard.wait(5)
        assert time.monotonic() - start < 10
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


# --- processes -------------------------------------------------------------------------------------------


@contextmanager
def forked(work: Callable[[], object], exit_code: int = 0) -> Iterator[int]:
    """Runs ``work`` in a forked process, whose id it yields; it must have ended, with this code, at the end."""
    pid = os.fork()
    if pid == 0:
        code = 77
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    try:
        yield pid
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == exit_code


def shared(workers: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Memory for a mailroom, and a number per worker, that forked processes share."""
    size = Mailroom.bytes(workers, workers)
    memory = np.frombuffer(mmap.mmap(-1, size + 64 * workers), np.uint8)
    return memory[:size], memory[size:].view(np.int64)[::8]


def loiter(dice: random.Random) -> None:
    """A few hundred nanoseconds, now and then none: the two sides are to meet in every order."""
    for _ in range(dice.choice((0, dice.randrange(60)))):
        pass


def work_turns(memory: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64], worker: int) -> None:
    room, dice = Mailroom(memory, len(counts), len(counts), create=False), random.Random(worker)
    command = None
    while command != STOP:
        command = room.take(worker, *dice.choice((ASLEEP, AWAKE)))
        assert command is not None
        counts[worker] += command
        loiter(dice)
        room.finish(worker, 0)


@pytest.mark.parametrize(("workers", "turns"), [(1, 20_000), (2, 20_000), (5, 2_000)])
def test_no_wake_up_is_lost_between_processes(workers: int, turns: int) -> None:
    memory, counts = shared(workers)
    room, dice = Mailroom(memory, workers, workers, create=True), random.Random(9)
    with ExitStack() as processes:
        for worker in range(workers):
            processes.enter_context(forked(partial(work_turns, memory, counts, worker)))
        for turn in range(1, turns + 1):
            start = time.monotonic()
            loiter(dice)
            room.post(0, workers, 1)
            loiter(dice)
            assert room.wait_done(*dice.choice((ASLEEP, AWAKE)))
            # One who missed a bell looks up when its time is over, and finds the work done.
            assert time.monotonic() - start < ASLEEP[0] / 2, "a wake-up was lost"
            assert (counts == turn).all(), "a turn was finished without its work being seen"
        room.post(0, workers, STOP)
        assert room.wait_done(*ASLEEP)
    assert (counts == turns + STOP).all()


# --- ending together -------------------------------------------------------------------------------------


def test_a_process_ends_with_the_one_it_watches_whatever_it_is_busy_with() -> None:
    reader, writer = os.pipe()

    def outlive() -> None:
        exit_with_process(middle_pid)
        os.write(writer, b"ready")
        while True:  # with the GIL, and deaf to everything
            sum(range(10**9))

    def middle() -> None:
        nonlocal middle_pid
        middle_pid = os.getpid()
        with forked(outlive):
            pass

    middle_pid = 0
    with forked(middle, exit_code=-signal.SIGKILL) as pid:
        os.close(writer)
        assert os.read(reader, 5) == b"ready"
        os.kill(pid, signal.SIGKILL)
        assert select.select([reader], [], [], 20)[0], "the watching process lives on"
        assert os.read(reader, 1) == b""  # only the end of the last writer gives an end of file
    os.close(reader)


def test_a_process_that_watches_one_already_gone_ends_at_once() -> None:
    with forked(lambda: None) as gone:
        pass
    with forked(lambda: exit_with_process(gone), exit_code=1):
        pass


def test_whoever_has_slept_may_use_all_its_cores_again() -> None:
    """While asleep it asks not to be woken where the others work."""
    cores = os.sched_getaffinity(0)
    room = mailroom(2)
    room.post(0, 2, 4)  # the caller works here ...
    assert room.take(0, *NOW) == 4
    room.finish(0, 1)
    assert room.take(0, 0.01, 0.0, 0.0) is None  # ... where this worker has to sleep
    assert not room.wait_done(0.01, 0.0, 0.0)
    assert os.sched_getaffinity(0) == cores
