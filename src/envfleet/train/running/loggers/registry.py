"""The table of loggers.

To add a logger to envfleet, write it in a file beside this one and add a line to `LOGGERS`. A program of your own calls
`register_logger`. `train`, `resume` and the command line read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from envfleet._optional import require
from envfleet.train.running.loggers.log_writer import LoggedRun, LogWriter
from envfleet.train.running.loggers.tensorboard import TensorBoardWriter
from envfleet.train.running.loggers.wandb import WandbWriter

OpenLogger: TypeAlias = Callable[[LoggedRun], LogWriter]


@dataclass(frozen=True)
class Logger:
    """A line of the table.

    Attributes:
        open: makes the writer, when the run begins.
        package: what has to be installed, by an extra of envfleet with that name.
    """

    open: OpenLogger
    package: str | None = None


LOGGERS: dict[str, Logger] = {
    "tensorboard": Logger(lambda run: TensorBoardWriter(run.path, run.resumed_at)),
    "wandb": Logger(lambda run: WandbWriter(run.path, run.config, run.path.name), package="wandb"),
}
"""By name."""


def register_logger(name: str, open_logger: OpenLogger) -> None:
    """Add a logger of your own: `train(config, loggers=[name])` and `--loggers name` then log to it.

    Args:
        name: what it is called; a logger of that name is replaced.
        open_logger: makes the `LogWriter` when a run begins, from its `LoggedRun`: `.path`, `.config`, `.resumed_at`. A
            class whose constructor takes that is such a function.
    """
    LOGGERS[name] = Logger(open_logger)


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that do not exist, or that need a package which is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"loggers must be of {', '.join(LOGGERS)}, got {name!r}; register_logger() adds your own.")
        if (package := LOGGERS[name].package) is not None:
            require(package, package)
