"""Decides whether a command may import the modules that a run names: by option, or by asking at the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, arg

from envfleet.cli.environment import look_here

if TYPE_CHECKING:
    from envfleet.train.config import TrainConfig
    from envfleet.train.folders.trust import AllowImport


@dataclass(frozen=True)
class Permission:
    """Which modules may be imported.

    Attributes:
        allow_import: import the modules and files that the run's configuration names, which executes them. Runs that
            you trained on this machine need no permission.
        allow_module: the same for this module or file only.
    """

    allow_import: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    allow_module: Annotated[str | None, arg(metavar="MODULE", help_behavior_hint="")] = None

    def for_run(self, run: Path) -> AllowImport:
        """Return what is allowed for a run; ask first, if that is necessary and there is a terminal."""
        # Late: with the folder comes torch, which takes seconds to load, and a help text does not need it.
        from envfleet.train.folders.folder import RunFolder

        folder = RunFolder(run)
        return self._decide(run, folder.read_config()[0], folder.read_allowed_config, folder.trust)

    def for_sweep(self, path: Path) -> AllowImport:
        """The same for a sweep."""
        from envfleet.train.sweeping.folder import SweepFolder

        folder = SweepFolder(path)
        return self._decide(path, folder.read().config, folder.read_allowed, folder.trust)

    def _decide(
        self,
        path: Path,
        config: TrainConfig,
        check: Callable[[AllowImport], object],
        trust: Callable[[AllowImport], None],
    ) -> AllowImport:
        from envfleet.errors import UntrustedRunError
        from envfleet.train.folders.trust import modules_named

        allowed: AllowImport = self.allow_import or self.allow_module or False
        names = modules_named(config)
        try:
            check(allowed)
        except UntrustedRunError:
            if not (sys.stdin.isatty() and sys.stderr.isatty()) or not _says_yes(path, names):
                raise
            trust(names)
            allowed = names
        look_here(bool(names))
        return allowed


def _says_yes(run: Path, names: tuple[str, ...]) -> bool:
    print(
        f"{run} was not trained here by you. Its configuration names {', '.join(names)}, to be imported: that executes "
        "the code in it.\nImport it, and trust this run from now on? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")
