"""`train` and `resume`: the shell around the loop, with seeds, folders, logs, interruptions."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TypeAlias, final

import torch

from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.config import TrainConfig, config_to_dict
from envfleet.train.environments import make_task, make_training_envs
from envfleet.train.networks.networks import Networks
from envfleet.train.running.checkpoint import check_networks, load_checkpoint, save_checkpoint
from envfleet.train.running.folder import AnyPath, RunFolder, naming_what_is_kept
from envfleet.train.running.loggers.log_writer import LoggedRun, LogWriter
from envfleet.train.running.loggers.registry import LOGGERS, check_loggers
from envfleet.train.running.memory import give_back_memory
from envfleet.train.running.metrics import MetricsWriter
from envfleet.train.running.reporting import Callback, Reporter, TrainingResult, console_reporter
from envfleet.train.running.training import Training
from envfleet.train.running.trust import AllowImport
from envfleet.vector import FleetVectorEnv
from envfleet.wrappers._common import AnyVectorEnv

_CHECKPOINT_SECONDS = 60.0
_CHECKPOINT_SHARE = 0.02
"""At most this share of a run's time goes into checkpoints, however large they are."""


@dataclass(frozen=True, eq=False)
class _Options:
    """How to run, apart from what to learn."""

    networks: Networks | None
    callback: Callback | None
    reporter: Reporter | None
    loggers: tuple[str, ...]


_Start: TypeAlias = Callable[[Training, Learner], "int | None"]
"""What is done when all is made and before anything is learnt; returns the step that a resumed run goes on from."""


def train(
    config: TrainConfig,
    *,
    run_dir: AnyPath | None = None,
    networks: Networks | None = None,
    callback: Callback | None = None,
    reporter: Reporter | None = None,
    progress: bool = True,
    loggers: Sequence[str] = ("tensorboard",),
    wandb: bool = False,
) -> TrainingResult:
    """Train an agent; everything about the run goes into a folder.

    Ctrl-C and SIGTERM (in the main thread) end the run after the rollout under way, saved, so that `resume` can go on.
    The folder is locked meanwhile: a second trainer is refused.

    Args:
        config: an A2CConfig, PPOConfig or SACConfig.
        run_dir: the run's folder, which must not hold a run yet; by default one below `runs/`.
        networks: your own networks instead of envfleet's.
        callback: called after every log interval; returning False ends the run there.
        reporter: shows progress; by default a bar in a terminal and lines elsewhere.
        progress: False shows nothing.
        loggers: where to log besides metrics.csv, by name: "tensorboard", "wandb", or what `register_logger` added.
        wandb: also log to Weights & Biases.
    """
    folder = RunFolder(Path(run_dir) if run_dir is not None else _new_path(config))
    folder.check_free()
    options = _Options(networks, callback, _reporter(reporter, progress), _loggers(loggers, wandb))
    with ExitStack() as lock:

        def begin(training: Training, learner: Learner) -> None:
            # Only now, so that a run that cannot even begin leaves no folder behind.
            lock.enter_context(folder.locked())
            folder.check_free()
            _save(training, learner, folder)
            folder.create(config, custom_networks=networks is not None)

        return _run(config, folder, options, begin)


def resume(
    run_dir: AnyPath,
    *,
    networks: Networks | None = None,
    callback: Callback | None = None,
    reporter: Reporter | None = None,
    progress: bool = True,
    loggers: Sequence[str] = ("tensorboard",),
    wandb: bool = False,
    allow_import: AllowImport = False,
) -> TrainingResult:
    """Go on with a run that was stopped, as if it had not been: the same numbers come out.

    Args:
        run_dir: the run's folder.
        networks: for a run with networks of your own: fresh ones of the same architecture, to be filled.
        callback: as for `train`.
        reporter: as for `train`.
        progress: as for `train`.
        loggers: as for `train`.
        wandb: as for `train`.
        allow_import: for a run that was not trained here by you, as for `load_agent`.
    """
    folder = RunFolder(Path(run_dir))
    config, custom_networks = folder.read_allowed_config(allow_import)
    check_networks(folder, networks, custom=custom_networks)
    options = _Options(networks, callback, _reporter(reporter, progress), _loggers(loggers, wandb))
    with folder.locked():
        checkpoint = load_checkpoint(folder)

        def go_on(training: Training, learner: Learner) -> int:
            if checkpoint is None:
                _save(training, learner, folder)
            else:
                training.restore(checkpoint)
            return training.step

        return _run(config, folder, options, go_on)


