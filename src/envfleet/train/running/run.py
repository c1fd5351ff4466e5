"""`train` and `resume`: the shell around the loop, with seeds, folders, logs, interruptions."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, final

import torch

from envfleet._names import explains_names
from envfleet._references import folder_name, named
from envfleet._single import EnvMaker
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.own import check_made, chosen_learner, found_learner, noted
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.config import TrainConfig, config_to_dict
from envfleet.train.environments import make_task, make_training_envs
from envfleet.train.filming.stage import offers_pictures
from envfleet.train.folders.checkpoint import WRAP, check_networks, check_wrap, load_checkpoint, save_checkpoint
from envfleet.train.folders.folder import AnyPath, RunFolder, naming_what_is_kept
from envfleet.train.folders.initial_weights import InitialWeights
from envfleet.train.folders.memory import give_back_memory
from envfleet.train.folders.trust import AllowImport
from envfleet.train.networks.networks import Networks
from envfleet.train.running.evaluating import PeriodicEvaluation
from envfleet.train.running.loggers.log_writer import LoggedRun, LogWriter
from envfleet.train.running.loggers.registry import LOGGERS, check_loggers
from envfleet.train.running.metrics import MetricsWriter
from envfleet.train.running.reporting import Callback, Reporter, TrainingResult, console_reporter
from envfleet.train.running.training import Training
from envfleet.train.watching.broadcast import Broadcast
from envfleet.train.wrapping import Wrap, Wrapping, measured, playing_actions
from envfleet.vector import FleetVectorEnv
from envfleet.wrappers._common import AnyVectorEnv

_CHECKPOINT_SECONDS = 60.0
_CHECKPOINT_SHARE = 0.02
"""At most this share of a run's time goes into checkpoints, however large they are."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """How to run, apart from what to learn."""

    networks: Networks | None
    callback: Callback | None
    reporter: Reporter | None
    loggers: tuple[str, ...]
    learner: type[Learner] | None = None
    wrap: Wrap | None = None
    pictures: bool = False
    """Whether environments are made so that they can be drawn while they train, if they can be."""

    def own_parts(self, config: TrainConfig) -> dict[str, str]:
        """What config.json is to say about an algorithm and wrappers of the user's own."""
        learner = {} if self.learner is None else noted(config, self.learner)
        return learner if self.wrap is None else {**learner, WRAP: str(named(self.wrap))}

    @classmethod
    def of(
        cls,
        networks: Networks | None = None,
        callback: Callback | None = None,
        reporter: Reporter | None = None,
        progress: bool = True,
        loggers: Sequence[str] = ("tensorboard",),
        wandb: bool = False,
        learner: type[Learner] | None = None,
        wrap: Wrap | None = None,
        pictures: bool = False,
    ) -> RunContext:
        """What the arguments of `train` say; loggers that cannot be opened are refused."""
        if wrap is not None and not callable(wrap):
            raise TypeError(f"wrap must be a function that puts wrappers around a vector environment, got {wrap!r}.")
        shown = reporter if reporter is not None or not progress else console_reporter()
        return cls(networks, callback, shown, _loggers(loggers, wandb), learner, wrap, pictures)


_Start: TypeAlias = Callable[[Training, Learner], "int | None"]
"""What is done when all is made and before anything is learnt; returns the step that a resumed run goes on from."""


