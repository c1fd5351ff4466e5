"""How good an agent is: episodes played for the score alone, in one scenario or across several."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from envfleet._names import explains_names
from envfleet._single import constructor_of, spec_of
from envfleet.backends import BackendName
from envfleet.errors import NonFiniteError, WorkerError
from envfleet.randomize import Distribution, check_parameter_names
from envfleet.scenarios import Sweep, format_randomize
from envfleet.train.agent import Agent
from envfleet.train.at_once import can_be_made_at_once, make_at_once
from envfleet.train.collecting import restarted_among
from envfleet.train.finite import all_finite, exceeding, repaired
from envfleet.train.folders.trust import AllowImport
from envfleet.train.judging.play_setup import (
    PlaySetup,
    UnfitError,
    as_agent,
    check_fits,
    check_integer,
    evaluation_seed,
    seeded,
)
from envfleet.train.judging.scores import Evaluation, Scenario, table
from envfleet.train.observations import Array, Observations, map_leaves
from envfleet.vector.fused_env import MAKE_ARGUMENTS
from envfleet.wrappers._common import AnyVectorEnv

__all__ = ["Evaluation", "Scenario", "evaluate", "evaluate_sweep", "table"]

"""What gymnasium.make takes for itself and no constructor sees."""

_STEPS_AT_ONCE = 250
"""Few enough that those made after the last episode has ended do not matter."""

_LARGEST_REWARD = 1e140
"""Rewards up to this can be added up to returns, and these be squared and added up again."""


@explains_names
def evaluate(
    agent: Agent | str | os.PathLike[str],
    *,
    episodes: int = 100,
    seed: int = 0,
    num_envs: int = 10,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    backend: BackendName = "auto",
    deterministic: bool = True,
    max_steps: int | None = None,
    allow_import: AllowImport = False,
) -> Evaluation:
    """Play episodes with an agent and report their returns.

    Every environment plays a number of episodes fixed beforehand. To take the first ones to finish instead
    would count too many short episodes. The same seed gives the same result on every backend. Evaluating an
    agent in a callback of its training changes nothing of the training.

    Args:
        agent: An agent, or the folder of a run.
        episodes: How many episodes count.
        seed: Zero or more. The environments' seeds are derived from it, and are none that training uses.
        num_envs: How many environments are stepped at once, at most `episodes`.
        env_kwargs: Constructor arguments that make up the scenario, over those of the agent's training.
        randomize: Parameters drawn anew for every episode. None takes the environment as it is, also after
            training that randomised it; `agent.config.randomize` is what it was trained with.
        backend: As for `make_vec`.
        deterministic: Take the likeliest action instead of drawing one, as `Agent.act` does.
        max_steps: Cut episodes off after so many steps; the result says how many were. By default the
            environment's own time limit holds, and where it has none 30,000 steps.
        allow_import: For the folder of a run that was not trained here by you, as for `load_agent`.
    """
    for name, value, least in (("episodes", episodes, 1), ("num_envs", num_envs, 1), ("seed", seed, 0)):
        check_integer(name, value, least)
    agent = as_agent(agent, allow_import)
    setup = PlaySetup.of(agent, env_kwargs, randomize, max_steps)
    parameters = {**(env_kwargs or {}), **format_randomize(setup.randomize)}
    first_seed = evaluation_seed(seed)
    played: list[_Episode] = []
    with seeded(agent, first_seed):
        for quotas in _rounds(episodes, num_envs, randomised=bool(setup.randomize)):
            with closing(setup.make_fleet(len(quotas), first_seed + len(played), backend)) as envs:
                check_fits(agent, envs.single_observation_space, envs.single_action_space)
                played += _play(agent, envs, quotas, first_seed + len(played), deterministic)
    cut = [episode.truncated and episode.length == setup.limit for episode in played]
    return Evaluation(
        env_id=agent.config.env_id,
        seed=seed,
        returns=tuple(episode.score for episode in played),
        lengths=tuple(episode.length for episode in played),
        parameters=parameters,
        cut=sum(cut),
    )


def evaluate_in(envs: AnyVectorEnv, agent: Agent, *, episodes: int, seed: int) -> Evaluation:
    """Play episodes, without exploration, in a fleet that the caller has made by `PlaySetup.make_fleet`.

    Args:
        envs: the fleet; it is reset.
        agent: who plays.
        episodes: how many count.
        seed: the first of the environments' own seeds, which `evaluation_seed` gives.
    """
    (quotas,) = _rounds(episodes, envs.num_envs, randomised=False)
    with seeded(agent, seed):
        played = _play(agent, envs, quotas, seed, deterministic=True)
    scores, lengths, _ = zip(*played, strict=True)
    return Evaluation(agent.config.env_id, seed, returns=scores, lengths=lengths, parameters={})


@explains_names
def evaluate_sweep(
    agent: Agent | str | os.PathLike[str],
    sweep: Sweep,
    *,
    episodes: int = 100,
    seed: int = 0,
    num_envs: int = 10,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    backend: BackendName = "auto",
    deterministic: bool = True,
    max_steps: int | None = None,
    allow_import: AllowImport = False,
) -> list[Scenario]:
    """Evaluate an agent once for every value of a parameter, with the same episodes and seeds each time.

    A value that the environment refuses, or fails with, costs only its own scenario: it is reported in the
    environment's words. Arguments are those of `evaluate`.
    """
    agent = as_agent(agent, allow_import)
    _check_parameter(agent.config.env_id, sweep.name)
    play = partial(
        evaluate,
        agent,
        episodes=episodes,
        seed=seed,
        num_envs=num_envs,
        randomize=randomize,
        backend=backend,
        deterministic=deterministic,
        max_steps=max_steps,
    )
    scenarios = []
    for value in sweep.values:
        try:
            evaluation = play(env_kwargs={**(env_kwargs or {}), sweep.name: value})
            scenarios.append(Scenario(sweep.name, value, evaluation=evaluation))
        except (WorkerError, NonFiniteError, UnfitError) as error:
            scenarios.append(Scenario(sweep.name, value, error=_in_its_own_words(error)))
    return scenarios


class _Episode(NamedTuple):
    score: float
    length: int
    truncated: bool


def _rounds(episodes: int, num_envs: int, *, randomised: bool) -> Iterator[list[int]]:
    """How many episodes each environment plays, for one fleet after another.

    Parameters are drawn when an environment is made. Several episodes with the same ones would not be
    independent, and the interval around their mean too narrow: so randomised environments play one each.
    """
    num_envs = min(num_envs, episodes)
    if not randomised:
        yield [episodes // num_envs + (index < episodes % num_envs) for index in range(num_envs)]
        return
    for begin in range(0, episodes, num_envs):
        yield [1] * min(num_envs, episodes - begin)


def _play(agent: Agent, envs: AnyVectorEnv, quotas: Sequence[int], seed: int, deterministic: bool) -> list[_Episode]:
    """Each environment's first `quotas[i]` episodes, environment by environment."""
    if deterministic and isinstance(agent, Agent) and can_be_made_at_once(envs, agent):
        played = _played_at_once(agent, envs, quotas, seed)
        if played is not None:
            return played
    return _played_step_by_step(agent, envs, quotas, seed, deterministic)


