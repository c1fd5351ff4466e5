"""Environments that follow a script, and the same scripts played by hand as the reference.

Episode after episode an environment shows observations that are a pure function of (environment, episode,
step), so the tests know every number it will ever produce without asking a vector environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from hypothesis import settings
from hypothesis import strategies as st

AnyVectorEnv = VectorEnv[Any, Any, Any]
Maker = Callable[..., AnyVectorEnv]
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = [NEXT_STEP, SAME_STEP, DISABLED]

patient = settings(deadline=None, max_examples=60)
"""For property tests that start processes, which takes as long as it takes."""

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 5, 2), np.uint8)
RGB = spaces.Box(0, 255, (4, 4, 3), np.uint8)
OBSERVATION_SPACES: dict[str, spaces.Space[Any]] = {
    "vector": VECTOR,
    "bounded": spaces.Box(-2.0, 2.0, (3,), np.float32),
    "image": IMAGE,
    "rgb": RGB,
    "dict": spaces.Dict({"eye": IMAGE, "body": spaces.Dict({"joints": VECTOR, "mass": spaces.Box(1, 9, ())})}),
    "tuple": spaces.Tuple((VECTOR, IMAGE)),
    "finite": spaces.Dict(
        {
            "room": spaces.Discrete(7, start=2),
            "doors": spaces.MultiBinary(3),
            "keys": spaces.MultiDiscrete([4, 5]),
        }
    ),
}


def observe(space: spaces.Space[Any], env: int, episode: int, step: int) -> Any:
    """Return the element of `space` shown by `env` in `step` of `episode`."""
    if isinstance(space, spaces.Dict):
        return {key: observe(sub, env, episode, step) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(observe(sub, env, episode, step) for sub in space.spaces)
    number = 37 * env + 11 * episode + step
    if isinstance(space, spaces.Discrete):
        return space.start + number % space.n
    if isinstance(space, spaces.MultiBinary):
        return ((number >> np.arange(space.shape[0])) & 1).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return (number % space.nvec).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    if space.shape == ():
        return np.array(1 + number % 8, dtype=space.dtype)
    if space.dtype == np.uint8:
        return ((number + np.arange(int(np.prod(space.shape))).reshape(space.shape)) % 256).astype(np.uint8)
    numbers = np.array([env - 0.3 * step, 1e3 + np.sin(number), 5.0], dtype=space.dtype)
    return np.clip(numbers, space.low, space.high)


def reward_of(env: int, episode: int, step: int) -> float:
    """Return the reward of the `step`-th step, counted from 1."""
    return float(np.cos(3 * env + episode) + 0.5 * step)


@dataclass(frozen=True)
class Ending:
    """One episode: how many steps it has and whether it is truncated instead of terminated."""

    length: int
    truncated: bool


Script = tuple[Ending, ...]


class ScriptedEnv(gym.Env[Any, Any]):
    """Plays the episodes of its script, over and over."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, index: int, script: Script, kind: str = "vector") -> None:
        self.observation_space = OBSERVATION_SPACES[kind]
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 1000}
        self.render_mode = "rgb_array"
        self._index, self._script = index, script
        self._episode, self._step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._observe(), {"episode_number": self._episode}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        ending = self._script[self._episode % len(self._script)]
        over = self._step >= ending.length
        reward = reward_of(self._index, self._episode, self._step)
        info = {"step_number": self._step, "heard": np.array(action, dtype=np.float32)}
        return self._observe(), reward, over and not ending.truncated, over and ending.truncated, info

    def render(self) -> Any:
        return observe(RGB, self._index, self._episode, self._step)

    def _observe(self) -> Any:
        return observe(self.observation_space, self._index, self._episode, self._step)


def env_fns(scripts: Sequence[Script], kind: str = "vector") -> list[Callable[[], ScriptedEnv]]:
    """Return one constructor for each script."""
    return [partial(ScriptedEnv, index, script, kind) for index, script in enumerate(scripts)]


