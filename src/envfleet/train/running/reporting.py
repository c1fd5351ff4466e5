"""How a run tells where it stands: to callbacks, and to people by a bar, or by lines where no bar can be drawn."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

from envfleet._references import can_be_imported, variable_name
from envfleet.train.agent import Agent
from envfleet.train.config import TrainConfig
from envfleet.train.running.notebook import Display, in_notebook
from envfleet.train.running.training_envs import TrainingEnvs

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

Clock: TypeAlias = Callable[[], float]

_LINE_SECONDS = 10.0
_LINE_SHARE = 0.1
_BAR_SECONDS = 0.5
"""Drawing takes a millisecond or two, in which nothing is learnt: a few thousandths of the time."""

_PACE_SECONDS = 30.0


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a run stands after a log interval.

    Attributes:
        step: environment steps so far.
        total_steps: how many there will be.
        seconds: spent training so far, resumed runs included.
        episodes: how many have ended so far.
        mean_return: of the last 100 episodes; None before the first one ended.
        row: the metrics of this interval by name, as in metrics.csv.
        agent: the policy as it is now; it goes on changing.
        envs: the environments, to be asked and changed: `call`, `get_attr`, `set_attr`, `parameters`.
        restarts: how often environments were made again after a failure so far.
        eval_return: the mean return of the latest evaluation during the training; None before the first one.
    """

    step: int
    total_steps: int
    seconds: float
    episodes: int
    mean_return: float | None
    row: Mapping[str, float | int | None]
    agent: Agent
    envs: TrainingEnvs
    restarts: int = 0
    eval_return: float | None = None


Callback: TypeAlias = Callable[[Progress], "bool | None"]
"""Called after every log interval; returning False ends the training there, as if it had been interrupted."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What `train` returns.

    Attributes:
        run_dir: the run's folder.
        agent: the trained policy.
        step: environment steps made.
        seconds: spent training, resumed runs included.
        mean_return: of the last 100 training episodes; None if none ended.
        finished: False if it was stopped before `total_steps`, by Ctrl-C, SIGTERM or the callback; `resume` goes on.
        stopped_by: the signal that came, SIGINT (Ctrl-C) or SIGTERM, if only in the last rollout; None if none did.
        reached_goal: whether it ended, finished, because the return `stop_at_return` was reached.
        restarts: how often environments were made again after a failure.
        best_return: the best evaluation during the training, whose weights are in `best/`; None if there was none.
    """

    run_dir: Path
    agent: Agent
    step: int
    seconds: float
    mean_return: float | None
    finished: bool
    stopped_by: signal.Signals | None = None
    reached_goal: bool = False
    restarts: int = 0
    best_return: float | None = None


class Reporter(ABC):
    """Shows a run's progress to people."""

    @abstractmethod
    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:
        """The run starts, at `step` if resumed; `plan` says where its environments run."""

    def say(self, line: str) -> None:
        """A remark, after `begin`; by default it is printed."""
        print(line, flush=True)

    @abstractmethod
    def report(self, progress: Progress) -> None:
        """A log interval is over."""

    @abstractmethod
    def end(self, result: TrainingResult | None) -> None:
        """The run is over; None if an error ended it."""


def console_reporter() -> Reporter:
    """The reporter that suits where standard output goes: a bar in a terminal or a notebook, lines in files."""
    if in_notebook():
        return NotebookReporter()
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return BarReporter() if terminal and importlib.util.find_spec("rich") else LineReporter()


