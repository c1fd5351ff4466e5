"""Runs test files side by side, each in a process of its own that is forked when all tests have been collected.

Nothing a test leaves behind, a thread least of all, can reach the tests of another file; and processes that have none
themselves can be forked by the tests of forks, which those of pytest-xdist cannot. What it prints is what pytest
always prints, file by file.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, final

import pytest

MOST_TESTS = 150
"""Of one file that run in one process: whoever has more is divided, so that no process has to wait for a long one."""


def add_option(parser: pytest.Parser) -> None:
    """Adds the option that turns it on."""
    parser.addoption(
        "--side-by-side",
        nargs="?",
        type=int,
        const=len(os.sched_getaffinity(0)),
        default=0,
        metavar="N",
        help="run N test files at a time, each in a process of its own (as many as there are cores)",
    )


@dataclass
class Group:
    """Tests that run in one process, one after the other."""

    items: list[pytest.Item]
    alone: bool
    rank: int
    reports: list[dict[str, Any]] = field(default_factory=list)


def grouped(items: Sequence[pytest.Item]) -> list[Group]:
    """The tests by file, and all that need Ray together. Those that take long come first; those to be alone, last."""
    groups: dict[Any, list[pytest.Item]] = {}
    for item in items:
        alone = item.get_closest_marker("alone") is not None
        key = "ray" if item.get_closest_marker("ray") else (item.path, alone)
        groups.setdefault(key, []).append(item)
    found = []
    for key, members in groups.items():
        alone = key != "ray" and key[1]
        first = key == "ray" or any(item.get_closest_marker("slow") for item in members)
        step = len(members) if key == "ray" or alone else MOST_TESTS
        for start in range(0, len(members), step):
            found.append(Group(members[start : start + step], alone, 2 if alone else 1 - first))
    return sorted(found, key=lambda group: group.rank)


@final
class SideBySide:
    """The plugin that takes the place of pytest's own loop."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs all that was collected."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly:
            return True
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all, removed by this process
        gc.collect()
        gc.freeze()  # or every process would soon have a copy of all that is here
        waiting, running = deque(grouped(session.items)), {}
        try:
            while waiting or running:
                while waiting and self._has_room_for(waiting[0], list(running.values())):
                    child = _Child(waiting.popleft())
                    running[child.channel] = child
                for channel in wait(list(running)):
                    rest = running[channel].receive()
                    if rest is None:
                        continue
                    _show(session, running.pop(channel).group)
                    if rest.items:
                        waiting.appendleft(rest)
                _stop_if_asked(session)
        finally:
            for child in running.values():
                child.kill()
        return True

    def _has_room_for(self, group: Group, running: list[_Child]) -> bool:
        if group.alone or any(child.group.alone for child in running):
            return not running
        return len(running) < self._processes


@final
class _Child:
    """A process in which the tests of a group run."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.channel, theirs = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _run_and_exit(group.items, theirs)
        theirs.close()
        self._begun = 0
        self._started = time.time()

    def receive(self) -> Group | None:
        """Takes what it sent. When it has ended, returns those tests that did not run because it crashed."""
        try:
            message = self.channel.recv()
        except EOFError:
            return self._end()
        if message is None:
            self._begun += 1
            self._started = time.time()
        else:
            self.group.reports.append(message)
        return None

    def _end(self) -> Group:
        self.channel.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if status != 0:
            self.group.reports.append(self._crash(status))
        return Group(self.group.items[self._begun :], self.group.alone, self.group.rank)

    def _crash(self, status: int) -> dict[str, Any]:
        item = self.group.items[max(self._begun - 1, 0)]
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            "failed",
            f"The process in which it ran ended with exit code {status}.",
            "call",
            start=self._started,
            stop=time.time(),
            duration=time.time() - self._started,
        )
        data: dict[str, Any] = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        return data

    def kill(self) -> None:
        """Ends it, with all that it started in its process group."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.channel.close()


@final
class _Sender:
    """Tells the parent what its own pytest would have been told."""

    def __init__(self, channel: Connection, config: pytest.Config) -> None:
        self._channel = channel
        self._config = config

    def pytest_runtest_logstart(self) -> None:
        """The next one begins."""
        self._channel.send(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of it is over."""
        self._channel.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _run_and_exit(items: list[pytest.Item], channel: Connection) -> None:
    """The whole life of a child."""
    try:
        config = items[0].config
        _have_own_output(config)
        config.pluginmanager.register(_Sender(channel, config))
        for item, following in zip(items, [*items[1:], None], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)
    os._exit(0)


def _have_own_output(config: pytest.Config) -> None:
    """What is captured goes to a file of its own; what the terminal should show is shown by the parent."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115  as long as the process


def _show(session: pytest.Session, group: Group) -> None:
    hook = session.config.hook
    shown = None
    for data in group.reports:
        report = hook.pytest_report_from_serializable(config=session.config, data=data)
        if report.nodeid != shown:
            shown = report.nodeid
            hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


def _stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
