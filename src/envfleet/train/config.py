"""What a training run is told: one frozen dataclass per algorithm."""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, cast

from gymnasium.envs.registration import EnvSpec

from envfleet import backends
from envfleet._names import did_you_mean, explains_settings
from envfleet._references import named
from envfleet._single import EnvMaker, check_maker
from envfleet.randomize import Distribution
from envfleet.scenarios import format_randomize
from envfleet.train.plain_settings import comes_back, field_types, plain


class EnvReference:
    """The field `env_id`: takes a text, or a class or function, and gives the text that stands for it.

    The text carries the class or function along (see `NamedMaker`), so that it need not be imported again.
    """

    def __get__(self, config: TrainConfig | None, owner: type[TrainConfig]) -> str:
        if config is None:
            raise AttributeError("env_id has no default")
        return cast("str", vars(config)["env_id"])

    def __set__(self, config: TrainConfig, env: str | EnvSpec | EnvMaker) -> None:
        if not isinstance(env, (str, EnvSpec)):
            try:
                check_maker(env)
            except TypeError as error:
                raise TypeError(f"env_id: {error}") from None
        vars(config)["env_id"] = env if isinstance(env, str) else named(env)


@explains_settings
@dataclass(frozen=True)
class TrainConfig(ABC):
    """What every algorithm is told.

    Attributes:
        env_id: the environment: a registered id, MODULE:ID, or FILE.py:CLASS. In Python also a class, or a function
            that makes one environment.
        num_envs: how many copies are stepped at once.
        seed: fixes everything random: the environments, the initial weights and the actions drawn.
        total_steps: environment steps to train for, over all copies together.
        backend: what runs the environments: "auto", "native" (compiled), "sync" (this thread), "process" (workers) or
            "ray" (actors on several machines).
        device: where the networks are computed: "auto", "cpu", "cuda", ...
        env_kwargs: constructor arguments of the environment.
        randomize: parameters that vary: {"gravity": uniform(-12, -8)}.
        vector_kwargs: how the engine runs the environments: arguments of the vector environment such as on_failure,
            step_timeout, max_restarts, check_nan and num_workers, see docs/failures.md and docs/process-backend.md.
        randomize_on: "reset": they are drawn anew for every episode. "make": once for each copy, for environments
            that take long to make, since those not compiled are made again for every episode.
        hidden_sizes: widths of the hidden layers, of actor and critic alike.
        activation: the activation function of the hidden layers.
        normalize_observations: scale vectors to mean 0 and variance 1 by running statistics, saved with the weights.
        normalize_rewards: divide rewards by the running standard deviation of the discounted return before they are
            learnt from; reported returns are as the environment gives them.
        reward_scale: rewards are multiplied by this as well, normalised or not.
        gamma: discount factor.
        non_finite: what a reward or an observation that is NaN, infinite or too large does. "stop": it ends the run
            before it is learnt from. "drop": its episode is left out and counted.
        first_ready: act as soon as this many copies are ready instead of waiting for all, for environments whose
            steps take unequal times; such a run cannot be repeated exactly. 0 waits for all.
        info_metrics: entries of an episode's last info to log, numbers or bools, as means over the episodes;
            is_success is logged without being named.
        eval_every: steps between two evaluations during the training; the weights with the best one are kept in best/.
            0 evaluates only after the training.
        eval_episodes: episodes per evaluation, during the training and after it; 0 for none.
        stop_at_return: end the training once the mean return reaches this: that of an evaluation during the training if
            there are any, else that of the last 100 training episodes.
        reseed_every: steps of each copy after which all are reset with a fresh seed. A stopped run is resumed by
            replaying the actions since then, so this bounds how long that takes. 0 means never.
        learner: what computes the updates. "torch": torch, which takes any network. "compiled": compiled code, several
            times faster for small networks on the CPU; it takes perceptrons of ours over vectors, see docs/learner.md.
            "auto": compiled code where that is possible and faster.
        torch_threads: threads torch may use; small networks are fastest with 1. 0 leaves torch's own setting. Another
            number adds up in another order, so a run is repeated exactly with the same number only.
    """

    algo: ClassVar[str]

    env_id: EnvReference = EnvReference()
    _: KW_ONLY
    num_envs: int = 10
    seed: int = 0
    total_steps: int = 1_000_000
    backend: backends.BackendName = "auto"
    device: str = "auto"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    vector_kwargs: Mapping[str, Any] = field(default_factory=dict)
    randomize: Mapping[str, Distribution] = field(default_factory=dict)
    randomize_on: Literal["reset", "make"] = "reset"
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    normalize_observations: bool = False
    normalize_rewards: bool = True
    reward_scale: float = 1.0
    gamma: float = 0.99
    non_finite: Literal["stop", "drop"] = "stop"
    first_ready: int = 0
    reseed_every: int = 20_000
    info_metrics: tuple[str, ...] = ()
    eval_every: int = 0
    eval_episodes: int = 100
    stop_at_return: float | None = None
    learner: Literal["auto", "torch", "compiled"] = "auto"
    torch_threads: int = 1

    def __post_init__(self) -> None:
        check_config(self)


