"""The rows of metrics.csv in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from envfleet._optional import require
from envfleet.train.running.loggers.log_writer import LogWriter, Row, scalars


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
        self._run.log({"step": row["step"], **scalars(row)})

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()
