"""What the trials found, as one JSON file that grows run by run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envfleet.train.algorithms.registry import config_from_dict
from envfleet.train.atomic_files import replacing
from envfleet.train.config import config_to_dict

from .trials import Case, Settings


@dataclass(frozen=True)
class Outcome:
    """One run: how well its agent plays.

    Attributes:
        settings: "old" or "new".
        seed: the run's.
        mean_return: of the evaluation's episodes, without exploring.
        training_return: the mean over the last 100 training episodes; None if fewer have ended.
        steps: environment steps of the training.
        seconds: how long the training took, on a machine that did other things too.
    """

    settings: Settings
    seed: int
    mean_return: float
    training_return: float | None
    steps: int
    seconds: float


@dataclass(frozen=True)
class ResultFile:
    """Where the outcomes of all cases are kept, with the configurations they belong to."""

    path: Path

    def read(self, case: Case) -> tuple[Outcome, ...]:
        """What is there, in order; runs whose configuration was another than today's do not count any more."""
        entry = self._everything()["cases"].get(case.name, {"configs": {}, "runs": []})
        runs = [Outcome(**plain) for plain in entry["runs"]]
        return tuple(run for run in runs if _was_trained_with(entry["configs"].get(run.settings), case, run.settings))

    def add(self, case: Case, outcome: Outcome, about: Mapping[str, Any]) -> None:
        """Put one run among the others; `about` says by which command, and where, the last ones were made."""
        others = [run for run in self.read(case) if (run.settings, run.seed) != (outcome.settings, outcome.seed)]
        runs = sorted([*others, outcome], key=lambda run: (run.settings, run.seed))
        everything = self._everything()
        everything |= about
        everything["cases"][case.name] = _entry(case, runs)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(everything, indent=1) + "\n")

    def _everything(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"cases": {}}
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found


def _was_trained_with(plain: Mapping[str, Any] | None, case: Case, settings: Settings) -> bool:
    """Whether a configuration is that of today; settings that have come since count as for runs of earlier versions."""
    if plain is None:
        return False
    today = case.plain_config(settings)
    then = config_to_dict(config_from_dict(case.algo, plain))
    return {name: then[name] for name in today} == today


def _entry(case: Case, runs: Sequence[Outcome]) -> dict[str, Any]:
    configs = {run.settings: case.plain_config(run.settings) for run in runs}
    return {"configs": configs, "runs": [asdict(run) for run in runs]}
