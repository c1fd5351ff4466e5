"""What a sweep leaves on disk: what it was told, Optuna's study, and a run's folder for every trial."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from envfleet._references import folder_name
from envfleet.errors import DamagedRunError
from envfleet.scenarios import format_randomize, parse_randomize
from envfleet.train.algorithms.registry import config_from_dict
from envfleet.train.atomic_files import remove_partials, replacing
from envfleet.train.config import TrainConfig, config_to_dict
from envfleet.train.folders.finding import RUNS
from envfleet.train.folders.locking import LOCK_FILE, locked
from envfleet.train.folders.trust import AllowImport, check_allowed, modules_named, remember
from envfleet.train.sweeping.space import SearchSpace, check_search

PrunerName: TypeAlias = Literal["median", "halving", "none"]
"""What ends bad trials early: below the median of the others, by successive halving, or nothing."""

_FORMAT = 1
_FIELDS = ("algo", "config", "search", "trials", "pruner")


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep was told.

    Attributes:
        config: the configuration of every trial, but for what is searched.
        search: what is searched.
        trials: how many trials there are to be.
        pruner: what ends bad trials early.
    """

    config: TrainConfig
    search: SearchSpace
    trials: int
    pruner: PrunerName

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ValueError(f"trials must be an integer of at least 1, got {self.trials!r}.")
        if self.pruner not in ("median", "halving", "none"):
            raise ValueError(f"pruner must be median, halving or none, got {self.pruner!r}.")
        check_search(self.config, self.search)


@final
class SweepFolder:
    """The folder of a sweep.

    Args:
        path: where it is.

    Attributes:
        path: the folder.
        plan: the file with what the sweep was told.
        study: Optuna's study, an SQLite database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "sweep.json"
        self.study = path / "study.db"

    def trial(self, number: int) -> Path:
        """The run's folder of a trial."""
        return self.path / f"trial{number:04d}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working on the sweep, and remove what killed ones have left half written."""
        with locked(self.path):
            remove_partials(self.path, {self.plan.name})
            yield

    def check_free(self) -> None:
        """Refuse a folder that holds a sweep already."""
        if self.plan.exists():
            raise FileExistsError(
                f"{self.path} holds a sweep already: go on with it (envfleet sweep --resume {self.path}, or "
                f"envfleet.train.resume_sweep({str(self.path)!r})) or choose another folder."
            )

    def write(self, plan: SweepPlan) -> None:
        """Note what the sweep is told."""
        content = {
            "format": _FORMAT,
            "envfleet": version("envfleet"),
            "algo": plan.config.algo,
            "config": config_to_dict(plan.config),
            "search": format_randomize(plan.search),
            "trials": plan.trials,
            "pruner": plan.pruner,
        }
        text = json.dumps(content, indent=2) + "\n"
        if modules_named(plan.config):
            remember(self.path, text.encode())
        with replacing(self.plan) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read(self) -> SweepPlan:
        """What the sweep was told."""
        return self._read(self._content())

    def read_allowed(self, allow_import: AllowImport, env: Any = None) -> SweepPlan:
        """The same, of a sweep whose environment may be made: one that names modules must be trusted or allowed.

        `env`, which the user gives, takes the place of the environment that the sweep names and needs no permission.
        """
        content = self._content()
        plan = self._read(content)
        config = plan.config if env is None else replace(plan.config, env_id=env)
        if env is None:
            check_allowed(self.path, content, config, allow_import)
        return replace(plan, config=config)

    def trust(self, allowed: AllowImport) -> None:
        """Remember that the user trusts this sweep, which names no other modules than those that were allowed."""
        content = self._content()
        check_allowed(self.path, content, self._read(content).config, allowed)
        remember(self.path, content)

    @contextmanager
    def left_if_begun(self) -> Iterator[None]:
        """Have a new sweep that raises before any trial could begin leave nothing behind: it is to be called again."""
        try:
            yield
        except BaseException:
            if not self.any_begun():
                for file in (self.plan, self.study, self.path / LOCK_FILE):
                    file.unlink(missing_ok=True)
                with suppress(OSError):  # what else is there is not ours
                    self.path.rmdir()
            raise

    def any_begun(self) -> bool:
        """Whether any trial has got as far as making its environments and networks."""
        return any(self.path.glob("trial*/config.json"))

    def _content(self) -> bytes:
        try:
            return self.plan.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{self.path} is not the folder of a sweep: it has no {self.plan.name}. Give the folder that "
                "`envfleet sweep` printed."
            ) from None

    def _read(self, raw: bytes) -> SweepPlan:
        try:
            content = json.loads(raw)
            missing = sorted({"format", *_FIELDS} - content.keys())
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}")
            if content["format"] != _FORMAT:
                raise ValueError(f"it has format {content['format']!r}, this envfleet reads format {_FORMAT}")
            config = config_from_dict(content["algo"], content["config"])
            search = parse_randomize([f"{name}={text}" for name, text in content["search"].items()])
            return SweepPlan(config, search, content["trials"], content["pruner"])
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise DamagedRunError(f"{self.plan} is damaged: {str(error).rstrip('.')}.") from error


def new_sweep_path(config: TrainConfig) -> Path:
    """A folder of its own for a new sweep, below `runs/`."""
    parent = RUNS / folder_name(config.env_id)
    name = f"sweep-{config.algo}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (name, *(f"{name}-{number}" for number in range(2, 100)))
    return next((parent / free for free in names if not (parent / free).exists()), parent / name)