@explains_names
def train(
    config: TrainConfig,
    *,
    run_dir: AnyPath | None = None,
    networks: Networks | None = None,
    learner: type[Learner] | None = None,
    wrap: Wrap | None = None,
    init_from: AnyPath | None = None,
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
        config: of the algorithm: A2CConfig, PPOConfig, SACConfig, TD3Config, DQNConfig, or your own.
        run_dir: the run's folder, which must not hold a run yet; by default one below `runs/`.
        networks: your own networks instead of envfleet's.
        learner: your own algorithm instead of the one that `config` is for: a class with the methods of `Learner`. The
            run notes its name. A program that resumes the run, or loads its agent, imports the class or gives it again.
        wrap: puts vector wrappers around the environments: a function that takes a vector environment and returns it
            wrapped. What the wrappers learn is saved with the run. It is given again to `resume` and `load_agent`.
        init_from: the folder of another run, or its `best`, whose weights to start from. Everything else begins anew.
            Its environment must have the same spaces, its networks the same layers.
        callback: called after every log interval; returning False ends the run there.
        reporter: shows progress; by default a bar in a terminal and lines elsewhere.
        progress: False shows nothing.
        loggers: where to log besides metrics.csv, by name: "tensorboard", "wandb", or what `register_logger` added.
        wandb: also log to Weights & Biases.
    """
    algorithm = chosen_learner(config, learner)  # refuses what is no configuration, and what is no algorithm
    options = RunContext.of(networks, callback, reporter, progress, loggers, wandb, algorithm, wrap)
    return begin_run(config, Path(run_dir) if run_dir is not None else new_run_path(config), options, init_from, {})


def begin_run(
    config: TrainConfig, path: Path, options: RunContext, init_from: AnyPath | None, history: Mapping[str, Any]
) -> TrainingResult:
    """What `train` does, with what else config.json is to say about the run."""
    folder = RunFolder(path)
    folder.check_free()
    initial = (
        None if init_from is None else InitialWeights.read(Path(init_from), config, options.networks, options.wrap)
    )
    with ExitStack() as lock:

        def begin(training: Training, learner: Learner) -> None:
            if initial is not None:
                initial.load_into(learner)
                training.load_wrappers(initial.wrappers)
            # Only now, so that a run that cannot even begin leaves no folder behind.
            lock.enter_context(folder.locked())
            folder.check_free()
            _save(training, learner, folder)
            origin = {} if init_from is None else {"init_from": str(init_from)}
            told = {**options.own_parts(config), **origin, **history}
            folder.create(config, custom_networks=options.networks is not None, history=told)

        return _run(config, folder, options, begin)


@explains_names
def resume(
    run_dir: AnyPath,
    *,
    env: str | EnvMaker | None = None,
    total_steps: int | None = None,
    networks: Networks | None = None,
    learner: type[Learner] | None = None,
    wrap: Wrap | None = None,
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
        env: as for `load_agent`.
        total_steps: extend the run, finished or not, to so many steps altogether. Learning rates that fall over the run
            follow the longer run's schedule from here on: after a finished run they rise once and fall to 0 again.
        networks: for a run with networks of your own: fresh ones of the same architecture, to be filled.
        learner: as for `load_agent`.
        wrap: as for `load_agent`.
        callback: as for `train`.
        reporter: as for `train`.
        progress: as for `train`.
        loggers: as for `train`.
        wandb: as for `train`.
        allow_import: for a run that was not trained here by you, as for `load_agent`.
    """
    options = RunContext.of(networks, callback, reporter, progress, loggers, wandb, learner, wrap)
    return resume_run(RunFolder(Path(run_dir)), options, env, total_steps, allow_import)


def resume_run(
    folder: RunFolder, asked: RunContext, env: str | EnvMaker | None, total_steps: int | None, allow_import: AllowImport
) -> TrainingResult:
    """What `resume` does, with whatever else is asked for."""
    told, custom_networks = folder.read_allowed_config(allow_import, env)
    config = told if total_steps is None else replace(told, total_steps=total_steps)
    check_networks(folder, asked.networks, custom=custom_networks)
    history = folder.read_history()
    options = replace(asked, learner=found_learner(folder.path, config, history, asked.learner))
    check_wrap(folder, history, options.wrap)
    with folder.locked():
        checkpoint = load_checkpoint(folder)

        made = checkpoint.notes.get("step") if checkpoint is not None else None
        if total_steps is not None and isinstance(made, int) and total_steps < made:
            raise ValueError(
                f"total_steps={total_steps} is less than the {made} steps that "
                f"{folder.path} has made already: give the number of steps altogether, not of those to come."
            )

        def go_on(training: Training, learner: Learner) -> int:
            if checkpoint is None:
                _save(training, learner, folder)
            else:
                training.restore(checkpoint, extended=config.total_steps > told.total_steps)
            if config != told:
                folder.extend(config)
            return training.step

        return _run(config, folder, options, go_on)


def _run(config: TrainConfig, folder: RunFolder, options: RunContext, start: _Start) -> TrainingResult:
    result: TrainingResult | None = None
    with ExitStack() as stack:
        stack.enter_context(_torch_settings(config))
        pictures = options.pictures and offers_pictures(config.env_id)
        envs = make_training_envs(config, options.learner, options.wrap, pictures=pictures)
        stack.callback(envs.close)
        task = make_task(config, envs.single_observation_space, envs.single_action_space, options.networks)
        learner = make_learner(config, task, options.learner)
        check_made(learner)
        wrapping = _wrapping(envs, options.wrap)
        if wrapping is not None:
            stack.callback(wrapping.settle)
        observation_space, action_space = envs.single_observation_space, playing_actions(envs)
        agent = Agent(config, learner.actor, observation_space, action_space, task.device, wrapping)
        evaluation = _evaluation(config, agent, learner, folder, options)
        if evaluation is not None:
            stack.callback(evaluation.close)
        training = Training(config, envs, learner, agent, evaluation)
        resumed_at = start(training, learner)
        writers = [stack.enter_context(writer) for writer in _writers(config, folder, resumed_at, options)]
        if options.reporter is not None:
            options.reporter.begin(config, folder.path, _plan(envs), training.step)
            for line in _remarks(config, training, learner):
                options.reporter.say(line)
        try:
            broadcast = Broadcast(folder, training, pictures=pictures and not config.first_ready)
            with naming_what_is_kept(folder):
                stopped_by = _loop(training, learner, folder, writers, options, broadcast)
            learner.actor.eval()
            result = TrainingResult(
                folder.path,
                agent,
                training.step,
                training.seconds,
                training.mean_return,
                training.finished,
                stopped_by,
                reached_goal=training.reached_goal,
                restarts=training.restarts,
                best_return=None if evaluation is None else evaluation.best,
            )
        finally:
            if options.reporter is not None:
                options.reporter.end(result)
    return result


def _evaluation(
    config: TrainConfig, agent: Agent, learner: Learner, folder: RunFolder, options: RunContext
) -> PeriodicEvaluation | None:
    if not config.eval_every:
        return None
    own = options.own_parts(config)
    return PeriodicEvaluation(config, agent, learner, folder, custom_networks=options.networks is not None, own=own)


def _wrapping(envs: AnyVectorEnv, wrap: Wrap | None) -> Wrapping | None:
    """The user's wrappers as an agent needs them, which knows at any time what they have learnt in training."""
    wrapped = measured(envs)
    return None if wrap is None or wrapped is None else Wrapping(wrap, wrapped)


def _remarks(config: TrainConfig, training: Training, learner: Learner) -> Iterator[str]:
    """What is worth knowing before a run goes on."""
    plan = getattr(learner, "plan", None)  # a learner of the user's need not have one
    if plan is not None:
        yield f"learner: {plan}"
    planned = training.planned_steps
    if planned < config.total_steps and not training.finished:
        rollout = planned // training.rollouts
        yield (
            f"steps: {planned:,} of the {config.total_steps:,} asked for, in {training.rollouts:,} whole rollouts of "
            f"{rollout:,} ({config.num_envs} environments x {rollout // config.num_envs})"
        )


def _loop(
    training: Training,
    learner: Learner,
    folder: RunFolder,
    writers: Sequence[LogWriter],
    options: RunContext,
    broadcast: Broadcast,
) -> signal.Signals | None:
    """Train to the end, or until the callback, somebody who watches, or a signal, which is returned, stops it."""
    clock = _CheckpointClock()
    stopped = False
    with interruptions() as noted:
        while not training.finished and not stopped:
            progress = training.advance()
            if progress is not None:
                for writer in writers:
                    writer.write(progress.row)
                if options.reporter is not None:
                    options.reporter.report(progress)
                stopped = options.callback is not None and options.callback(progress) is False
            orders = broadcast.look()
            stopped = stopped or bool(noted) or "stop" in orders
            if clock.due() or stopped or training.finished or "save" in orders:
                with clock.timed():
                    _save(training, learner, folder)
        broadcast.end()
    return noted[0] if noted else None


def _save(training: Training, learner: Learner, folder: RunFolder) -> None:
    state = training.state()  # refuses to save what is not worth it
    # The checkpoint last: a run that is killed between the two goes on from an older one and writes both again.
    # The other way round, a finished run would be left with weights from before its end.
    folder.save_weights(learner)
    folder.save_wrappers(training.wrapping)
    save_checkpoint(folder, learner, *state)
    give_back_memory()


def _loggers(names: Sequence[str], wandb: bool) -> tuple[str, ...]:
    """The loggers asked for, each once; those that cannot be opened are refused."""
    chosen = tuple(dict.fromkeys((*names, "wandb") if wandb else names))
    check_loggers(chosen)
    return chosen


def _writers(config: TrainConfig, folder: RunFolder, step: int | None, options: RunContext) -> Iterator[LogWriter]:
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
def interruptions() -> Iterator[list[signal.Signals]]:
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


def new_run_path(config: TrainConfig) -> Path:
    """A folder of its own for a new run, below `runs/`."""
    parent = Path("runs") / folder_name(config.env_id)
    name = f"{config.algo}-seed{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (name, *(f"{name}-{number}" for number in range(2, 100)))
    return next((parent / free for free in names if not (parent / free).exists()), parent / name)
