"""Chromium, and a server of the live page, for tests and for the pictures of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = "/usr/bin/chromium"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`envfleet watch FOLDER`; yields the address with the token."""
    command = [sys.executable, "-m", "envfleet", "watch", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            process.terminate()
