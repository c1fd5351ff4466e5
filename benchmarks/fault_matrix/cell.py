"""One cell of the kill matrix, in a process of its own: makes a fleet, has it fail, and writes down what it sees.

Run by the Python that has the library, with a request as JSON; writes a JSON a line into `diary.jsonl` in its folder.
Whoever started it watches the clock, since this process may well hang.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, final

from fault_matrix.failing_env import FAIL_AT, FOREVER
from fault_matrix.subject import Answer, CannotBeMeasured, Setup, Subject

DIARY = "diary.jsonl"
STEPS_AFTER = 24
PAUSE_SECONDS = 0.05
VERSIONED = ("envfleet", "gymnasium", "numpy", "torch", "ray", "stable-baselines3", "tianshou", "torchrl")


@final
class Diary:
    """Events with their time, each on disk before anything else happens; not those of a forked copy of the caller."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._pid = os.getpid()

    def write(self, event: str, **facts: Any) -> None:
        """Write one down."""
        if os.getpid() != self._pid:
            return
        self._file.write(json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n")
        self._file.flush()


def main() -> None:
    """Live through one fault."""
    request = json.loads(sys.argv[1])
    setup = Setup(**request["setup"])
    diary = Diary(Path(setup.folder) / DIARY)
    adapter = importlib.import_module(f"fault_matrix.adapters.{request['adapter']}")
    try:
        subject = adapter.make(setup)
    except CannotBeMeasured as why:
        diary.write("not applicable", reason=str(why))
        return
    subject.reset()
    for number in range(1, FAIL_AT):
        _write_answer(diary, number, subject.step())
    diary.write("ready", versions=_versions())
    if setup.fault == "caller-killed":
        time.sleep(FOREVER)
    subject.limit_steps(setup.step_seconds)
    if _fail(subject, diary) and request["go_on"]:
        _go_on(subject, diary)
    diary.write("closing")
    try:
        subject.close()
        diary.write("closed")
    except Exception as error:
        diary.write("close raised", **_described(error))


def _fail(subject: Subject, diary: Diary) -> bool:
    """The step that fails and those after it; whether there was an exception."""
    for number in range(FAIL_AT, FAIL_AT + STEPS_AFTER + 1):
        diary.write("stepping", number=number)
        try:
            answer = subject.step()
        except Exception as error:
            diary.write("raised", number=number, **_described(error))
            return True
        _write_answer(diary, number, answer)
        time.sleep(PAUSE_SECONDS)
    return False


def _go_on(subject: Subject, diary: Diary) -> None:
    """What a fleet that has raised can still do: step on, or else be reset and step."""
    for way in ("step", "reset"):
        diary.write("going on", way=way)
        try:
            if way == "reset":
                subject.reset()
            for number in range(STEPS_AFTER):
                _write_answer(diary, number, subject.step(), event=f"answer after {way}")
        except Exception as error:
            diary.write("going on failed", way=way, **_described(error))
            continue
        diary.write("went on", way=way)
        return


def _write_answer(diary: Diary, number: int, answer: Answer, event: str = "answer") -> None:
    diary.write(event, number=number, **asdict(answer))


def _described(error: BaseException) -> dict[str, str]:
    """Its type, and everything that it and what it comes from say."""
    said: list[str] = []
    each: BaseException | None = error
    while each is not None:
        said += traceback.format_exception_only(each)
        each = each.__cause__ or each.__context__
    return {"type": type(error).__name__, "words": "".join(said)}


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in VERSIONED:
        if package.replace("-", "_") in sys.modules:
            with suppress(metadata.PackageNotFoundError):
                found[package] = metadata.version(package)
    return found


if __name__ == "__main__":
    main()
