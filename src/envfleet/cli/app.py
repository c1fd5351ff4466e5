"""`envfleet COMMAND`: runs the command, and turns errors into a message and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from envfleet._names import likely
from envfleet.cli.errors import INTERRUPTED, UsageError, explained


@dataclass(frozen=True)
class _Command:
    purpose: str
    example: str


_COMMANDS = {
    "train": _Command(
        "train an agent; curves, weights and a video go into a folder, the run",
        "envfleet train LunarLander-v3 --algo a2c --num-envs 10",
    ),
    "sweep": _Command(
        "train many times with other settings, find the best and say what mattered; needs Optuna",
        "envfleet sweep CartPole-v1 --algo ppo --trials 20",
    ),
    "evaluate": _Command(
        "play episodes with a run's agent and report their returns, also across scenarios",
        "envfleet evaluate RUN --episodes 100 --sweep gravity=-11:-2:6",
    ),
    "plot": _Command(
        "draw the learning curves of one run or several",
        "envfleet plot RUN RUN --output curves.png",
    ),
    "report": _Command(
        "write one HTML file about runs, to send to somebody: results, curves, films, settings",
        "envfleet report RUN RUN --output report.html",
    ),
    "card": _Command(
        "write a model card for a run: Markdown with the metadata that model hubs read",
        "envfleet card RUN",
    ),
    "export": _Command(
        "write a run's policy to one file for other programs, with normalisation and bounds inside",
        "envfleet export RUN --onnx",
    ),
    "watch": _Command(
        "show runs as they go on a local page: curves, speed, the fleet; buttons to save, stop and film",
        "envfleet watch runs",
    ),
    "showcase": _Command(
        "film episodes of a run's agent",
        "envfleet showcase RUN --episodes 3",
    ),
    "tune": _Command(
        "measure what runs an environment fastest on this machine, and print the line of code that makes it",
        "envfleet tune LunarLander-v3 --num-envs 64",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 (it failed), 2 (wrong usage), 130 (Ctrl-C) or 143 (SIGTERM).

    Args:
        argv: the arguments after the program's name; by default those of this process.
    """
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except SystemExit as end:  # how the parser ends after a help text, and after a misspelt option
        return end.code if isinstance(end.code, int) else 1
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        sentence = explained(error)
        if sentence is None:
            raise
        print(f"envfleet: {sentence}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        from envfleet import __version__

        print(f"envfleet {__version__}")
        return 0
    name, *arguments = argv
    if name not in _COMMANDS:
        close = likely(name, _COMMANDS)
        meant = f", did you mean {close!r}?" if close else "."
        raise UsageError(f"there is no command {name!r}{meant} The commands are {', '.join(_COMMANDS)}.")
    # Late: the commands need libraries that this overview does not, and that may not be installed.
    module = importlib.import_module(f"envfleet.cli.{name}")
    code: int = module.run(arguments)
    return code


def _overview() -> str:
    lines = ["usage: envfleet COMMAND ...", "", "Many copies of an environment at once, and agents trained on them.\n"]
    for name, command in _COMMANDS.items():
        lines += textwrap.wrap(f"  {name:<10} {command.purpose}", 80, subsequent_indent=f"  {'':<10} ")
        lines.append(f"  {'':<10} $ {command.example}\n")
    return "\n".join(
        [*lines, "envfleet COMMAND --help lists a command's settings;", "envfleet --version says which this is."]
    )