@dataclass(frozen=True)
class Row:
    """What one environment shows after one operation."""

    obs: Any
    fresh: bool
    """The observation is new; False for a row that a masked reset left alone."""
    first: bool
    """The (fresh) observation begins an episode."""
    played: bool = False
    """An action was taken, so the reward counts."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    final: Any = None
    """In SAME_STEP mode, the last observation of the episode that ended."""

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Operation:
    """A step (`mask` None) or a reset of the environments in `mask`, and the rows it must give."""

    mask: tuple[bool, ...] | None
    rows: tuple[Row, ...]


class HandPlayer:
    """Drives single environments as a vector environment of the given mode should."""

    def __init__(self, scripts: Sequence[Script], kind: str, mode: AutoresetMode) -> None:
        self._envs = [make() for make in env_fns(scripts, kind)]
        self._mode = mode
        self._last: list[Row] = [Row(None, False, False)] * len(self._envs)

    @property
    def done(self) -> tuple[bool, ...]:
        return tuple(row.done for row in self._last)

    def reset(self, mask: tuple[bool, ...]) -> Operation:
        for index, chosen in enumerate(mask):
            kept = self._last[index]
            flags = {"terminated": kept.terminated, "truncated": kept.truncated}
            self._last[index] = self._begin(index) if chosen else Row(kept.obs, False, False, **flags)
        return Operation(mask, tuple(self._last))

    def step(self) -> Operation:
        self._last = [self._step(index) for index in range(len(self._envs))]
        return Operation(None, tuple(self._last))

    def _begin(self, index: int) -> Row:
        return Row(self._envs[index].reset()[0], fresh=True, first=True)

    def _step(self, index: int) -> Row:
        if self._mode is NEXT_STEP and self._last[index].done:
            return self._begin(index)
        assert self._mode is SAME_STEP or not self._last[index].done, "the test must reset first"
        obs, reward, terminated, truncated, _ = self._envs[index].step([0.0, 0.0])
        played = partial(Row, fresh=True, played=True, reward=reward, terminated=terminated, truncated=truncated)
        if self._mode is SAME_STEP and (terminated or truncated):
            return played(self._envs[index].reset()[0], first=True, final=obs)
        return played(obs, first=False)


def play_by_hand(
    scripts: Sequence[Script], wanted: Sequence[tuple[bool, ...] | None], kind: str, mode: AutoresetMode
) -> list[Operation]:
    """Play a full reset and then what is `wanted`, with the masked resets that DISABLED mode calls for."""
    player = HandPlayer(scripts, kind, mode)
    operations = [player.reset((True,) * len(scripts))]
    for mask in wanted:
        if mask is not None:
            operations.append(player.reset(mask))
            continue
        if mode is DISABLED and any(player.done):
            operations.append(player.reset(player.done))
        operations.append(player.step())
    return operations


@dataclass(frozen=True)
class Play:
    """A random play: who, in which mode, and everything that must come out."""

    kind: str
    mode: AutoresetMode
    copy: bool
    scripts: tuple[Script, ...]
    operations: list[Operation]

    def vector_env(self, make: Maker) -> AnyVectorEnv:
        return make(env_fns(self.scripts, self.kind), copy=self.copy, autoreset_mode=self.mode)


@st.composite
def plays(draw: st.DrawFn, kinds: Sequence[str] = ("vector",)) -> Play:
    """Random episode lengths and endings, random masked resets in between, every mode."""
    endings = st.builds(Ending, st.integers(1, 5), st.booleans())
    scripts = draw(st.lists(st.lists(endings, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))
    masks = st.tuples(*[st.booleans()] * len(scripts)).filter(any)
    # Four steps to one masked reset, or episodes would hardly ever end by themselves.
    wanted = draw(st.lists(st.one_of(*[st.none()] * 4, masks), max_size=18))
    kind, mode, copy = draw(st.sampled_from(kinds)), draw(st.sampled_from(MODES)), draw(st.booleans())
    return Play(kind, mode, copy, tuple(scripts), play_by_hand(scripts, wanted, kind, mode))


def run(envs: AnyVectorEnv, operations: Sequence[Operation]) -> Iterator[tuple[Operation, tuple[Any, ...]]]:
    """Do the operations on `envs` and yield each with what came back: (obs, infos) or a step's five."""
    actions = np.zeros((envs.num_envs, 2), dtype=np.float32)
    for number, operation in enumerate(operations):
        if operation.mask is None:
            yield operation, envs.step(actions)
        elif number == 0:
            yield operation, envs.reset(seed=0)
        else:
            yield operation, envs.reset(options={"reset_mask": np.array(operation.mask)})


class FrozenOutputs(VectorWrapper[Any, Any, Any, Any, Any]):
    """Makes every array it passes on read-only, as if it belonged to the environment; remembers the infos."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, infos = self.env.reset(**kwargs)
        return freeze(obs), self._remember(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *arrays, infos = self.env.step(actions)
        obs, rewards, terminated, truncated = (freeze(array) for array in arrays)
        return obs, rewards, terminated, truncated, self._remember(infos)

    def _remember(self, infos: dict[str, Any]) -> dict[str, Any]:
        self.infos, self._before = infos, dict(infos)
        return freeze(infos)  # type: ignore[no-any-return]

    def check_untouched(self) -> None:
        """Fail if somebody added to, removed from or replaced in the last infos."""
        assert self.infos.keys() == self._before.keys()
        assert all(self.infos[key] is value for key, value in self._before.items())


def freeze(value: Any) -> Any:
    """Make all arrays in nested dicts, tuples and object arrays read-only."""
    if isinstance(value, dict):
        for item in value.values():
            freeze(item)
    elif isinstance(value, tuple):
        for item in value:
            freeze(item)
    elif isinstance(value, np.ndarray):
        value.flags.writeable = False
        if value.dtype == object:
            for item in value:
                freeze(item)
    return value


def leaves(value: Any) -> list[npt.NDArray[Any]]:
    """Return the arrays of nested dicts (sorted by key) and tuples."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [np.asarray(value)]
