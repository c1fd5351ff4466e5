"""Episodes to look at: environments that draw themselves, and an agent that plays in one or in several at once."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from gymnasium.wrappers import HumanRendering

from envfleet._names import accepted_keywords
from envfleet._optional import needs
from envfleet._single import constructor_of, is_function, make_env, spec_of
from envfleet.device.families import is_only_functional
from envfleet.errors import NonFiniteError
from envfleet.train.agent import Agent
from envfleet.train.judging.play_setup import PlaySetup
from envfleet.train.wrapping import OneWrapped
from envfleet.vector.fused_env import AnyEnv

_DEFAULT_FPS = 30


@final
@dataclass(eq=False)
class Episode:
    """An episode that is being played.

    Attributes:
        number: counted from 0, over the whole film.
        env: where it is played.
        observation: the latest.
        score: the sum of rewards so far.
        length: the steps so far.
        over: whether it has ended.
    """

    number: int
    env: AnyEnv
    observation: Any
    score: float = 0.0
    length: int = 0
    over: bool = False

    def step(self, action: Any) -> None:
        """Take one step."""
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        self.length += 1
        if not math.isfinite(reward):
            raise NonFiniteError(
                f"The reward at step {self.length:,} of episode {self.number} is {float(reward):g}, so it has no "
                "return. Mend the environment, or film another scenario.",
                quantity="reward",
                step=self.length,
            )
        self.score += float(reward)
        self.over = terminated or truncated


@final
class Stage:
    """Plays episodes, `at_once` of them side by side, one such group after another.

    An environment is made again only where its parameters change.

    Args:
        setup: where the agent plays.
        parameters: constructor arguments for each episode, over those of `setup`.
        render_mode: "rgb_array" or "human".
        at_once: how many episodes are played side by side.

    Attributes:
        env_id: what is played.
        episodes: how many there will be.
        at_once: how many of them side by side.
        finished: those that are over.
    """

    def __init__(
        self, setup: PlaySetup, parameters: Sequence[Mapping[str, Any]], render_mode: str, at_once: int = 1
    ) -> None:
        self._setup, self._parameters, self._render_mode = setup, parameters, render_mode
        self.env_id, self.episodes, self.at_once = setup.env_id, len(parameters), at_once
        self._envs: list[AnyEnv] = []
        self._made_with: list[Mapping[str, Any]] = []
        self._env_in(0, parameters[0])
        self.finished: list[Episode] = []

    @property
    def env(self) -> AnyEnv:
        """The environment of the first place."""
        return self._envs[0]

    @property
    def fps(self) -> float:
        """Steps per second at which the environment looks right."""
        fps = float(self.env.metadata.get("render_fps") or _DEFAULT_FPS)
        return fps if fps > 0 and math.isfinite(fps) else _DEFAULT_FPS

    def play(self, agent: Agent, seed: int, deterministic: bool) -> Iterator[list[Episode]]:
        """Play all episodes; yields those of a group when they have begun and after every step.

        Episodes that are over stay in their places until the whole group is.
        """
        for begin in range(0, self.episodes, self.at_once):
            numbers = range(begin, min(begin + self.at_once, self.episodes))
            group = [self._begin(place, number, seed) for place, number in enumerate(numbers)]
            yield group
            while playing := [episode for episode in group if not episode.over]:
                actions = _act(agent, self._batch(playing), playing, deterministic)
                batched = batch_space(self.env.action_space, len(playing))
                for episode, action in zip(playing, iterate(batched, actions), strict=True):
                    episode.step(action)
                yield group
            self.finished += group

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
        self._envs.clear()
        self._made_with.clear()

    def _begin(self, place: int, number: int, seed: int) -> Episode:
        env = self._env_in(place, self._parameters[number])
        observation, _ = env.reset(seed=seed + number)
        return Episode(number, env, observation)

    def _env_in(self, place: int, parameters: Mapping[str, Any]) -> AnyEnv:
        if place == len(self._envs):
            self._envs.append(_make_env(self._setup, parameters, self._render_mode))
            self._made_with.append(parameters)
        elif self._made_with[place] != parameters:
            self._envs[place].close()
            self._envs[place] = _make_env(self._setup, parameters, self._render_mode)
            self._made_with[place] = parameters
        return self._envs[place]

    def _batch(self, episodes: Sequence[Episode]) -> Any:
        space = self.env.observation_space
        empty: Any = create_empty_array(space, len(episodes))
        return concatenate(space, [episode.observation for episode in episodes], empty)


def _act(agent: Agent, observations: Any, episodes: Sequence[Episode], deterministic: bool) -> Any:
    if not getattr(agent, "needs_resets", False):
        return agent.act(observations, deterministic=deterministic)
    begins = np.array([episode.length == 0 for episode in episodes])
    numbers = np.array([episode.number for episode in episodes])
    return agent.act(observations, deterministic=deterministic, resets=begins, env_ids=numbers)


def _make_env(setup: PlaySetup, parameters: Mapping[str, Any], render_mode: str) -> AnyEnv:
    # Show what there is: the checks and their warnings belong to whoever writes environments.
    spec = spec_of(setup.env_id)
    if is_only_functional(spec):
        return _functional_env(spec, setup, parameters, render_mode)
    unchecked = {} if is_function(spec) else {"disable_env_checker": True}
    offered = _modes_of_class(setup.env_id)
    # Gymnasium opens windows for registered environments only.
    opens_window = render_mode == "human" and is_function(spec) and "human" not in (offered or ("human",))
    asked_for = "rgb_array" if opens_window else render_mode
    arguments = {**unchecked, **setup.env_kwargs, **parameters, "render_mode": asked_for}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*render_mode")  # said in our own words below
        warnings.filterwarnings("ignore", message=".*'human' rendering")
        try:
            env = make_env(spec, arguments, setup.wrappers, {})
        except Exception as error:
            if not _suits(offered, render_mode):
                raise _refusal(setup.env_id, render_mode) from error
            raise
    if not _suits(env.metadata.get("render_modes", ()), render_mode):
        env.close()
        raise _refusal(setup.env_id, render_mode)
    if not {"camera_id", "camera_name"} & arguments.keys():
        _follow(env)
    shown = HumanRendering(env) if opens_window else env
    return shown if setup.wrapping is None else OneWrapped(shown, setup.wrapping)


def _follow(env: AnyEnv) -> None:
    """Have a MuJoCo model's own camera follow it: Gymnasium's stands still unless it is told which body to track.

    HalfCheetah, Ant and Swimmer would leave the picture within a second.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or "trackbodyid" in (renderer.default_cam_config or {}):
        return
    model = renderer.model
    cameras = {model.camera(number).name: number for number in range(model.ncam)}
    renderer.camera_id = cameras.get("track", renderer.camera_id)


