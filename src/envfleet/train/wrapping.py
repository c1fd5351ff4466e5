"""Vector wrappers of the user's own around the environments of a run: `train(config, wrap=fn)`.

    the fleet ─▶ its rewards are noted ─▶ the user's wrappers ─▶ Measured ─▶ what the algorithm sees

Returns are reported as the environments give them, however a wrapper scales rewards. To play, the same wrappers are put
around other environments, with what they have learnt in training, and frozen: nothing is learnt from an evaluation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, final

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet._references import named
from envfleet.train.collecting import FloatArray, Rollout
from envfleet.train.observations import map_leaves
from envfleet.train.wrapper_state import WrapperState, freeze, load_state, read_state, wrappers_of
from envfleet.wrappers._common import AnyVectorEnv, BatchWrapper, Infos, Options, Seed, StepResult, autoreset_mode

Wrap: TypeAlias = Callable[[AnyVectorEnv], AnyVectorEnv]
"""From a vector environment to the same one with wrappers around it."""


@final
class Measured(BatchWrapper):
    """The user's wrappers around a fleet, which the fleet's own rewards bypass.

    Args:
        envs: the fleet.
        wrap: puts the wrappers around it.
        for_score: whether `step` gives the fleet's own rewards instead of those that the wrappers have made of them.
    """

    def __init__(self, envs: AnyVectorEnv, wrap: Wrap, *, for_score: bool) -> None:
        self._meter = _Meter(envs)
        super().__init__(_checked(self._meter, wrap))
        self._for_score = for_score
        self._noted: list[FloatArray] = []

    def step(self, actions: Any) -> StepResult:
        """Step the environments."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        given = self._meter.take()
        if self._for_score:
            return observations, given, terminated, truncated, infos
        self._noted.append(given)
        return observations, rewards, terminated, truncated, infos

    def forget(self) -> None:
        """A rollout begins: what was noted before belongs to none."""
        self._noted.clear()

    def as_given(self, rollout: Rollout) -> Rollout:
        """The rollout that has just been collected, with the rewards that the fleet gave."""
        return dataclasses.replace(rollout, rewards=np.stack(self._noted))


@final
class _Meter(BatchWrapper):
    """Adds up what each environment gives until that is taken: a wrapper may take several steps in one."""

    def __init__(self, envs: AnyVectorEnv) -> None:
        super().__init__(envs)
        self._sum: FloatArray = np.zeros(envs.num_envs)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        self._sum = np.zeros(self.num_envs)
        envs: Any = self.env
        result: tuple[Any, Infos] = envs.reset(seed=seed, options=options)
        return result

    def step(self, actions: Any) -> StepResult:
        result = self.env.step(actions)
        self._sum = self._sum + result[1]
        return result

    def take(self) -> FloatArray:
        taken, self._sum = self._sum, np.zeros(self.num_envs)
        return taken


@final
class Wrapping:
    """The user's wrappers of a run, with what they have learnt.

    Args:
        wrap: puts them around a vector environment.
        state: what they have learnt; or the environments of a training under way, which always know the latest.
    """

    def __init__(self, wrap: Wrap, state: WrapperState | AnyVectorEnv) -> None:
        self._wrap, self._state = wrap, state

    @property
    def name(self) -> str:
        """The function's, "module:function"."""
        return str(named(self._wrap))

    def state(self) -> WrapperState:
        """What they have learnt by now."""
        return self._state if isinstance(self._state, dict) else read_state(self._state)

    def settle(self) -> None:
        """The training is over: keep what was learnt, and let its environments go."""
        self._state = self.state()

    def to_play(self, envs: AnyVectorEnv) -> AnyVectorEnv:
        """The same wrappers around other environments, for a score: they learn nothing more, and closing closes both.

        If that fails, the environments are closed.
        """
        try:
            wrapped = Measured(envs, self._wrap, for_score=True)
            load_state(wrapped, self.state())
        except BaseException:
            envs.close()
            raise
        freeze(wrapped)
        return wrapped

    def refresh(self, envs: AnyVectorEnv) -> None:
        """Let environments that `to_play` gave have what has been learnt since."""
        load_state(envs, self.state())


def measured(envs: AnyVectorEnv) -> Measured | None:
    """The user's wrappers among those around the environments of a run, if there are any."""
    return next((wrapper for wrapper in wrappers_of(envs) if isinstance(wrapper, Measured)), None)


def playing_actions(envs: AnyVectorEnv) -> Space[Any]:
    """The action space of one environment of a run, as an agent plays in it: as wrapped by the user, not by us."""
    wrapped = measured(envs)
    return envs.unwrapped.single_action_space if wrapped is None else wrapped.single_action_space


@final
class OneWrapped(gym.Env[Any, Any]):
    """A single environment with the user's vector wrappers around it, for films.

    Args:
        env: the environment.
        wrapping: the wrappers.
    """

    def __init__(self, env: gym.Env[Any, Any], wrapping: Wrapping) -> None:
        self._env = env
        # Gymnasium's steps the environment whole, with every wrapper that its pictures go through. It is not reset by
        # itself: the last picture of an episode is that of its end.
        alone = gym.vector.SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.DISABLED)
        self._envs: Any = wrapping.to_play(alone)
        self.observation_space, self.action_space = self._envs.single_observation_space, self._envs.single_action_space
        self.metadata, self.render_mode, self.spec = env.metadata, env.render_mode, env.spec

    @property
    def unwrapped(self) -> gym.Env[Any, Any]:
        """The environment itself."""
        return self._env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observations, infos = self._envs.reset(seed=seed, options=options)
        return _first(observations), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step; the reward is the environment's own."""
        observations, rewards, terminated, truncated, infos = self._envs.step(np.asarray(action)[None])
        return _first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), infos

    def render(self) -> Any:
        """The environment's picture."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._envs.close()


def _first(observations: Any) -> Any:
    return map_leaves(lambda leaf: np.copy(leaf[0]), observations)


def _checked(envs: AnyVectorEnv, wrap: Wrap) -> AnyVectorEnv:
    """What `wrap` makes of the environments, refused if it is not the same ones with wrappers around them."""
    made: Any = wrap(envs)
    if not isinstance(made, VectorEnv):
        raise TypeError(f"wrap must return a gymnasium.vector.VectorEnv, got {type(made).__name__} of {named(wrap)}.")
    if envs not in (made, *wrappers_of(made)):
        raise ValueError(f"wrap must return the environments it was given with wrappers around them, got {made}.")
    if made.num_envs != envs.num_envs:
        raise ValueError(f"wrap must keep all {envs.num_envs} environments, got {made.num_envs}.")
    if autoreset_mode(made) is not autoreset_mode(envs):
        raise ValueError(f"wrap must keep the autoreset mode, {autoreset_mode(envs)}, got {autoreset_mode(made)}.")
    return made
