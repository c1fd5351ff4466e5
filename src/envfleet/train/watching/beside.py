"""The live page beside a training: its server in a process of its own, which takes nothing of the training's time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envfleet._optional import require


@contextmanager
def watched(folder: Path) -> Iterator[str]:
    """Serve the live page of a folder until the block ends, or this process does; yields the address."""
    for module in ("starlette", "uvicorn"):
        require(module, "watch")
    code = "from envfleet.train.watching.beside import child; child()"
    # Its own session: Ctrl-C is the training's. It ends when our end of the pipe is closed, however that comes about.
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError("The live page could not be served: its server ended at once; the reason is above.")
        try:
            yield address
        finally:
            process.stdin.close()


def child() -> None:
    """What the process does."""
    from envfleet.train.watching.server import serve

    serve([Path(sys.argv[1])], 0, lambda address: print(address, flush=True), until_stdin_closes=True)
