"""Runs cells: each a process with a session and a mark of its own, watched from outside, and cleaned up after."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import final

from harness.installation import telling_line

from . import verdicts
from .cell import DIARY
from .contestants import CALLER_KILLED, NO_FAULT, Contestant
from .leftovers import MARK, POLL_SECONDS, Belongings, Left
from .verdicts import CALLER_ENDED, FAILED, NOT_APPLICABLE, Event, Facts

STEP_SECONDS = 2.0
NOTICE_SECONDS = 20.0
START_SECONDS = 240.0
RECOVERY_SECONDS = 60.0
GOING_ON_SECONDS = 12.0
CLOSE_SECONDS = 25.0
SIGNAL_SECONDS = 5.0
GONE_SECONDS = 12.0
SCRIPT = Path(__file__).with_name("cell.py")


@final
class Cell:
    """One fault in one contestant."""

    def __init__(self, contestant: Contestant, fault: str, python: str, *, go_on: bool = False) -> None:
        self._fault = fault
        self._folder = Path(tempfile.mkdtemp(prefix="cell"))
        self._marker = self._folder / "failed"
        self._log = self._folder / "log"
        mark = uuid.uuid4().hex
        self._belongings = Belongings(mark)
        self._diary: list[Event] = []
        self._begun = time.monotonic()
        setup = {
            "fault": fault,
            "marker": str(self._marker),
            "folder": str(self._folder),
            "step_seconds": STEP_SECONDS,
            "options": dict(contestant.options),
        }
        request = {"adapter": contestant.adapter, "setup": setup, "go_on": go_on}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(SCRIPT), json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=_environment(mark),
                start_new_session=True,
            )

    def run(self) -> Facts:
        """Live through it; returns the facts, and leaves nothing behind."""
        try:
            blocked = self._watch()
            if self._fault in CALLER_KILLED and self._find("ready"):
                self._process.kill()
                ended_by, exit_code = "SIGKILL", None
            else:
                ended_by, exit_code = self._end(blocked)
            self._process.wait()
            left = self._belongings.wait_until_gone(frozenset(), GONE_SECONDS)
            self._read()
            return self._facts(blocked, ended_by, exit_code, left)
        finally:
            self._process.kill()
            self._process.wait()
            self._belongings.remove()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> str | None:
        """Until it has ended, or is to be killed; the phase in which it got stuck, if it did."""
        looked = False
        while self._process.poll() is None:
            self._read()
            if not looked and self._find("ready"):
                self._belongings.look_at_memory()
                looked = True
            if looked and self._is_to_be_killed():
                return None
            phase, since = self._phase()
            if time.monotonic() - since > self._limit(phase):
                self._belongings.look_at_memory()
                return phase
            time.sleep(POLL_SECONDS)
        self._read()
        return None

    def _is_to_be_killed(self) -> bool:
        return self._fault == "caller-killed" or (self._fault == "caller-killed-hang" and self._marker.exists())

    def _phase(self) -> tuple[str, float]:
        """What it is doing, and since when."""
        if not self._find("ready"):
            return "starting", self._begun
        last = self._diary[-1]
        return str(last["event"]), float(last["at"])

    def _limit(self, phase: str) -> float:
        if phase == "starting":
            return START_SECONDS
        if phase.startswith("going on"):
            return GOING_ON_SECONDS
        if phase == "closing":
            return CLOSE_SECONDS
        return RECOVERY_SECONDS if verdicts.first_notice(self._diary) else NOTICE_SECONDS

    def _end(self, blocked: str | None) -> tuple[str, int | None]:
        """Wait for the process to end, or end it as an impatient user would; returns who did it, and the exit code."""
        if blocked is None:
            return "itself", self._process.wait()
        for name, number in (("Ctrl-C", signal.SIGINT), ("SIGTERM", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)):
            with suppress(ProcessLookupError):
                # A terminal sends Ctrl-C to everybody in the foreground; the others are for the caller alone.
                os.killpg(self._process.pid, number) if name == "Ctrl-C" else self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(SIGNAL_SECONDS)
                return name, None
        raise AssertionError("nothing survives SIGKILL")

    def _read(self) -> None:
        path = self._folder / DIARY
        if path.exists():
            whole = path.read_text().rpartition("\n")[0]
            self._diary = [json.loads(line) for line in whole.splitlines()]

    def _find(self, event: str) -> Event | None:
        return next((each for each in self._diary if each["event"] == event), None)

    def _facts(self, blocked: str | None, ended_by: str, exit_code: int | None, left: Left) -> Facts:
        if refused := self._find("not applicable"):
            return {"outcome": NOT_APPLICABLE, "reason": refused["reason"]}
        ready = self._find("ready")
        log = self._log.read_text(errors="replace")
        if ready is None:
            reason = f"{'stuck while starting' if blocked else 'ended before the fault'}: {telling_line(log)}"
            return {"outcome": FAILED, "reason": reason}
        facts = {"versions": ready["versions"], "ended_by": ended_by, "exit_code": exit_code, "left": asdict(left)}
        if self._fault in CALLER_KILLED:
            return {"outcome": CALLER_ENDED, **facts}
        if self._fault != NO_FAULT and not self._marker.exists():
            return {"outcome": FAILED, "reason": "the fault was never reached"}
        failed_at = float(self._marker.read_text()) if self._fault != NO_FAULT else ready["at"]
        facts |= {"notice_limit": NOTICE_SECONDS, "close_limit": CLOSE_SECONDS}
        return {**facts, **verdicts.noticed(self._diary, failed_at, blocked, log)}


def _environment(mark: str) -> dict[str, str]:
    """As the caller's, with the mark, and with our modules; who may not keep what it has compiled starts slowly."""
    unwanted = ("OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    # Ray hides the warnings that it would otherwise print at every start, and asks nobody about usage.
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**kept, **quiet, MARK: mark, "PYTHONPATH": str(SCRIPT.parents[1])}
