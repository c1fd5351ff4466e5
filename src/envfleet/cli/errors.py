"""Turns errors into messages for the user of a command."""

from __future__ import annotations

import traceback
from pathlib import Path

import gymnasium

import envfleet
from envfleet.errors import EnvRaisedError, FleetError

INTERRUPTED = 130
"""The exit code of a program that was ended by Ctrl-C, as in shells: 128 plus the signal's number."""

_TRAIN_EXTRA = frozenset(
    ("docstring_parser", "imageio_ffmpeg", "matplotlib", "PIL", "rich", "safetensors", "tensorboard", "torch", "tyro")
)
_OURS = (ImportError, OSError, RuntimeError, TypeError, ValueError)
"""What envfleet raises with a message for users. The same from inside a library is another matter."""

_PACKAGE = Path(envfleet.__file__).parent


class UsageError(ValueError):
    """The command was used in a wrong way."""


def explained(error: Exception) -> str | None:
    """Return the error as a message, or None for an unexpected error, which needs its traceback.

    Errors raised by envfleet itself, and errors about the user's environment, files or installation, need no
    traceback. A ValueError from inside a library does.
    """
    missing = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in _TRAIN_EXTRA:
        return f'{missing} is needed for this and is not installed; run\n    pip install "envfleet[train]"'
    if isinstance(error, EnvRaisedError) and error.method == "make":
        cause = error.__cause__
        return f"the environment cannot be made: {type(cause).__name__}: {cause}"
    if isinstance(error, (FleetError, gymnasium.error.Error, ModuleNotFoundError)):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if _said_by_envfleet(error) else None


def _said_by_envfleet(error: Exception) -> bool:
    """Return whether a `raise` in envfleet itself raised the error, so that its message was written for users."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not isinstance(error, _OURS):
        return False
    return Path(frames[-1].filename).is_relative_to(_PACKAGE) and (frames[-1].line or "").startswith("raise ")