@explains_settings
@dataclass(frozen=True, kw_only=True)
class A2CConfig(TrainConfig):
    """Advantage actor-critic.

    Attributes:
        rollout_steps: steps of every copy between two updates.
        actor_lr: Adam's step size for the actor.
        critic_lr: the same for the critic, larger: it has a fixed target to follow.
        critic_updates: gradient steps of the critic per rollout; the actor takes one.
        gae_lambda: 0 one-step differences, 1 Monte Carlo returns.
        entropy_coef: weight of the bonus for acting at random.
        initial_log_std: logarithm of the deviation that continuous actions start with, the same for all observations.
        normalize_advantages: scale each rollout's advantages to mean 0 and variance 1.
        max_grad_norm: longer gradients are shortened to this.
        adam_beta2: Adam's memory of its gradients' size, 1 / (1 - adam_beta2) steps; short, for policies change fast.
        anneal: let step sizes and entropy bonus fall linearly to 0 over the run.
    """

    algo: ClassVar[str] = "a2c"

    total_steps: int = 2_500_000
    normalize_observations: bool = True
    gamma: float = 0.995
    rollout_steps: int = 128
    actor_lr: float = 1.5e-3
    critic_lr: float = 3e-3
    critic_updates: int = 8
    gae_lambda: float = 0.95
    entropy_coef: float = 0.003
    initial_log_std: float = 0.0
    normalize_advantages: bool = True
    max_grad_norm: float = 0.5
    adam_beta2: float = 0.99
    anneal: bool = True


@explains_settings
@dataclass(frozen=True, kw_only=True)
class PPOConfig(TrainConfig):
    """Proximal policy optimisation.

    Attributes:
        rollout_steps: steps of every copy between two updates.
        epochs: passes over each rollout.
        minibatch_size: transitions per gradient step.
        actor_lr: Adam's step size for the actor.
        critic_lr: the same for the critic.
        gae_lambda: 0 one-step differences, 1 Monte Carlo returns.
        clip_range: how far the new policy's probability ratio may go from 1 before its gradient is cut.
        entropy_coef: weight of the bonus for acting at random.
        initial_log_std: logarithm of the deviation that continuous actions start with, the same for all observations.
        target_kl: stop the epochs of a rollout once the policy moved further than this; 0 never stops.
        normalize_advantages: scale each minibatch's advantages to mean 0 and variance 1.
        max_grad_norm: longer gradients are shortened to this.
        adam_beta2: Adam's memory of its gradients' size, 1 / (1 - adam_beta2) steps; short, for policies change fast.
        anneal: let step sizes and entropy bonus fall linearly to 0 over the run.
    """

    algo: ClassVar[str] = "ppo"

    normalize_observations: bool = True
    rollout_steps: int = 256
    epochs: int = 6
    minibatch_size: int = 128
    actor_lr: float = 1e-3
    critic_lr: float = 2e-3
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    entropy_coef: float = 0.01
    initial_log_std: float = 0.0
    target_kl: float = 0.03
    normalize_advantages: bool = True
    max_grad_norm: float = 0.5
    adam_beta2: float = 0.99
    anneal: bool = True


