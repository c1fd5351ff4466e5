"""The rows of metrics.csv in other people's viewers: TensorBoard, Weights & Biases."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from envfleet._optional import require
from envfleet.train.running.metrics import LogWriter, Row

_TAGS = {
    "actor_loss": "loss/actor",
    "approx_kl": "policy/approx_kl",
    "clip_fraction": "policy/clip_fraction",
    "critic_loss": "loss/critic",
    "dropped_episodes": "episode/dropped",
    "entropy": "policy/entropy",
    "episode_length": "episode/length",
    "episode_return": "episode/return",
    "episodes": "episode/count",
    "epochs": "learning/epochs",
    "explained_variance": "critic/explained_variance",
    "learning_rate": "learning/learning_rate",
    "q_value": "critic/q_value",
    "seconds": "speed/seconds",
    "steps_per_second": "speed/steps_per_second",
    "temperature": "policy/temperature",
}
_FLUSH_SECONDS = 10


@final
class TensorBoardWriter(LogWriter):
    """Writes rows as TensorBoard scalars, such as "episode/return" and "loss/critic", into a run's folder.

    Args:
        run_dir: The folder; an events.out.tfevents file of this writer's own is made in it.
        resume_at_step: Hides what an earlier run in the same folder wrote beyond this step.
    """

    def __init__(self, run_dir: str | os.PathLike[str], resume_at_step: int | None = None) -> None:
        # Not through torch.utils.tensorboard, which takes longer to import and writes an event a scalar.
        writer = require("tensorboard.summary.writer.event_file_writer", "train")
        self._protocol = require("tensorboard.compat.proto.event_pb2", "train")
        self._summary = require("tensorboard.compat.proto.summary_pb2", "train").Summary
        self._events = writer.EventFileWriter(os.fspath(run_dir), flush_secs=_FLUSH_SECONDS)
        if resume_at_step is not None:
            start = self._protocol.SessionLog(status=self._protocol.SessionLog.START)
            # TensorBoard hides the events from this step on, and the one at `resume_at_step` is to stay.
            self._add(resume_at_step + 1, session_log=start)

    def write(self, row: Row) -> None:
        """Writes one row as one event; what is None or NaN is left out."""
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(row).items()]
        self._add(int(row["step"] or 0), summary=self._summary(value=values))

    def close(self) -> None:
        """Writes what is waiting and closes the file."""
        self._events.close()

    def _add(self, step: int, **content: Any) -> None:
        self._events.add_event(self._protocol.Event(step=step, wall_time=time.time(), **content))


@final
class WandbWriter(LogWriter):
    """Sends rows to Weights & Biases, by the same names as to TensorBoard.

    A run resumed in the same folder goes on as the same run there.

    Args:
        run_dir: The folder; wandb keeps its files in a subfolder.
        config: The hyperparameters to show beside the curves.
        name: The run's name there.
    """

    def __init__(self, run_dir: str | os.PathLike[str], config: Mapping[str, Any], name: str) -> None:
        wandb = require("wandb", "wandb")
        identity = Path(run_dir) / "wandb" / "run-id"
        known = identity.read_text(encoding="utf-8").strip() if identity.exists() else None
        self._run = wandb.init(
            project="envfleet",
            name=name,
            config=dict(config),
            dir=os.fspath(run_dir),
            id=known,
            resume="allow",
            # The terminal belongs to the progress bar.
            settings=wandb.Settings(console="off"),
        )
        identity.parent.mkdir(parents=True, exist_ok=True)
        identity.write_text(f"{self._run.id}\n", encoding="utf-8")
        # wandb's own step counts calls and refuses to go back, as it must after a resume.
        self._run.define_metric("*", step_metric="step")

    def write(self, row: Row) -> None:
        """Sends one row; what is None or NaN is left out."""
        self._run.log({"step": row["step"], **_scalars(row)})

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()


def _scalars(row: Row) -> dict[str, float]:
    """The row's numbers by tag; a column of one's own goes under "other"."""
    return {
        _TAGS.get(name, f"other/{name}"): float(value)
        for name, value in row.items()
        if name != "step" and value is not None and not math.isnan(value)
    }
