"""An agent to watch: a video of some episodes, and a still."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

from gymnasium.vector.utils import concatenate, create_empty_array

from envfleet._names import accepted_keywords, explains_names
from envfleet._single import constructor_of, is_function, make_env, spec_of
from envfleet.errors import NonFiniteError
from envfleet.randomize import Distribution, draw_parameters
from envfleet.train.agent import Agent
from envfleet.train.judging.play_setup import PlaySetup, as_agent, check_fits, check_integer, evaluation_seed, seeded
from envfleet.train.judging.video import Exposures, Frame, picture_of, write_still, write_video
from envfleet.train.running.trust import AllowImport
from envfleet.vector.fused_env import AnyEnv

SHOWCASE_FILE = "showcase.mp4"
_DEFAULT_FPS = 30


@dataclass(frozen=True)
class Showcase:
    """What was played and where to watch it.

    Attributes:
        path: the video.
        still: a picture of the best episode.
        returns: the sum of rewards of each episode.
        lengths: the steps of each episode.
    """

    path: Path
    still: Path
    returns: tuple[float, ...]
    lengths: tuple[int, ...]


@explains_names
def showcase(
    agent_or_run: Agent | str | os.PathLike[str],
    *,
    episodes: int = 3,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    allow_import: AllowImport = False,
) -> Showcase:
    """Play episodes with an agent and film them.

    With the seed of an evaluation, the episodes are the first ones of its environments.

    Args:
        agent_or_run: An agent, or the folder of a run.
        episodes: How many.
        seed: Zero or more; as for `evaluate`.
        path: The video, ending in .mp4; the still lies beside it as .png. By default showcase.mp4 in the run.
        env_kwargs: Constructor arguments of the environment, over those of the agent's training.
        randomize: Parameters drawn anew for every episode.
        deterministic: Take the likeliest action instead of drawing one.
        max_steps: Cut episodes off after so many steps; by default as for `evaluate`.
        allow_import: For the folder of a run that was not trained here by you, as for `load_agent`.
    """
    check_integer("episodes", episodes, 1)
    check_integer("seed", seed, 0)
    target = _target(agent_or_run, path)
    agent = as_agent(agent_or_run, allow_import)
    setup = PlaySetup.of(agent, env_kwargs, randomize, max_steps)
    first_seed = evaluation_seed(seed)
    drawn = draw_parameters(setup.randomize, episodes, first_seed)
    with (
        closing(_Camera(setup, [drawn.row(index) for index in range(episodes)])) as camera,
        seeded(agent, first_seed),
    ):
        check_fits(agent, camera.env.observation_space, camera.env.action_space)
        write_video(target, camera.film(agent, first_seed, deterministic), camera.fps)
        still = target.with_suffix(".png")
        write_still(still, picture_of(camera.best_frames))
    return Showcase(target, still, tuple(camera.returns), tuple(camera.lengths))


def _target(agent_or_run: object, path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        target = Path(path)
    elif isinstance(agent_or_run, (str, os.PathLike)):
        target = Path(agent_or_run) / SHOWCASE_FILE
    else:
        raise ValueError('an agent has no folder to put its video in: give path="somewhere.mp4".')
    if target.suffix.lower() != ".mp4":
        raise ValueError(f"a video's path must end in .mp4, got {os.fspath(target)!r}.")
    return target


@final
class _Camera:
    """Films one episode after another; an environment is made anew only where its parameters change."""

    def __init__(self, setup: PlaySetup, parameters: Sequence[Mapping[str, Any]]) -> None:
        self._setup, self._parameters = setup, parameters
        self.env = _make_env(setup, parameters[0])
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.best_frames: list[Frame] = []

    @property
    def fps(self) -> int:
        """Frames a second at which the environment looks right."""
        return int(self.env.metadata.get("render_fps") or _DEFAULT_FPS)

    def film(self, agent: Agent, seed: int, deterministic: bool) -> Iterator[Frame]:
        """Every frame of every episode, the first and the last included."""
        for index, parameters in enumerate(self._parameters):
            if index and parameters != self._parameters[index - 1]:
                self.env.close()
                self.env = _make_env(self._setup, parameters)
            yield from self._episode(agent, seed + index, deterministic)

    def _episode(self, agent: Agent, seed: int, deterministic: bool) -> Iterator[Frame]:
        observation, _ = self.env.reset(seed=seed)
        exposures, score, length, over = Exposures(), 0.0, 0, False
        while True:
            frame = self._render()
            yield frame
            exposures.add(frame)
            if over:
                break
            action = agent.act(self._batch_of_one(observation), deterministic=deterministic)[0]
            observation, reward, terminated, truncated, _ = self.env.step(action)
            length += 1
            if not math.isfinite(reward):
                raise NonFiniteError(
                    f"The reward at step {length:,} of episode {len(self.returns)} is {float(reward):g}, so it has no "
                    "return. Mend the environment, or film another scenario.",
                    quantity="reward",
                    step=length,
                )
            score += float(reward)
            over = terminated or truncated
        if not self.returns or score > max(self.returns):
            self.best_frames = exposures.frames()
        self.returns.append(score)
        self.lengths.append(length)

    def _render(self) -> Frame:
        try:
            return cast("Frame", self.env.render())
        except Exception as error:
            hint = ""
            if "mujoco" in type(self.env.unwrapped).__module__:
                hint = " Where there is no screen, set the environment variable MUJOCO_GL=egl (or osmesa) beforehand."
            name = type(error).__name__
            raise RuntimeError(f"{self._setup.env_id} could not be drawn: {name}: {error}.{hint}") from error

    def _batch_of_one(self, observation: Any) -> Any:
        space = self.env.observation_space
        empty: Any = create_empty_array(space, 1)
        return concatenate(space, [observation], empty)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _make_env(setup: PlaySetup, parameters: Mapping[str, Any]) -> AnyEnv:
    # Film what there is: the checks and their warnings belong to whoever writes environments.
    spec = spec_of(setup.env_id)
    unchecked = {} if is_function(spec) else {"disable_env_checker": True}
    arguments = {**unchecked, **setup.env_kwargs, **parameters, "render_mode": "rgb_array"}
    refusal = ValueError(
        f'{setup.env_id} cannot be filmed: it does not offer render_mode="rgb_array". Give its class '
        '`metadata = {"render_modes": ["rgb_array"], "render_fps": 30}`, a constructor argument `render_mode`, '
        "and a `render()` that returns uint8[height, width, 3]."
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*render_mode")  # said in our own words below
        try:
            env = make_env(spec, arguments, setup.wrappers, {})
        except Exception as error:
            if not may_offer_pictures(setup.env_id):
                raise refusal from error
            raise
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        env.close()
        raise refusal
    return env


def may_offer_pictures(env_id: str) -> bool:
    """Whether the environment's class says that it draws, as far as it can be asked: a function says nothing."""
    constructor = constructor_of(spec_of(env_id))
    accepted = accepted_keywords(constructor)
    if accepted is not None and "render_mode" not in accepted:
        return False
    modes = getattr(constructor, "metadata", {}).get("render_modes", ())
    return not isinstance(constructor, type) or "rgb_array" in modes