@explains_settings
@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(TrainConfig):
    """What every algorithm is told that learns from a replay buffer.

    Attributes:
        buffer_size: transitions the replay buffer remembers.
        learning_starts: transitions acted uniformly at random before learning begins.
        demonstrations: the id of a Minari dataset whose transitions are in the replay buffer from the beginning; needs
            `pip install "envfleet[minari]"`.
        updates_per_step: gradient steps per transition collected.
        batch_size: transitions per gradient step.
        return_steps: steps whose rewards are added up before the estimate of values takes over, as the run begins: with
            several, rewards reach earlier states sooner, but an action is credited with what came after it.
        multi_step_share: share of the run after which it is one step, which is right whatever the actions were.
        tau: share of the weights that flows into the target networks each update.
        max_grad_norm: longer gradients are shortened to this; 0 leaves them alone.
        adam_beta2: Adam's memory of its gradients' size, 1 / (1 - adam_beta2) steps.
        anneal: let step sizes fall linearly to 0 over the run.
    """

    num_envs: int = 8
    total_steps: int = 300_000
    hidden_sizes: tuple[int, ...] = (128, 128)
    activation: Literal["tanh", "relu"] = "relu"
    buffer_size: int = 1_000_000
    learning_starts: int = 10_000
    demonstrations: str | None = None
    updates_per_step: float = 1.0
    batch_size: int = 128
    return_steps: int = 5
    multi_step_share: float = 0.3
    tau: float = 0.01
    max_grad_norm: float = 0.0
    adam_beta2: float = 0.999
    anneal: bool = True


@explains_settings
@dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """Soft actor-critic, for continuous actions.

    Attributes:
        noise_correlation: of the noise that actions are drawn with in two successive steps; 0 draws each afresh.
        actor_lr: Adam's step size for the actor.
        critic_lr: the same for the two critics.
        temperature_lr: the same for the temperature.
        target_entropy: the entropy the temperature is steered to; None takes minus the number of action components.
        initial_temperature: where the temperature starts.
    """

    algo: ClassVar[str] = "sac"

    reward_scale: float = 10.0
    noise_correlation: float = 0.9
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    temperature_lr: float = 1e-3
    target_entropy: float | None = None
    initial_temperature: float = 1.0


@explains_settings
@dataclass(frozen=True, kw_only=True)
class TD3Config(OffPolicyConfig):
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Attributes:
        exploration_noise: standard deviation of the noise added to actions in training; actions go from -1 to 1.
        noise_correlation: of that noise in two successive steps; 0 draws each afresh.
        target_noise: standard deviation of the noise added to the actions that targets are worked out with.
        target_noise_clip: that noise is no larger than this.
        policy_delay: updates of the critics for each one of the actor and the targets.
        actor_lr: Adam's step size for the actor.
        critic_lr: the same for the two critics.
    """

    algo: ClassVar[str] = "td3"

    return_steps: int = 1
    exploration_noise: float = 0.2
    noise_correlation: float = 0.9
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3


@explains_settings
@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Deep Q-network, for one choice among a number of actions.

    Attributes:
        double: the network that learns picks the action a target is worked out with, and its slow copy values it.
        dueling: the value of a state and what actions add to it are outputs of their own.
        priority_exponent: how much its last error makes a transition likelier to be drawn: 1 in proportion to it, 0 not
            at all.
        priority_correction: how far a batch makes good for that as learning begins; it is made good for entirely in the
            end.
        exploration_share: share of the run over which random actions become rarer.
        final_epsilon: share of random actions from then on.
        learning_rate: Adam's step size.
    """

    algo: ClassVar[str] = "dqn"

    double: bool = True
    dueling: bool = False
    priority_exponent: float = 0.0
    priority_correction: float = 0.4
    exploration_share: float = 0.3
    final_epsilon: float = 0.05
    learning_rate: float = 1e-3


