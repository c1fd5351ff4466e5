"""The public names of `envfleet.train`, gathered from their modules."""

from envfleet.scenarios import Sweep, parse_randomize, parse_sweep
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import values_along
from envfleet.train.algorithms.presets import preset
from envfleet.train.algorithms.replay import ReplayBuffer, Transitions
from envfleet.train.algorithms.returns import gae
from envfleet.train.collecting import Episode, EpisodeTracker, Position, Rollout, begin, collect
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig
from envfleet.train.judging.evaluation import evaluate, evaluate_sweep
from envfleet.train.judging.plots import plot_runs, plot_scenarios
from envfleet.train.judging.scores import Evaluation, Scenario, table
from envfleet.train.judging.showcase import Showcase, showcase
from envfleet.train.networks.distributions import ActionDistribution, distribution_for
from envfleet.train.networks.networks import Actor, Critic, Networks
from envfleet.train.running.checkpoint import load_agent
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.reporting import Progress, Reporter, TrainingResult
from envfleet.train.running.run import resume, train

__all__ = [
    "A2CConfig",
    "ActionDistribution",
    "Actor",
    "Agent",
    "Critic",
    "Episode",
    "EpisodeTracker",
    "Evaluation",
    "Networks",
    "PPOConfig",
    "Position",
    "Progress",
    "ReplayBuffer",
    "Reporter",
    "Rollout",
    "SACConfig",
    "Scenario",
    "Showcase",
    "Sweep",
    "TrainConfig",
    "TrainingResult",
    "Transitions",
    "begin",
    "collect",
    "distribution_for",
    "evaluate",
    "evaluate_sweep",
    "gae",
    "load_agent",
    "parse_randomize",
    "parse_sweep",
    "plot_runs",
    "plot_scenarios",
    "preset",
    "read_metrics",
    "resume",
    "showcase",
    "table",
    "train",
    "values_along",
]
