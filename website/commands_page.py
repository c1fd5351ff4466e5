"""The reference page of the command line: what every command prints when it is asked for help."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

from envfleet.cli import main
from envfleet.cli.app import _COMMANDS
from envfleet.train.algorithms.registry import ALGORITHMS

SRC_URI = "reference/commands.md"
COLUMNS = 84

_PAGES = {
    "train": "../training.md",
    "sweep": "../sweep.md",
    "evaluate": "../training.md",
    "plot": "../curves.md",
    "report": "../report.md",
    "card": "../report.md",
    "export": "../export.md",
    "watch": "../watch.md",
    "showcase": "../training.md#films",
    "tune": "../tune.md",
}
"""What to read besides."""

_TOP = """---
title: Commands
---

# Commands

`envfleet COMMAND --help` prints what is below. `RUN` is the folder of a run, a folder with runs in it, or `latest`.
Exit codes: 0 if all went well, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C, 143 after SIGTERM.

"""


def page() -> str:
    """The page as Markdown."""
    return _TOP + "\n".join(_section(name) for name in _COMMANDS)


def _section(name: str) -> str:
    command = _COMMANDS[name]
    purpose = f"{command.purpose[0].upper()}{command.purpose[1:]}."
    parts = [f"## envfleet {name}\n\n{purpose} [More]({_PAGES[name]}).\n\n```sh\n{command.example}\n```\n"]
    if name == "train":
        parts += [f"### envfleet train --algo {algo}\n\n{_help('train', '--algo', algo)}" for algo in ALGORITHMS]
        parts += [f"### envfleet train --resume\n\n{_help('train', '--resume', 'RUN')}"]
    else:
        parts += [_help(name)]
    return "\n".join(parts)


def _help(*arguments: str) -> str:
    return f"```text\n{help_text(arguments)}\n```\n"


def help_text(arguments: Sequence[str]) -> str:
    """What `envfleet … --help` prints, without colours."""
    output = io.StringIO()
    with _plain_terminal(), redirect_stdout(output):
        code = main([*arguments, "--help"])
    if code != 0:
        raise RuntimeError(f"envfleet {' '.join(arguments)} --help ended with code {code}.")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())
    return "\n".join(line.rstrip() for line in plain.strip().splitlines())


@contextmanager
def _plain_terminal() -> Iterator[None]:
    names = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
