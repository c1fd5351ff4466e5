"""Train one seed of a study, in this process, and evaluate it: what came of it is printed as JSON.

python benchmarks/learning/one_run.py '{"study": "cartpole-a2c", "seed": 0, "backend": "sync", "quick": true}' RUN
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envfleet.train import Progress, Reporter, TrainConfig, TrainingResult, evaluate, resume, train
from envfleet.train.folders.folder import RunFolder
from learning.studies import episodes, study_named


@final
class PlanNote(Reporter):
    """Notes where the environments ran."""

    plan = ""

    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:  # noqa: ARG002
        """The run starts."""
        self.plan = plan

    def report(self, progress: Progress) -> None:
        """Nothing."""

    def end(self, result: TrainingResult | None) -> None:
        """Nothing."""


def one_run(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train, or go on with a run that was stopped, then play."""
    config = study_named(request["study"]).config(request["seed"], request["backend"], quick=request["quick"])
    load_before, note = os.getloadavg(), PlanNote()
    result = _trained(config, folder, note)
    if not result.finished:
        raise SystemExit(f"stopped after {result.step} steps; run it again to go on")
    started = time.perf_counter()
    found = evaluate(folder, episodes=episodes(quick=request["quick"]), backend=request["backend"])
    return {
        "steps": result.step,
        "training_seconds": result.seconds,
        "steps_per_second": result.step / result.seconds,
        "training_return": result.mean_return,
        "plan": note.plan,
        "evaluation_seconds": time.perf_counter() - started,
        "evaluation": found.to_json_dict(),
        "load_before": load_before,
        "load_after": os.getloadavg(),
    }


def _trained(config: TrainConfig, folder: Path, note: PlanNote) -> TrainingResult:
    run = RunFolder(folder)
    if run.checkpoint.exists() and run.read_config()[0] == config:
        return resume(folder, reporter=note)
    if folder.exists():
        shutil.rmtree(folder)
    return train(config, run_dir=folder, reporter=note)


if __name__ == "__main__":
    print(json.dumps(one_run(json.loads(sys.argv[1]), Path(sys.argv[2]))))
