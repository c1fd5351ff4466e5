"""What went wrong, as a sentence for whoever typed the command."""

from __future__ import annotations

import traceback
from pathlib import Path

import gymnasium

import envfleet
from envfleet.errors import EnvRaisedError, FleetError

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells count it: 128 and the signal's number."""

_TRAIN_EXTRA = frozenset(
    ("docstring_parser", "imageio_ffmpeg", "matplotlib", "rich", "safetensors", "tensorboard", "torch", "tyro")
)
_PACKAGE = Path(envfleet.__file__).parent


class UsageError(ValueError):
    """The command was used in a way it does not offer."""


def explained(error: Exception) -> str | None:
    """The error as a sentence, or None for a surprise that deserves its traceback.

    What envfleet says itself, and what is known to be about the user's environment, files or installation, needs no
    traceback. A ValueError from the depths of a library does.
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
    """Whether a `raise` of envfleet's own raised it: then somebody has written the sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not isinstance(error, (ValueError, TypeError, OSError)):
        return False
    return Path(frames[-1].filename).is_relative_to(_PACKAGE) and (frames[-1].line or "").startswith("raise ")
