"""`envfleet tune`: measures what runs an environment fastest on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from envfleet.cli.environment import ENV_HELP, look_here
from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import EnvKwargs, parse

if TYPE_CHECKING:
    from envfleet.tuning import TuningResult


@dataclass(frozen=True)
class _Options:
    """Measure what runs an environment fastest on this machine, and print the line of code that makes it.

    Backends, numbers of workers and batch sizes take turns, with random actions. The table shows steps per second: the
    median of all turns, and the lowest and the highest turn.

    Attributes:
        num_envs: the number of environments; several numbers are compared.
        seconds: the longest time it may take; candidates that do not fit are left out.
        env_kwargs: constructor arguments of the environment, such as gravity=-5 enable_wind=True.
        first_ready: also try send() and recv(), with batches of a half and a quarter of the environments.
        as_json: print one line of JSON instead of a table.
    """

    env_id: Annotated[Positional[str], arg(metavar="ENV", help=ENV_HELP)]
    num_envs: Annotated[tuple[int, ...], arg(metavar="INT ...", help_behavior_hint="(default: 8 16 64)")] = ()
    seconds: float = 45.0
    env_kwargs: Annotated[EnvKwargs, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)
    first_ready: bool = True
    as_json: Annotated[bool, FlagCreatePairsOff, arg(name="json", help_behavior_hint="")] = False


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "tune", argv)
    _refuse_own_names(options.env_kwargs)
    look_here(":" in options.env_id)
    from envfleet.tuning import tune

    try:
        result = tune(
            options.env_id,
            options.num_envs or None,
            seconds=options.seconds,
            first_ready=options.first_ready,
            progress=_say_under_way,
            **options.env_kwargs,
        )
    finally:
        _say_under_way("")
    if options.as_json:
        print(json.dumps(result.to_json_dict()))
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _print_richly(result)
    else:
        print(result)
    return 0


def _refuse_own_names(env_kwargs: EnvKwargs) -> None:
    own = {"env": "", "num_envs": "--num-envs", "seconds": "--seconds", "first_ready": "--first-ready", "progress": ""}
    for name in env_kwargs:
        if name in own:
            instead = f": for tune's own setting write {own[name]}" if own[name] else ""
            raise UsageError(f"--env-kwargs cannot hold {name!r}, which is an argument of tune itself{instead}.")


def _print_richly(result: TuningResult) -> None:
    from rich.console import Console
    from rich.table import Table

    from envfleet.tuning import report

    console = Console(highlight=False)
    table = Table(title=report.heading(result), title_justify="left", title_style="bold")
    for number, heading in enumerate(report.HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in report.rows(result):
        table.add_row(*row, style="bold green" if row[0] == report.WINNER else "")
    console.print(table, markup=False)
    for line in (report.explanation(result), *result.notes):
        console.print(line, style="dim", markup=False)
    for introduction, code in report.advice(result):
        console.print(f"\n{introduction}", style="bold")
        # Not by the console: it would break long lines, and what is pasted must be whole.
        print("\n".join(f"    {line}" for line in code.splitlines()))


def _say_under_way(text: str) -> None:
    """Print a line that the next one replaces; print nothing if the output is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
