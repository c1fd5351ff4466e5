"""Training: many environments at once, a policy that learns from them, curves, weights, and an agent to watch.

    from envfleet.train import A2CConfig, evaluate, train

    result = train(A2CConfig("LunarLander-v3"))
    print(evaluate(result.agent).mean_return)

Each name is imported from its module when it is first asked for: torch takes two seconds, which a command line that
only reads settings (`envfleet.train.config`) would rather not spend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envfleet._lazy import lazy_names

if TYPE_CHECKING:
    from envfleet.scenarios import Sweep, parse_randomize, parse_sweep
    from envfleet.train.agent import Agent
    from envfleet.train.algorithms.learner import (
        Batch,
        Learner,
        OnPolicyLearner,
        Task,
        gradient_step,
        make_optimizer,
        values_along,
    )
    from envfleet.train.algorithms.memory import MemoryLearner, Sequences
    from envfleet.train.algorithms.off_policy import CompiledUpdates, OffPolicyLearner, SlowCopy
    from envfleet.train.algorithms.presets import preset
    from envfleet.train.algorithms.registry import register_algorithm
    from envfleet.train.algorithms.replay import ReplayBuffer, Transitions
    from envfleet.train.algorithms.returns import gae
    from envfleet.train.collecting import Episode, EpisodeTracker, Position, Rollout, begin, collect
    from envfleet.train.config import (
        A2CConfig,
        DQNConfig,
        OffPolicyConfig,
        PPOConfig,
        SACConfig,
        TD3Config,
        TrainConfig,
    )
    from envfleet.train.filming.showcase import Showcase, showcase
    from envfleet.train.filming.window import play_in_window
    from envfleet.train.folders.checkpoint import load_agent
    from envfleet.train.folders.finding import find_run
    from envfleet.train.judging.evaluation import evaluate, evaluate_sweep
    from envfleet.train.judging.plots import plot_runs, plot_scenarios
    from envfleet.train.judging.scores import Evaluation, Scenario, table
    from envfleet.train.networks.distributions import ActionDistribution, distribution_for
    from envfleet.train.networks.memory import MemoryActor
    from envfleet.train.networks.networks import Actor, Critic, Networks
    from envfleet.train.networks.unflatten import Unflatten
    from envfleet.train.running.loggers.log_writer import LoggedRun, LogWriter
    from envfleet.train.running.loggers.registry import register_logger
    from envfleet.train.running.metrics import read_metrics
    from envfleet.train.running.reporting import Progress, Reporter, TrainingResult
    from envfleet.train.running.run import resume, train
    from envfleet.train.running.training_envs import TrainingEnvs
    from envfleet.train.sharing.card import write_card
    from envfleet.train.sharing.export import Exported, export
    from envfleet.train.sharing.report import write_report
    from envfleet.train.sweeping.importance import plot_importance
    from envfleet.train.sweeping.results import SweepResult, SweepTrial, read_sweep
    from envfleet.train.sweeping.space import default_search_space
    from envfleet.train.sweeping.sweep import resume_sweep, sweep

__all__ = [
    "A2CConfig",
    "ActionDistribution",
    "Actor",
    "Agent",
    "Batch",
    "CompiledUpdates",
    "Critic",
    "DQNConfig",
    "Episode",
    "EpisodeTracker",
    "Evaluation",
    "Exported",
    "Learner",
    "LogWriter",
    "LoggedRun",
    "MemoryActor",
    "MemoryLearner",
    "Networks",
    "OffPolicyConfig",
    "OffPolicyLearner",
    "OnPolicyLearner",
    "PPOConfig",
    "Position",
    "Progress",
    "ReplayBuffer",
    "Reporter",
    "Rollout",
    "SACConfig",
    "Scenario",
    "Sequences",
    "Showcase",
    "SlowCopy",
    "Sweep",
    "SweepResult",
    "SweepTrial",
    "TD3Config",
    "Task",
    "TrainConfig",
    "TrainingEnvs",
    "TrainingResult",
    "Transitions",
    "Unflatten",
    "begin",
    "collect",
    "default_search_space",
    "distribution_for",
    "evaluate",
    "evaluate_sweep",
    "export",
    "find_run",
    "gae",
    "gradient_step",
    "load_agent",
    "make_optimizer",
    "parse_randomize",
    "parse_sweep",
    "play_in_window",
    "plot_importance",
    "plot_runs",
    "plot_scenarios",
    "preset",
    "read_metrics",
    "read_sweep",
    "register_algorithm",
    "register_logger",
    "resume",
    "resume_sweep",
    "showcase",
    "sweep",
    "table",
    "train",
    "values_along",
    "write_card",
    "write_report",
]

_MODULES = {
    "A2CConfig": "envfleet.train.config",
    "ActionDistribution": "envfleet.train.networks.distributions",
    "Actor": "envfleet.train.networks.networks",
    "Agent": "envfleet.train.agent",
    "Batch": "envfleet.train.algorithms.learner",
    "Critic": "envfleet.train.networks.networks",
    "DQNConfig": "envfleet.train.config",
    "Episode": "envfleet.train.collecting",
    "EpisodeTracker": "envfleet.train.collecting",
    "Evaluation": "envfleet.train.judging.scores",
    "SlowCopy": "envfleet.train.algorithms.off_policy",
    "CompiledUpdates": "envfleet.train.algorithms.off_policy",
    "Exported": "envfleet.train.sharing.export",
    "Learner": "envfleet.train.algorithms.learner",
    "LogWriter": "envfleet.train.running.loggers.log_writer",
    "LoggedRun": "envfleet.train.running.loggers.log_writer",
    "MemoryActor": "envfleet.train.networks.memory",
    "MemoryLearner": "envfleet.train.algorithms.memory",
    "Networks": "envfleet.train.networks.networks",
    "OffPolicyConfig": "envfleet.train.config",
    "OffPolicyLearner": "envfleet.train.algorithms.off_policy",
    "OnPolicyLearner": "envfleet.train.algorithms.learner",
    "PPOConfig": "envfleet.train.config",
    "Position": "envfleet.train.collecting",
    "Progress": "envfleet.train.running.reporting",
    "ReplayBuffer": "envfleet.train.algorithms.replay",
    "Reporter": "envfleet.train.running.reporting",
    "Rollout": "envfleet.train.collecting",
    "SACConfig": "envfleet.train.config",
    "Scenario": "envfleet.train.judging.scores",
    "Sequences": "envfleet.train.algorithms.memory",
    "Showcase": "envfleet.train.filming.showcase",
    "Sweep": "envfleet.scenarios",
    "SweepResult": "envfleet.train.sweeping.results",
    "SweepTrial": "envfleet.train.sweeping.results",
    "TD3Config": "envfleet.train.config",
    "Task": "envfleet.train.algorithms.learner",
    "TrainConfig": "envfleet.train.config",
    "TrainingEnvs": "envfleet.train.running.training_envs",
    "TrainingResult": "envfleet.train.running.reporting",
    "Transitions": "envfleet.train.algorithms.replay",
    "Unflatten": "envfleet.train.networks.unflatten",
    "begin": "envfleet.train.collecting",
    "collect": "envfleet.train.collecting",
    "default_search_space": "envfleet.train.sweeping.space",
    "distribution_for": "envfleet.train.networks.distributions",
    "evaluate": "envfleet.train.judging.evaluation",
    "evaluate_sweep": "envfleet.train.judging.evaluation",
    "export": "envfleet.train.sharing.export",
    "find_run": "envfleet.train.folders.finding",
    "gae": "envfleet.train.algorithms.returns",
    "gradient_step": "envfleet.train.algorithms.learner",
    "load_agent": "envfleet.train.folders.checkpoint",
    "make_optimizer": "envfleet.train.algorithms.learner",
    "parse_randomize": "envfleet.scenarios",
    "parse_sweep": "envfleet.scenarios",
    "play_in_window": "envfleet.train.filming.window",
    "plot_importance": "envfleet.train.sweeping.importance",
    "plot_runs": "envfleet.train.judging.plots",
    "plot_scenarios": "envfleet.train.judging.plots",
    "preset": "envfleet.train.algorithms.presets",
    "read_metrics": "envfleet.train.running.metrics",
    "read_sweep": "envfleet.train.sweeping.results",
    "register_algorithm": "envfleet.train.algorithms.registry",
    "register_logger": "envfleet.train.running.loggers.registry",
    "resume": "envfleet.train.running.run",
    "resume_sweep": "envfleet.train.sweeping.sweep",
    "showcase": "envfleet.train.filming.showcase",
    "sweep": "envfleet.train.sweeping.sweep",
    "table": "envfleet.train.judging.scores",
    "train": "envfleet.train.running.run",
    "values_along": "envfleet.train.algorithms.learner",
    "write_card": "envfleet.train.sharing.card",
    "write_report": "envfleet.train.sharing.report",
}


if not TYPE_CHECKING:  # which would take every name for one of ours
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, extra="train")