@final
class LineReporter(Reporter):
    """Prints a line every ten seconds, or every tenth of the run if that comes first.

    Args:
        clock: the seconds since some moment.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock

    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:
        """Say what is about to happen."""
        for line in _heading(config, run_dir, plan, step):
            print(line)
        sys.stdout.flush()
        self._total = config.total_steps
        self._pace = _Pace(self._clock(), step)
        self._plan_next(step)

    def report(self, progress: Progress) -> None:
        """Print a line if it is time."""
        self._pace.note(self._clock(), progress.step)
        if self._clock() >= self._next_time or progress.step >= self._next_step:
            self._plan_next(progress.step)
            print(_line(progress, self._pace), flush=True)

    def end(self, result: TrainingResult | None) -> None:
        """Say how it ended."""
        if result is not None:
            print(_ending(result, self._total), flush=True)

    def _plan_next(self, step: int) -> None:
        share = _LINE_SHARE * self._total
        self._next_step = (step // share + 1) * share
        self._next_time = self._clock() + _LINE_SECONDS


class _BarReporter(Reporter):
    """Draws a progress bar twice per second, from the training's own thread.

    A subclass says where: `_open`, `_draw`, and `_close`, which also prints how the run ended.

    Args:
        clock: the seconds since some moment.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._drawn = -_BAR_SECONDS
        self._latest: Progress | None = None

    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:
        """Say what is about to happen and show the bar."""
        self._total = config.total_steps
        self._pace = _Pace(self._clock(), step)
        self._open(list(_heading(config, run_dir, plan, step)))
        self._draw(step, _of(step, self._total))

    def report(self, progress: Progress) -> None:
        """Draw the bar again if it is time."""
        now = self._clock()
        self._latest = progress
        self._pace.note(now, progress.step)
        if now >= self._drawn + _BAR_SECONDS:
            self._drawn = now
            left = duration(self._pace.seconds_left(progress))
            self._draw(progress.step, f"{_facts(progress, self._pace)}, {left} left")

    def end(self, result: TrainingResult | None) -> None:
        """Leave the bar as it is and say how it ended."""
        if result is not None and self._latest is not None:
            # The last rollout that fits in may well end before the last step.
            self._draw(self._total if result.finished else result.step, _facts(self._latest, self._pace))
        self._close("" if result is None else _ending(result, self._total))

    @abstractmethod
    def _open(self, heading: list[str]) -> None: ...

    @abstractmethod
    def _draw(self, step: int, facts: str) -> None: ...

    @abstractmethod
    def _close(self, ending: str) -> None: ...


@final
class BarReporter(_BarReporter):
    """A bar in a terminal. Rich's own drawing would take turns with the training."""

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    def _open(self, heading: list[str]) -> None:
        title, *details = heading
        self._bar = _rich_bar()
        self._bar.console.print(title, style="bold", highlight=False)
        for line in details:
            self.say(line)
        self._task = self._bar.add_task("", total=self._total, facts="")
        self._bar.start()

    def _draw(self, step: int, facts: str) -> None:
        self._bar.update(self._task, completed=step, facts=facts)
        self._bar.refresh()

    def _close(self, ending: str) -> None:
        self._bar.stop()
        if ending:
            self._bar.console.print(ending, highlight=False, markup=False, soft_wrap=True)


@final
class NotebookReporter(_BarReporter):
    """A bar below the notebook's cell, always in the same place."""

    def _open(self, heading: list[str]) -> None:
        self._display, self._heading = Display(), heading

    def _draw(self, step: int, facts: str) -> None:
        self._display.show("\n".join([*self._heading, facts]), step / self._total)

    def _close(self, ending: str) -> None:
        if ending:
            print(ending, flush=True)


def _rich_bar() -> RichProgress:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as RichProgress

    bar = BarColumn(bar_width=None, complete_style="cyan", finished_style="green")
    facts = TextColumn("{task.fields[facts]}", markup=False)
    return RichProgress(bar, TaskProgressColumn(), facts, auto_refresh=False, expand=True)


@final
class _Pace:
    """The speed over the last half minute: that of the whole run would say too long what was."""

    def __init__(self, now: float, step: int) -> None:
        self._marks = deque([(now, step)])

    def note(self, now: float, step: int) -> None:
        self._marks.append((now, step))
        while len(self._marks) > 2 and self._marks[1][0] <= now - _PACE_SECONDS:
            self._marks.popleft()

    @property
    def steps_per_second(self) -> float:
        (began, first), (ended, last) = self._marks[0], self._marks[-1]
        return (last - first) / max(ended - began, 1e-9)

    def seconds_left(self, progress: Progress) -> float:
        return (progress.total_steps - progress.step) / max(self.steps_per_second, 1e-9)


