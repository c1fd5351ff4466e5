"""What lies in a run's folder for those who watch it, and how both sides write it. Does not need torch."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

Order: TypeAlias = Literal["save", "stop"]
ORDERS: tuple[Order, ...] = ("save", "stop")

_WATCHED_SECONDS = 10.0
"""How long a request lasts: a page that is open renews it much sooner."""


@final
class LiveFolder:
    """The folder `.live` of a run.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self.path = run / ".live"
        self._request = self.path / "request"
        self.state_file = self.path / "state.json"

    def ask(self) -> bool:
        """Say that somebody watches; False if the folder cannot be written to."""
        try:
            self.path.mkdir(exist_ok=True)
            self._request.touch()
        except OSError:
            return False
        return True

    def is_asked(self) -> bool:
        """Whether somebody has watched just now."""
        try:
            return abs(time.time() - self._request.stat().st_mtime) < _WATCHED_SECONDS
        except OSError:
            return False

    def order(self, order: Order) -> None:
        """Tell the training to do something."""
        self.ask()
        (self.path / order).touch()

    def take_orders(self) -> set[Order]:
        """What the training was told since the last time."""
        taken: set[Order] = set()
        for order in ORDERS:
            with suppress(OSError):
                (self.path / order).unlink()
                taken.add(order)
        return taken

    def frame(self, env: int) -> Path:
        """The latest picture of an environment."""
        return self.path / f"frame-{env}.jpg"

    def write(self, path: Path, content: bytes) -> None:
        """Put a file in its place in one go. It is not worth waiting for the disk: a second later there is another."""
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(content)
        temporary.replace(path)

    def write_state(self, state: dict[str, Any]) -> None:
        """Write what the training does now."""
        self.write(self.state_file, json.dumps(state, separators=(",", ":")).encode())

    def forget(self) -> None:
        """Remove what an earlier training of this run has left."""
        for name in (*ORDERS, self.state_file.name):
            with suppress(OSError):
                (self.path / name).unlink()
        for frame in self.path.glob("frame-*.jpg"):
            with suppress(OSError):
                frame.unlink()