def _functional_env(spec: EnvSpec, setup: PlaySetup, parameters: Mapping[str, Any], render_mode: str) -> AnyEnv:
    with needs("jax"):
        single = importlib.import_module("envfleet.device.single")
    env: AnyEnv = single.SingleFunctionalEnv(spec, {**setup.env_kwargs, **parameters})
    shown: AnyEnv = HumanRendering(env) if render_mode == "human" else env
    return shown if setup.wrapping is None else OneWrapped(shown, setup.wrapping)


def _suits(offered: Sequence[str] | None, render_mode: str) -> bool:
    """Whether an environment can be shown so; Gymnasium has a window for those that only give pictures."""
    return offered is None or "rgb_array" in offered or (render_mode == "human" and "human" in offered)


def _refusal(env_id: str, render_mode: str) -> ValueError:
    if render_mode == "human":
        what = 'shown in a window: it offers neither render_mode="human" nor render_mode="rgb_array"'
    else:
        what = 'filmed: it does not offer render_mode="rgb_array"'
    return ValueError(
        f'{env_id} cannot be {what}. Give its class `metadata = {{"render_modes": ["rgb_array"], "render_fps": 30}}`, '
        "a constructor argument `render_mode`, and a `render()` that returns uint8[height, width, 3]."
    )


def may_offer_pictures(env_id: str) -> bool:
    """Whether the environment's class says that it draws, as far as it can be asked: a function says nothing."""
    return _suits(_modes_of_class(env_id), "rgb_array")


def offers_pictures(env_id: str) -> bool:
    """Whether the environment's class names the render mode "rgb_array"; what says nothing does not."""
    return "rgb_array" in (_modes_of_class(env_id) or ())


def _modes_of_class(env_id: str) -> Sequence[str] | None:
    """The render modes that the environment's class names; other makers of environments say nothing: None."""
    constructor = constructor_of(spec_of(env_id))
    accepted = accepted_keywords(constructor)
    if accepted is not None and "render_mode" not in accepted:
        return ()
    if not isinstance(constructor, type):
        return None
    modes: Sequence[str] = getattr(constructor, "metadata", {}).get("render_modes", ())
    return modes