def _run(config: TrainConfig, folder: RunFolder, options: _Options, start: _Start) -> TrainingResult:
    result: TrainingResult | None = None
    with ExitStack() as stack:
        stack.enter_context(_torch_settings(config))
        envs = make_training_envs(config)
        stack.callback(envs.close)
        task = make_task(config, envs.single_observation_space, envs.single_action_space, options.networks)
        learner = make_learner(config, task)
        agent = Agent(
            config, learner.actor, envs.single_observation_space, envs.unwrapped.single_action_space, task.device
        )
        training = Training(config, envs, learner, agent)
        resumed_at = start(training, learner)
        writers = [stack.enter_context(writer) for writer in _writers(config, folder, resumed_at, options)]
        if options.reporter is not None:
            options.reporter.begin(config, folder.path, _plan(envs), training.step)
        try:
            with naming_what_is_kept(folder):
                stopped_by = _loop(training, learner, folder, writers, options)
            learner.actor.eval()
            result = TrainingResult(
                folder.path, agent, training.step, training.seconds, training.mean_return, training.finished, stopped_by
            )
        finally:
            if options.reporter is not None:
                options.reporter.end(result)
    return result


def _loop(
    training: Training, learner: Learner, folder: RunFolder, writers: Sequence[LogWriter], options: _Options
) -> signal.Signals | None:
    """Train to the end, or until the callback or a signal, which is returned, stops it."""
    clock = _CheckpointClock()
    stopped = False
    with _interruptions() as interruptions:
        while not training.finished and not stopped:
            progress = training.advance()
            if progress is not None:
                for writer in writers:
                    writer.write(progress.row)
                if options.reporter is not None:
                    options.reporter.report(progress)
                stopped = options.callback is not None and options.callback(progress) is False
            stopped = stopped or bool(interruptions)
            if clock.due() or stopped or training.finished:
                with clock.timed():
                    _save(training, learner, folder)
    return interruptions[0] if interruptions else None


def _save(training: Training, learner: Learner, folder: RunFolder) -> None:
    state = training.state()  # refuses to save what is not worth it
    # The checkpoint last: a run that is killed between the two goes on from an older one and writes both again.
    # The other way round, a finished run would be left with weights from before its end.
    folder.save_weights(learner)
    save_checkpoint(folder, learner, *state)
    give_back_memory()


def _loggers(names: Sequence[str], wandb: bool) -> tuple[str, ...]:
    """The loggers asked for, each once; those that cannot be opened are refused."""
    chosen = tuple(dict.fromkeys((*names, "wandb") if wandb else names))
    check_loggers(chosen)
    return chosen


def _writers(config: TrainConfig, folder: RunFolder, step: int | None, options: _Options) -> Iterator[LogWriter]:
    yield MetricsWriter(folder.metrics, step)
    run = LoggedRun(folder.path, config_to_dict(config), step)
    for name in options.loggers:
        yield LOGGERS[name].open(run)


@contextmanager
def _torch_settings(config: TrainConfig) -> Iterator[None]:
    """Seeds torch's global generator for the run, limits its threads, and puts both back afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if config.torch_threads:
            torch.set_num_threads(config.torch_threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def _interruptions() -> Iterator[list[signal.Signals]]:
    """A list that the first Ctrl-C or SIGTERM is put into; the second does what it usually does."""
    noted: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def put_back() -> None:
        for number, handler in previous.items():
            # None: it was set by another library in C, and nobody can tell how.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(signal.Signals(number))
        put_back()

    for number in previous:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        put_back()


@final
class _CheckpointClock:
    """Says when to save: every minute, more rarely where saving takes long."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _CHECKPOINT_SECONDS

    def due(self) -> bool:
        return time.monotonic() >= self._next

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        ended = time.monotonic()
        self._next = ended + max(_CHECKPOINT_SECONDS, (ended - started) / _CHECKPOINT_SHARE)


def _plan(envs: AnyVectorEnv) -> str:
    fleet = envs.unwrapped
    return fleet.plan if isinstance(fleet, FleetVectorEnv) else type(fleet).__name__


def _reporter(reporter: Reporter | None, progress: bool) -> Reporter | None:
    return reporter if reporter is not None or not progress else console_reporter()


def _new_path(config: TrainConfig) -> Path:
    parent = Path("runs") / config.env_id.replace("/", "-").replace(":", "-")
    name = f"{config.algo}-seed{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (name, *(f"{name}-{number}" for number in range(2, 100)))
    return next((parent / free for free in names if not (parent / free).exists()), parent / name)