def config_to_dict(config: TrainConfig) -> dict[str, Any]:
    """The configuration as plain values, ready for JSON."""
    settings = {entry.name: getattr(config, entry.name) for entry in dataclasses.fields(config)}
    return {**plain(settings), "env_id": str(config.env_id), "randomize": format_randomize(config.randomize)}


_AT_LEAST_ONE = (
    "num_envs",
    "total_steps",
    "rollout_steps",
    "critic_updates",
    "epochs",
    "minibatch_size",
    "batch_size",
    "return_steps",
    "buffer_size",
    "policy_delay",
)
_WHOLE = ("first_ready", "seed", "reseed_every", "torch_threads", "learning_starts", "eval_every", "eval_episodes")
_SWITCHES = ("normalize_observations", "normalize_rewards", "normalize_advantages", "anneal", "double", "dueling")
_TEXTS = ("env_id", "device")
_NOT_NEGATIVE = (
    "entropy_coef",
    "target_kl",
    "max_grad_norm",
    "target_noise",
    "target_noise_clip",
)
_POSITIVE = (
    "actor_lr",
    "critic_lr",
    "temperature_lr",
    "reward_scale",
    "clip_range",
    "updates_per_step",
    "initial_temperature",
    "exploration_noise",
    "learning_rate",
)
_SHARES = (
    "gamma",
    "gae_lambda",
    "tau",
    "multi_step_share",
    "priority_exponent",
    "priority_correction",
    "exploration_share",
    "final_epsilon",
)
_BELOW_ONE = ("noise_correlation", "adam_beta2")
_NUMBERS_OR_NONE = ("target_entropy", "stop_at_return")
_MODERATE = ("initial_log_std",)
_JSON = ("env_kwargs", "vector_kwargs")


def check_config(config: TrainConfig) -> None:
    """Refuse values no run could use, all of them in one message."""
    problems = [
        *_violations(config, _AT_LEAST_ONE, "an integer of at least 1", lambda v: _is_integer(v) and v >= 1),
        *_violations(config, _WHOLE, "an integer of 0 or more", lambda v: _is_integer(v) and v >= 0),
        *_violations(config, _NOT_NEGATIVE, "a number, 0 or more", lambda v: _is_number(v) and v >= 0),
        *_violations(config, _POSITIVE, "a number greater than 0", lambda v: _is_number(v) and v > 0),
        *_violations(config, _SHARES, "a number between 0 and 1", lambda v: _is_number(v) and 0 <= v <= 1),
        *_violations(config, _BELOW_ONE, "a number from 0 to below 1", lambda v: _is_number(v) and 0 <= v < 1),
        *_violations(config, _NUMBERS_OR_NONE, "a number or None", lambda v: v is None or _is_number(v)),
        *_violations(config, _MODERATE, "a number from -10 to 2", lambda v: _is_number(v) and -10 <= v <= 2),
        *_violations(config, _SWITCHES, "True or False", lambda v: isinstance(v, bool)),
        *_violations(config, _TEXTS, "a text", lambda v: isinstance(v, str)),
        *_violations(config, ("demonstrations",), "a text or None", lambda v: v is None or isinstance(v, str)),
        *_violations(config, ("randomize",), "a dict of distributions", _are_distributions),
        *_violations(config, ("backend",), _listed(backends.names()), lambda v: v in backends.names()),
        *_violations(config, ("randomize_on",), "reset or make", lambda v: v in ("reset", "make")),
        *_violations(config, ("non_finite",), "stop or drop", lambda v: v in ("stop", "drop")),
        *_violations(config, ("learner",), "auto, torch or compiled", lambda v: v in ("auto", "torch", "compiled")),
        *_violations(config, ("activation",), "tanh or relu", lambda v: v in ("tanh", "relu")),
        *_violations(config, ("hidden_sizes",), "a tuple of integers of at least 1", _are_widths),
        *_violations(config, _JSON, "what JSON can hold, with lists instead of tuples", _survives_json),
        *_violations(config, ("info_metrics",), "a tuple of names", _are_names),
    ]
    problems += [*_contradictions(config), *_own_problems(config)]
    if problems:
        raise ValueError(f"{type(config).__name__}: {'; '.join(problems)}.")


