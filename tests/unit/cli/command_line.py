"""What the tests of the command line share."""

from __future__ import annotations

import re
from collections.abc import Callable

TINY = [
    *("--algo", "a2c", "--num-envs", "2", "--rollout-steps", "16", "--hidden-sizes", "8", "--critic-updates", "1"),
    *("--backend", "sync"),
]
"""Settings with which a2c trains in no time."""

Run = Callable[..., tuple[int, str, str]]
"""Takes the arguments of a command line; returns exit code, output and errors."""


def flat(help_text: str) -> str:
    """A help text without its boxes and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", help_text).split())