def _played_at_once(agent: Agent, envs: AnyVectorEnv, quotas: Sequence[int], seed: int) -> list[_Episode] | None:
    """The same in compiled code, many steps a call; None if anything unusual happens, which single steps explain."""
    observations, _ = envs.reset(seed=seed)
    tally = _Tally(quotas)
    while tally.missing:
        stretch = make_at_once(envs, agent, _STEPS_AT_ONCE, observations, bounds=agent.action_map)
        if stretch is None or stretch.made < _STEPS_AT_ONCE:
            return None
        seen, _, rewards, terminated, truncated, _ = stretch.arrays
        if not all_finite(rewards, _LARGEST_REWARD):
            return None
        for step in range(stretch.made):
            tally.add(rewards[step], terminated[step], truncated[step], {})
        observations = seen[-1]
    return tally.episodes


def _played_step_by_step(
    agent: Agent, envs: AnyVectorEnv, quotas: Sequence[int], seed: int, deterministic: bool
) -> list[_Episode]:
    observations, _ = envs.reset(seed=seed)
    tally = _Tally(quotas)
    while tally.missing:
        actions = _act(agent, observations, tally.counting, tally.lengths, deterministic)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        if not all_finite(rewards, _LARGEST_REWARD):
            rewards = _scorable(rewards, tally.counting, tally.lengths + 1)
        tally.add(rewards, terminated, truncated, infos)
    return tally.episodes


