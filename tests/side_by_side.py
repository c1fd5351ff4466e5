"""Runs test files side by side, each in a process of its own that has collected nothing but its own file.

Nothing a test leaves behind, a thread least of all, can reach the tests of another file; and processes that have none
themselves can be forked by the tests of forks, which those of pytest-xdist cannot. What it prints is what pytest
always prints, file by file.

Most of what the tests of fleets do is to fork, and a fork costs what the process weighs: one that has collected
everything, torch included, takes six times as long. So the processes are forked by servers (`ForkServer`) that were
forked themselves before the collection.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, final

import pytest
from fork_server import ForkServer

MOST_TESTS = 150
"""Of one file that run in one process: whoever has more is divided, so that no process has to wait for a long one."""

TORCH = re.compile(r"^(?:from|import) (?:torch|envfleet\.(?:adapters|cli|train)|learning)\b", re.MULTILINE)
"""Found in files whose processes are forked where torch has been imported. To guess wrong costs time, nothing else."""


def add_options(parser: pytest.Parser) -> None:
    """Adds the option that turns it on, and one that looks closer."""
    parser.addoption(
        "--side-by-side",
        nargs="?",
        type=int,
        const=len(os.sched_getaffinity(0)) + 1,
        default=0,
        metavar="N",
        help="run N test files at a time, each in its own process (one more than there are cores: many tests wait)",
    )
    parser.addoption(
        "--cpu-seconds",
        type=int,
        default=0,
        metavar="N",
        help="with --side-by-side: print the N files that took most CPU time, with all they started",
    )


@dataclass
class Group:
    """Tests that run in one process, one after the other."""

    items: list[pytest.Item]
    alone: bool
    rank: int
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def paths(self) -> list[Path]:
        """The files they are from."""
        return list(dict.fromkeys(item.path for item in self.items))

    def needs_torch(self) -> bool:
        """Whether one of the files imports it."""
        return any(TORCH.search(path.read_text()) for path in self.paths)


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
        self._cpu_seconds: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Starts what must not have collected anything."""
        if session.config.option.collectonly:
            return
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all, removed by this process

        def run(channel: Connection) -> None:
            _run_and_exit(session, channel)

        common = ("envfleet.vector", "envfleet.native")
        self._small = ForkServer(common, run)
        self._with_torch = ForkServer((*common, "envfleet.train.running.run", "envfleet.train.filming.showcase"), run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs all that was collected."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly:
            return True
        waiting, running = deque(grouped(session.items)), {}
        try:
            while waiting or running:
                while waiting and self._has_room_for(waiting[0], list(running.values())):
                    child = self._start(waiting.popleft())
                    running[child.channel] = child
                for channel in wait(list(running)):
                    rest = running[channel].receive()
                    if rest is None:
                        continue
                    self._show(session, running.pop(channel))
                    if rest.items:
                        waiting.appendleft(rest)
                _stop_if_asked(session)
        finally:
            for child in running.values():
                child.kill()
        return True

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Prints which files took most CPU time."""
        if most := config.getoption("--cpu-seconds"):
            total = sum(self._cpu_seconds.values())
            terminalreporter.section(f"most of {total:.0f} CPU seconds")
            for name, seconds in self._cpu_seconds.most_common(most):
                terminalreporter.write_line(f"{seconds:7.1f}s {name}")

    def _show(self, session: pytest.Session, child: _Child) -> None:
        self._cpu_seconds.update({path.name: child.cpu_seconds for path in child.group.paths[:1]})
        hook = session.config.hook
        shown = None
        for data in child.group.reports:
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            if report.nodeid != shown:
                shown = report.nodeid
                hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _start(self, group: Group) -> _Child:
        return _Child(group, self._with_torch if group.needs_torch() else self._small)

    def _has_room_for(self, group: Group, running: list[_Child]) -> bool:
        if group.alone or any(child.group.alone for child in running):
            return not running
        return len(running) < self._processes


@final
class _Child:
    """A process in which the tests of a group run."""

    def __init__(self, group: Group, server: ForkServer) -> None:
        self.group = group
        self.cpu_seconds = 0.0
        self._server = server
        self.channel, theirs = Pipe()
        self._pid = server.fork(theirs)
        theirs.close()
        self.channel.send([str(path) for path in group.paths])
        self.channel.send([item.nodeid for item in group.items])
        self._begun = 0
        self._started = time.time()

    def receive(self) -> Group | None:
        """Takes what it sent. When it has ended, returns those tests that did not run because it crashed."""
        try:
            message = self.channel.recv()
        except (EOFError, ConnectionError):
            return self._end()
        if message is None:
            self._begun += 1
            self._started = time.time()
        else:
            self.group.reports.append(message)
        return None

    def _end(self) -> Group:
        self.channel.close()
        status, self.cpu_seconds = self._server.wait(self._pid)
        if status != 0:
            self.group.reports.append(self._crash(status))
            self._begun = max(self._begun, 1)  # one that cannot even begin is not tried for ever
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
        """Ends it."""
        os.kill(self._pid, signal.SIGKILL)
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


def _run_and_exit(session: pytest.Session, channel: Connection) -> None:
    """The whole life of a child."""
    try:
        config = session.config
        _have_own_output(config)
        items = _collected(session, channel.recv(), channel.recv())
        config.pluginmanager.register(_Sender(channel, config))
        for item, following in zip(items, [*items[1:], None], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)
    os._exit(0)


def _collected(session: pytest.Session, paths: list[str], ids: list[str]) -> list[pytest.Item]:
    """These tests, in this order."""
    found = {item.nodeid: item for item in session.perform_collect(paths)}
    gc.collect()
    gc.freeze()  # or every process that a test forks would soon have a copy of all that is here
    return [found[name] for name in ids]


def _have_own_output(config: pytest.Config) -> None:
    """What is captured goes to a file of its own; what the terminal should show is shown by the parent."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115  as long as the process


def _stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
