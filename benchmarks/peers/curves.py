"""Learning curves of both sides with the same settings: what each has learnt after so many environment steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envfleet.train import PPOConfig, SACConfig, TrainConfig

from .contests import OURS
from .sides import Limits, Ours, Outcome, Side, Theirs

BINS = 10
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's 97.5 % quantile by the number of seeds."""


@dataclass(frozen=True)
class Comparison:
    """An environment and an algorithm, with the same settings for both libraries.

    Attributes:
        name: as it is asked for.
        ours: envfleet's configuration.
        theirs: arguments of Stable-Baselines3's algorithm.
    """

    name: str
    ours: TrainConfig
    theirs: dict[str, Any]

    def sides(self, python: str) -> tuple[Side, Side]:
        """Both contestants; `python` is an interpreter that has Stable-Baselines3."""
        config = self.ours
        assert isinstance(config, (PPOConfig, SACConfig))
        peer = "Stable-Baselines3"
        theirs = Theirs(peer, python, str(config.env_id), config.algo, config.num_envs, self.theirs, config.anneal)
        return Ours(OURS, config), theirs


# Where Stable-Baselines3 is given nothing, ours has its default: separate 64 x 64 tanh networks, Adam's beta2.
_CARTPOLE = Comparison(
    "cartpole-ppo",
    PPOConfig(
        "CartPole-v1",
        num_envs=8,
        total_steps=100_000,
        rollout_steps=128,
        epochs=10,
        minibatch_size=128,
        actor_lr=1e-3,
        critic_lr=1e-3,
        gamma=0.98,
        gae_lambda=0.9,
        clip_range=0.2,
        entropy_coef=0.0,
        target_kl=0.0,
        normalize_advantages=True,
        max_grad_norm=0.5,
        adam_beta2=0.999,
        reward_scale=1.0,
        normalize_rewards=False,
        hidden_sizes=(64, 64),
        activation="tanh",
        normalize_observations=False,
        anneal=True,
    ),
    {
        "n_steps": 128,
        "n_epochs": 10,
        "batch_size": 128,
        "learning_rate": 1e-3,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "clip_range": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "normalize_advantage": True,
    },
)
# One environment, one update per step, the textbook's independent noise and one-step targets: Stable-Baselines3's SAC.
_PENDULUM = Comparison(
    "pendulum-sac",
    SACConfig(
        "Pendulum-v1",
        num_envs=1,
        total_steps=10_000,
        learning_starts=1_000,
        buffer_size=10_000,
        updates_per_step=1.0,
        batch_size=256,
        noise_correlation=0.0,
        return_steps=1,
        actor_lr=1e-3,
        critic_lr=1e-3,
        temperature_lr=1e-3,
        tau=0.005,
        gamma=0.99,
        target_entropy=None,
        initial_temperature=1.0,
        max_grad_norm=0.0,
        reward_scale=1.0,
        normalize_rewards=False,
        hidden_sizes=(256, 256),
        activation="relu",
        normalize_observations=False,
        anneal=False,
    ),
    {
        "learning_starts": 1_000,
        "buffer_size": 10_000,
        "train_freq": 1,
        "gradient_steps": 1,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "tau": 0.005,
        "gamma": 0.99,
        "ent_coef": "auto",
        "target_entropy": "auto",
    },
)
COMPARISONS = {comparison.name: comparison for comparison in (_CARTPOLE, _PENDULUM)}


@dataclass(frozen=True)
class Point:
    """Both sides' training returns in one stretch of the runs, over the seeds.

    Attributes:
        step: where the stretch ends.
        ours: our mean.
        theirs: their mean.
        low: the lower end of the 95 % interval of their mean.
    """

    step: float
    ours: float
    theirs: float
    low: float

    @property
    def holds(self) -> bool:
        """Whether ours is not below their interval."""
        return self.ours >= self.low


@dataclass(frozen=True)
class CurveResult:
    """One comparison: every run, and the two curves."""

    name: str
    ours: tuple[Outcome, ...]
    theirs: tuple[Outcome, ...]
    points: tuple[Point, ...]
    whole: Point

    @property
    def holds(self) -> bool:
        """Whether the mean of our curve over the whole run is not below the interval of theirs.

        At a single point of ten even the same library with other seeds may well be.
        """
        return self.whole.holds


def compare(
    comparison: Comparison, seeds: Sequence[int], python: str, progress: Callable[[str], None], *, steps: int = 0
) -> CurveResult:
    """Train both sides with every seed, in turns; `steps` shortens the runs."""
    total = steps or comparison.ours.total_steps
    outcomes: dict[str, list[Outcome]] = {OURS: []}
    for seed in seeds:
        for side in comparison.sides(python):
            outcomes.setdefault(side.name, []).append(side.train(seed, Limits(total, curve=True)))
            last = outcomes[side.name][-1]
            progress(f"{comparison.name}, seed {seed}: {side.name}: {last.steps:,} steps in {last.seconds:.0f} s")
    ours, theirs = (tuple(found) for found in outcomes.values())
    return CurveResult(comparison.name, ours, theirs, *points_of(ours, theirs, total))


def points_of(ours: Sequence[Outcome], theirs: Sequence[Outcome], total_steps: int) -> tuple[tuple[Point, ...], Point]:
    """The curves in `BINS` stretches of the run, and their means over the whole of it.

    Stretches in which a seed of either side ended no episode are left out.
    """
    mine, other = ([binned(outcome, total_steps) for outcome in side] for side in (ours, theirs))
    known = [number for number in range(BINS) if not any(math.isnan(curve[number]) for curve in (*mine, *other))]
    if not known:
        raise ValueError(f"no stretch of {total_steps:,} steps in which every run ended an episode; train for longer")
    points = [
        _point(total_steps * (number + 1) / BINS, *([curve[number] for curve in curves] for curves in (mine, other)))
        for number in known
    ]
    wholes = ([statistics.mean(curve[number] for number in known) for curve in curves] for curves in (mine, other))
    return tuple(points), _point(total_steps, *wholes)


def _point(step: float, ours: Sequence[float], theirs: Sequence[float]) -> Point:
    mean = statistics.mean(theirs)
    half = _T_95[len(theirs)] * statistics.stdev(theirs) / math.sqrt(len(theirs))
    return Point(step, statistics.mean(ours), mean, mean - half)


def binned(outcome: Outcome, total_steps: int) -> list[float]:
    """The mean return of the episodes that ended in each stretch; NaN where none did."""
    sums, counts = [0.0] * BINS, [0.0] * BINS
    for step, value, episodes in outcome.curve:
        number = min(BINS - 1, max(0, math.ceil(step * BINS / total_steps) - 1))
        sums[number] += value * episodes
        counts[number] += episodes
    return [total / count if count else math.nan for total, count in zip(sums, counts, strict=True)]


def shortened(comparison: Comparison) -> Comparison:
    """A form of a second or two that learns nothing."""
    if isinstance(comparison.ours, SACConfig):
        ours: TrainConfig = replace(comparison.ours, total_steps=1_000, learning_starts=900)
        return replace(comparison, ours=ours, theirs={**comparison.theirs, "learning_starts": 900})
    return replace(comparison, ours=replace(comparison.ours, total_steps=4_096))