def _own_problems(config: TrainConfig) -> Iterator[str]:
    """What config.json could not give back of the settings that a class of the user's own has added."""
    if type(config).__module__ == __name__:
        return
    parents = (A2CConfig, PPOConfig, SACConfig, TD3Config, DQNConfig)
    ours = {entry.name for parent in parents for entry in dataclasses.fields(parent)}
    types = field_types(type(config))
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if entry.name not in ours and not comes_back(value, types.get(entry.name)):
            yield (
                f"{entry.name} must be what config.json can give back (numbers, texts, None, and lists, tuples and "
                f"mappings of these, with a type that says which), got {value!r}"
            )


def _contradictions(config: TrainConfig) -> Iterator[str]:
    """What is wrong with settings that are of the right kind: two that do not go together, numbers beyond all use."""
    if _is_integer(config.seed) and config.seed >= 2**63:
        yield f"seed must be less than 2**63, got {config.seed}"
    if _is_integer(config.first_ready) and _is_integer(config.num_envs) and 0 < config.first_ready >= config.num_envs:
        yield f"first_ready must be less than num_envs={config.num_envs}, got {config.first_ready}"
    if isinstance(config.randomize, Mapping) and isinstance(config.env_kwargs, Mapping):
        both = sorted(map(str, config.randomize.keys() & config.env_kwargs.keys()))
        yield from [f"{', '.join(both)} cannot be both randomised and given in env_kwargs"] if both else []
    if _is_integer(config.eval_every) and config.eval_every > 0 and config.eval_episodes == 0:
        yield f"eval_every={config.eval_every} needs eval_episodes of at least 1, got 0"
    if isinstance(config.vector_kwargs, Mapping):
        yield from _vector_problems(config)


_SET_BY_TRAINING = {
    "autoreset_mode": "training needs environments that reset in the same step",
    "copy": "training copies observations itself",
    "batch_size": "use the setting first_ready",
    "first_ready": "use the setting first_ready",
    "observation_mode": "training needs environments with equal spaces",
    "env_fns": "the environments are those of env_id",
}
"""Arguments of vector environments that training decides about, and why."""


def _vector_problems(config: TrainConfig) -> Iterator[str]:
    known = [name for name in backends.options() if name not in _SET_BY_TRAINING]
    for name in config.vector_kwargs:
        if name in _SET_BY_TRAINING:
            yield f"vector_kwargs cannot set {name}: {_SET_BY_TRAINING[name]}"
        elif name not in known:
            yield f"vector_kwargs has no {str(name)!r}{did_you_mean(str(name), known)}; there are {', '.join(known)}"


def _violations(config: TrainConfig, names: tuple[str, ...], wanted: str, holds: Callable[[Any], bool]) -> list[str]:
    present = [(name, getattr(config, name)) for name in names if hasattr(config, name)]
    return [f"{name} must be {wanted}, got {value!r}" for name, value in present if not holds(value)]


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if _is_integer(value):
        return bool(abs(value) < 2**1023)  # larger ones are no floats
    return isinstance(value, float) and math.isfinite(value)


def _are_widths(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_integer(width) and width >= 1 for width in value)


def _are_names(value: Any) -> bool:
    def is_name(name: Any) -> bool:
        return isinstance(name, str) and bool(name) and not set(name) & set(',"\r\n')

    return isinstance(value, tuple) and all(map(is_name, value))


def _are_distributions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(entry, Distribution) for name, entry in value.items()
    )


def _survives_json(value: Any) -> bool:
    """Whether a run can be resumed, and its agent loaded, with the very same value read from config.json."""
    try:
        return isinstance(value, Mapping) and bool(json.loads(json.dumps(dict(value))) == dict(value))
    except (TypeError, ValueError, RecursionError):
        return False
