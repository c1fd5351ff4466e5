"""Scripts that are run as a reader would run them, but for imports that need not be done again."""

from __future__ import annotations

import atexit
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from selection import ALL_TESTS

SECONDS = 100


def run_script(path: Path, arguments: Sequence[str], folder: Path, anew: bool = False) -> tuple[int, str, str]:
    """Runs a script in a folder; returns its exit code, its output and its errors.

    Most of the time of a short script is that of importing torch. So it is run by a copy of this process, which has
    done that; `make test-all` starts Python anew each time.

    Args:
        path: The script.
        arguments: What follows its name on the command line.
        folder: Where it is run.
        anew: For scripts that cannot do with a copy of this process.
    """
    if anew or ALL_TESTS in os.environ:
        command = [sys.executable, path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False)
        return done.returncode, done.stdout, done.stderr
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            _run_and_exit(path, arguments, folder)
        code = _exit_code(pid)
        output.seek(0)
        errors.seek(0)
        return code, output.read(), errors.read()


def _exit_code(pid: int) -> int:
    descriptor = os.pidfd_open(pid)
    ended = select.select([descriptor], [], [], SECONDS)[0]
    os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended, f"the script had not ended after {SECONDS} s"
    return code


def _run_and_exit(path: Path, arguments: Sequence[str], folder: Path) -> NoReturn:
    """Does what Python does with a script, from the first line to its end."""
    code = 1
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115  as long as the process
    try:
        warn_as_usual()
        os.chdir(folder)
        sys.argv, sys.path[0:0] = [str(path), *arguments], [str(path.parent)]
        runpy.run_path(str(path), run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)


def warn_as_usual() -> None:
    """Python's own filters, and warnings on stderr: pytest has others."""
    warnings.resetwarnings()
    for category in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
    warnings._showwarnmsg_impl = lambda message: sys.stderr.write(warnings._formatwarnmsg(message))  # type: ignore[attr-defined]
