"""An agent to watch while it plays: in a window, without a film."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from envfleet._names import explains_names
from envfleet.randomize import Distribution, draw_parameters
from envfleet.scenarios import format_randomize
from envfleet.train.agent import Agent
from envfleet.train.filming.stage import Stage
from envfleet.train.folders.trust import AllowImport
from envfleet.train.judging.play_setup import (
    PlaySetup,
    as_agent,
    check_fits,
    check_integer,
    evaluation_seed,
    has_screen,
    one_torch_thread,
    seeded,
)
from envfleet.train.judging.scores import Evaluation

_WINDOW_LIBRARIES = ("pygame", "glfw")


@explains_names
def play_in_window(
    agent_or_run: Agent | str | os.PathLike[str],
    *,
    episodes: int = 3,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    allow_import: AllowImport = False,
) -> Evaluation:
    """Play episodes with an agent in a window, at the environment's own speed.

    The episodes are those that `showcase` films with the same arguments. Ctrl-C ends it.

    Args:
        agent_or_run: An agent, or the folder of a run.
        episodes: How many.
        seed: Zero or more; as for `evaluate`.
        env_kwargs: Constructor arguments of the environment, over those of the agent's training.
        randomize: Parameters drawn anew for every episode.
        deterministic: Take the likeliest action instead of drawing one.
        max_steps: Cut episodes off after so many steps; by default as for `evaluate`.
        allow_import: For the folder of a run that was not trained here by you, as for `load_agent`.
    """
    check_integer("episodes", episodes, 1)
    check_integer("seed", seed, 0)
    agent = as_agent(agent_or_run, allow_import)
    _check_screen()
    setup = PlaySetup.of(agent, env_kwargs, randomize, max_steps)
    first_seed = evaluation_seed(seed)
    drawn = draw_parameters(setup.randomize, episodes, first_seed)
    with (
        closing(Stage(setup, [drawn.row(index) for index in range(episodes)], "human")) as stage,
        seeded(agent, first_seed),
        one_torch_thread(),
    ):
        check_fits(agent, stage.env.observation_space, stage.env.action_space)
        _play(stage, agent, first_seed, deterministic)
    return Evaluation(
        env_id=setup.env_id,
        seed=seed,
        returns=tuple(episode.score for episode in stage.finished),
        lengths=tuple(episode.length for episode in stage.finished),
        parameters={**(env_kwargs or {}), **format_randomize(setup.randomize)},
        cut=sum(episode.length == setup.limit for episode in stage.finished),
    )


def _check_screen() -> None:
    if not has_screen():
        raise OSError(
            "there is no screen to open a window on: neither DISPLAY nor WAYLAND_DISPLAY is set. Make a film instead, "
            "or connect with `ssh -X`."
        )


def _play(stage: Stage, agent: Agent, seed: int, deterministic: bool) -> None:
    try:
        for _ in stage.play(agent, seed, deterministic):
            pass  # environments with render_mode="human" draw themselves
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _WINDOW_LIBRARIES:
            raise
        raise OSError(
            f"no window could be opened for {stage.env_id}: {type(error).__name__}: {error}. Make a film instead."
        ) from error
