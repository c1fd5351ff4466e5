"""The rows of metrics.csv in TensorBoard."""

from __future__ import annotations

import os
import time
from typing import Any, final

from envfleet._optional import require
from envfleet.train.running.loggers.log_writer import LogWriter, Row, scalars

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
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars(row).items()]
        self._add(int(row["step"] or 0), summary=self._summary(value=values))

    def close(self) -> None:
        """Writes what is waiting and closes the file."""
        self._events.close()

    def _add(self, step: int, **content: Any) -> None:
        self._events.add_event(self._protocol.Event(step=step, wall_time=time.time(), **content))