def _heading(config: TrainConfig, run_dir: Path, plan: str, step: int) -> Iterator[str]:
    copies = f"{config.num_envs} x {config.env_id}"
    yield f"{config.algo.upper()} on {copies}, {config.total_steps:,} steps, seed {config.seed}"
    if plan:
        yield f"environments: {plan}"
    yield f"run folder: {run_dir}"
    if not can_be_imported(config.env_id):
        name = variable_name(config.env_id)
        yield (
            f"{name} is defined in a notebook, a script or a function, where no other program can import it: there "
            f"load the agent with load_agent({str(run_dir)!r}, env={name})"
        )
    if step:
        yield f"resumed at step {step:,}"


def _line(progress: Progress, pace: _Pace) -> str:
    mean = "-" if progress.mean_return is None else score(progress.mean_return)
    width = len(str(progress.total_steps))
    return "   ".join(
        [
            f"{100 * progress.step // progress.total_steps:3d} %",
            f"step {progress.step:{width}d}/{progress.total_steps}",
            f"{pace.steps_per_second:7.0f} steps/s",
            f"return {mean:>8}",
            *([] if progress.eval_return is None else [f"evaluation {score(progress.eval_return):>8}"]),
            f"episodes {progress.episodes:6d}",
            *([f"restarts {progress.restarts:4d}"] if progress.restarts else []),
            f"elapsed {duration(progress.seconds):>7}",
            f"left {duration(pace.seconds_left(progress)):>7}",
        ]
    )


def _facts(progress: Progress, pace: _Pace) -> str:
    speed = pace.steps_per_second
    facts = [
        _of(progress.step, progress.total_steps),
        f"{speed / 1e3:.1f}k steps/s" if speed >= 1e4 else f"{speed:,.0f} steps/s",
        "" if progress.mean_return is None else f"return {score(progress.mean_return)}",
        "" if progress.eval_return is None else f"evaluation {score(progress.eval_return)}",
        f"restarts {progress.restarts}" if progress.restarts else "",
        duration(progress.seconds),
    ]
    return "  ".join(fact for fact in facts if fact)


def _ending(result: TrainingResult, total: int) -> str:
    mean = "" if result.mean_return is None else f"; mean return of the last 100 episodes {score(result.mean_return)}"
    speed = result.step / max(result.seconds, 1e-9)
    facts = f"{duration(result.seconds)} ({speed:,.0f} steps/s){mean}{_restarts(result)}"
    if result.reached_goal:
        return f"Reached the return to stop at after {result.step:,} of {total:,} steps in {facts}."
    if result.finished:
        return f"Trained {result.step:,} steps in {facts}."
    return (
        f"Stopped at {result.step:,} of {total:,} steps after {duration(result.seconds)}{mean}{_restarts(result)}.\n"
        f"Everything is saved. To go on:\n    {resume_command(result.run_dir, result.agent.config.env_id)}"
    )


def _restarts(result: TrainingResult) -> str:
    times = f"{result.restarts} restart{'s' * (result.restarts != 1)}"
    return f"; {times} of environments after failures" if result.restarts else ""


def _of(step: int, total: int) -> str:
    """The two in one unit, the first with fixed decimals so that the bar does not jump: 1.20M/2.5M."""
    if total >= 1_000_000:
        return f"{step / 1e6:.2f}M/{total / 1e6:.4g}M"
    if total >= 10_000:
        return f"{step / 1e3:.0f}k/{total / 1e3:.4g}k"
    return f"{step}/{total}"


def resume_command(run_dir: Path, env_id: str) -> str:
    """What to type to go on with a run: in a shell, or in the program that alone has its environment."""
    if not can_be_imported(env_id):
        return f"envfleet.train.resume({str(run_dir)!r}, env={variable_name(env_id)})"
    return f"{program('envfleet')} train --resume {shlex.quote(str(run_dir))}"


def program(name: str) -> str:
    """How a shell in this folder calls a program of this Python: by its name only where that would find it."""
    installed = Path(sys.executable).parent / name
    if shutil.which(name) == str(installed):
        return name
    if not installed.exists():
        return f"{shlex.quote(sys.executable)} -m {name}"
    nearby = installed.relative_to(Path.cwd()) if installed.is_relative_to(Path.cwd()) else installed
    return shlex.quote(str(nearby))


def score(value: float) -> str:
    """A return, with the decimals it needs: 243.1, 0.854."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def duration(seconds: float) -> str:
    """As people write it: 0:07, 12:30, 1:02:03."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
