"""The public names of `envfleet.train`, gathered from their modules."""

from envfleet.scenarios import Sweep, parse_randomize, parse_sweep
from envfleet.train.agent import Agent
from envfleet.train.checkpoint import load_agent
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig
from envfleet.train.distributions import ActionDistribution, distribution_for
from envfleet.train.episodes import Episode, EpisodeTracker
from envfleet.train.evaluate import evaluate, evaluate_sweep
from envfleet.train.evaluation import Evaluation, Scenario, table
from envfleet.train.metrics import read_metrics
from envfleet.train.networks import Actor, Critic, Networks
from envfleet.train.on_policy import values_along
from envfleet.train.plots import plot_runs, plot_scenarios
from envfleet.train.presets import preset
from envfleet.train.progress import Progress, Reporter, TrainingResult
from envfleet.train.replay import ReplayBuffer, Transitions
from envfleet.train.returns import gae
from envfleet.train.rollout import Position, Rollout, begin, collect
from envfleet.train.run import resume, train
from envfleet.train.showcase import Showcase, showcase

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