@final
class _Tally:
    """Adds up rewards until every environment has played its number of episodes.

    Attributes:
        missing: episodes that are yet to be played.
        counting: environments that have some of them to play.
        lengths: steps of the episodes under way.
    """

    def __init__(self, quotas: Sequence[int]) -> None:
        self._quotas = quotas
        self._finished: list[list[_Episode]] = [[] for _ in quotas]
        self._scores = np.zeros(len(quotas))
        self.lengths = np.zeros(len(quotas), np.int64)
        self.counting = np.array(quotas) > 0
        self.missing = sum(quotas)

    def add(self, rewards: Array, terminated: Array, truncated: Array, infos: Mapping[str, Any]) -> None:
        """Count one step of all environments."""
        self.lengths += 1
        self._scores += rewards
        done = terminated | truncated
        ended = np.flatnonzero(done)
        if not len(ended):
            return
        # An episode that a failure cut off has no return: its environment plays another.
        restarted = set(restarted_among(infos, ended).tolist())
        for index in ended.tolist():
            if index not in restarted and self.counting[index]:
                cut = bool(truncated[index] and not terminated[index])
                self._finished[index].append(_Episode(float(self._scores[index]), int(self.lengths[index]), cut))
                self.missing -= 1
                self.counting[index] = len(self._finished[index]) < self._quotas[index]
        self._scores[done] = 0.0
        self.lengths[done] = 0

    @property
    def episodes(self) -> list[_Episode]:
        """Those that were played, environment by environment."""
        return [episode for episodes in self._finished for episode in episodes]


def _act(
    agent: Agent,
    observations: Observations,
    counting: npt.NDArray[np.bool_],
    lengths: npt.NDArray[np.int64],
    deterministic: bool,
) -> Any:
    """The agent's actions; what it cannot act on is an error only in episodes that count."""
    if not all_finite(observations) and not counting.all():
        observations = map_leaves(
            lambda leaf, fine: np.where(counting.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, fine),
            observations,
            repaired(observations),
        )
    try:
        if getattr(agent, "needs_resets", False):
            return agent.act(observations, deterministic=deterministic, resets=lengths == 0)
        return agent.act(observations, deterministic=deterministic)
    except NonFiniteError as error:
        if error.env_index is not None:
            error.step = int(lengths[error.env_index])
            error.args = (f"{error} That was after {error.step:,} steps of its episode, which cannot be scored.",)
        raise


def _scorable(
    rewards: npt.NDArray[Any], counting: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """The rewards with 0 for episodes that do not count; refused if one that does cannot be scored."""
    bad = exceeding(rewards, _LARGEST_REWARD)
    for index in np.flatnonzero(bad & counting).tolist():
        step = int(lengths[index])
        raise NonFiniteError(
            f"The reward of environment {index} at step {step:,} of its episode is {rewards[index]:g}, so the episode "
            "has no return that could be averaged. Mend the environment, or leave this scenario out.",
            quantity="reward",
            env_index=index,
            step=step,
        )
    return np.where(bad, 0.0, rewards)


def _check_parameter(env_id: str, name: str) -> None:
    # A misspelt name would otherwise be refused once a value, as if the values were the trouble.
    if name not in MAKE_ARGUMENTS:
        check_parameter_names([name], constructor_of(spec_of(env_id)), env_id)


def _in_its_own_words(error: Exception) -> str:
    """What the environment said, without the engine's account of where and when."""
    said = error.__cause__ if isinstance(error, WorkerError) and error.__cause__ is not None else error
    return f"{type(said).__name__}: {said}" if said is not error else str(error)
