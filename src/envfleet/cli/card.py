"""`envfleet card`: a model card for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from envfleet.cli.parsing import parse
from envfleet.cli.runs import chosen_run


@dataclass(frozen=True)
class _Options:
    """Write a model card: Markdown with the metadata that model hubs read. Every number is the run folder's.

    Attributes:
        run: the run's folder. A folder of runs means the newest in it, and latest the newest in runs/.
        output: the file to write; by default README.md in the run.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "card", argv)
    from envfleet.train.sharing.card import write_card

    print(write_card(chosen_run(options.run), options.output))
    return 0
