"""Which of Gymnasium's environments exist in C++, and how their constructor arguments become parameters."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np
from gymnasium.envs.registration import EnvSpec

from envfleet import _native
from envfleet.errors import UnsupportedError as UnsupportedError
from envfleet.native import box2d, mujoco
from envfleet.native.own.environment import OwnEnvironment, Parameters, PoolParameters
from envfleet.vector.arguments import is_integer
from envfleet.vector.fused_env import MAKE_ARGUMENTS, AnyEnv

NO_LIMIT = sys.maxsize


class Companions(Protocol):
    """What compiled environments need in Python as long as they live.

    Attributes:
        parameters: Of each environment, as the pool takes them.
    """

    parameters: list[Parameters]

    def completed(self, index: int, parameters: Parameters) -> Parameters:
        """The parameters of environment ``index`` as the pool takes them."""

    def check_attribute(self, name: str, value: Any) -> None:
        """Refuses, with an UnsupportedError, what an attribute cannot be set to."""

    def draw(self, index: int, env: Any) -> Any:
        """The frame of environment ``index``, drawn as one of Gymnasium's environments draws itself."""

    def close(self) -> None:
        """Closes what draws."""


def set_attributes(env: Any, attributes: Mapping[str, Any]) -> None:
    """Brings one of Gymnasium's environments into the state that the attributes describe."""
    for name, value in attributes.items():
        setattr(env, name, value)


@final
@dataclass(frozen=True)
class NativeKind:
    """An environment that exists in C++.

    Attributes:
        name: What the compiled catalogue calls it.
        parameters: From constructor arguments to the parameters in C++; its signature is Gymnasium's, without
            ``render_mode``.
        shaping: Arguments on which the spaces depend: all environments of a fleet share them.
        named_if: Other names in the compiled catalogue, by the argument that must be true.
        pose: Brings one of Gymnasium's environments, which is to draw, into the state of a native one.
        needs: What the build must have found for it, as an error message puts it.
        title: What messages call it, if not that; only environments of users' own have one.
        stand_in: Makes an environment with the spaces of Gymnasium's own from the constructor arguments, without the
            package that Gymnasium's needs; it does nothing else.
        companions: Makes what the environments need in Python, from one of Gymnasium's environments, the parameters
            (of all environments, or of each) and the number of environments.
    """

    name: str
    parameters: Callable[..., Parameters]
    shaping: frozenset[str] = frozenset()
    named_if: Mapping[str, str] = field(default_factory=dict)
    pose: Callable[[Any, Mapping[str, Any]], None] = set_attributes
    needs: str = ""
    title: str = ""
    stand_in: Callable[[Mapping[str, Any]], AnyEnv] | None = None
    companions: Callable[[Any, Sequence[Parameters], int], Companions] | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether the build had what this environment needs."""
        return self.name in _native.kinds()

    def name_for(self, env_kwargs: Mapping[str, Any]) -> str:
        """What the compiled catalogue calls it when made with these arguments."""
        return next((name for argument, name in self.named_if.items() if env_kwargs.get(argument)), self.name)

    def unknown_arguments(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are no arguments of this environment."""
        return sorted(set(names) - self._known_arguments)

    @functools.cached_property
    def _known_arguments(self) -> frozenset[str]:
        return frozenset((*inspect.signature(self.parameters).parameters, "render_mode"))

    def parameters_from(self, env_kwargs: dict[str, Any]) -> Parameters:
        """The parameters in C++ of an environment made with these arguments."""
        return self.parameters(**{name: value for name, value in env_kwargs.items() if name != "render_mode"})


def _acrobot() -> Parameters:
    return {}


def _cart_pole(sutton_barto_reward: bool = False) -> Parameters:
    return {"_sutton_barto_reward": bool(sutton_barto_reward)}


def _mountain_car(goal_velocity: float = 0) -> Parameters:
    return {"goal_velocity": float(goal_velocity)}


def _pendulum(g: float = 10.0) -> Parameters:
    return {"g": float(g)}


def _blackjack(natural: bool = False, sab: bool = False) -> Parameters:
    return {"natural": bool(natural), "sab": bool(sab)}


def _cliff_walking(is_slippery: bool = False) -> Parameters:
    return {"is_slippery": bool(is_slippery)}


def _frozen_lake(
    desc: Sequence[str] | None = None,
    map_name: str | None = "4x4",
    is_slippery: bool = True,
    success_rate: float = 1.0 / 3.0,
    reward_schedule: tuple[float, float, float] = (1, 0, 0),
) -> Parameters:
    if desc is None and map_name is None:
        raise UnsupportedError("a random map (desc=None and map_name=None)")
    from gymnasium.envs.toy_text.frozen_lake import MAPS  # with all of toy text: not before it is needed

    cells = np.asarray(MAPS[str(map_name)] if desc is None else desc, dtype="c")
    if cells.ndim != 2:
        raise UnsupportedError("a map whose rows differ in length")
    return {
        "map": cells.tobytes().decode(),
        "ncol": cells.shape[1],
        "is_slippery": bool(is_slippery),
        "success_rate": _as_float("success_rate", success_rate),
        "reward_schedule": [float(reward) for reward in reward_schedule],
    }


def _taxi(
    is_rainy: bool = False,
    fickle_passenger: bool = False,
    rainy_probability: float = 0.8,
    fickle_probability: float = 0.3,
) -> Parameters:
    return {
        "is_rainy": bool(is_rainy),
        "fickle_passenger": bool(fickle_passenger),
        "rainy_probability": _as_float("rainy_probability", rainy_probability),
        "fickle_probability": float(fickle_probability),
    }


def _as_float(name: str, value: Any) -> float:
    """A probability that shows in the infos: one given as an integer would have to stay one there."""
    if not isinstance(value, float):
        raise UnsupportedError(f"{name}={value!r}, which is no float")
    return float(value)


_BOX2D = "gymnasium.envs.box2d"
_BOX2D_NEEDS = "the sources of Box2D, which the installation could not download: reinstall where pip finds box2d-py"
_CLASSIC = "gymnasium.envs.classic_control"
_MUJOCO = "gymnasium.envs.mujoco"
_TOY_TEXT = "gymnasium.envs.toy_text"


def _mujoco(entry_point: str) -> NativeKind:
    name = entry_point.partition(":")[2].removesuffix("Env")
    parameters = mujoco.ARGUMENTS[entry_point]
    return NativeKind(name, parameters, mujoco.SHAPING, companions=mujoco.Simulations)


_KINDS: dict[str, NativeKind] = {
    f"{_BOX2D}.bipedal_walker:BipedalWalker": NativeKind(
        "BipedalWalker",
        box2d.bipedal_walker,
        pose=box2d.pose_walker,
        needs=_BOX2D_NEEDS,
        stand_in=box2d.walker_spaces,
    ),
    f"{_BOX2D}.lunar_lander:LunarLander": NativeKind(
        "LunarLander",
        box2d.lunar_lander,
        frozenset(("continuous",)),
        {"continuous": "LunarLanderContinuous"},
        box2d.pose_lander,
        _BOX2D_NEEDS,
        stand_in=box2d.lander_spaces,
    ),
    f"{_CLASSIC}.acrobot:AcrobotEnv": NativeKind("Acrobot", _acrobot),
    f"{_CLASSIC}.cartpole:CartPoleEnv": NativeKind("CartPole", _cart_pole),
    f"{_CLASSIC}.continuous_mountain_car:Continuous_MountainCarEnv": NativeKind("MountainCarContinuous", _mountain_car),
    f"{_CLASSIC}.mountain_car:MountainCarEnv": NativeKind("MountainCar", _mountain_car),
    f"{_CLASSIC}.pendulum:PendulumEnv": NativeKind("Pendulum", _pendulum),
    f"{_TOY_TEXT}.blackjack:BlackjackEnv": NativeKind("Blackjack", _blackjack),
    f"{_TOY_TEXT}.cliffwalking:CliffWalkingEnv": NativeKind("CliffWalking", _cliff_walking),
    f"{_TOY_TEXT}.frozen_lake:FrozenLakeEnv": NativeKind("FrozenLake", _frozen_lake, frozenset(("desc", "map_name"))),
    f"{_TOY_TEXT}.taxi:TaxiEnv": NativeKind("Taxi", _taxi),
    **{f"{_MUJOCO}.{entry_point}": _mujoco(entry_point) for entry_point in mujoco.ARGUMENTS},
}
"""By entry point, so that whoever registers another class under Gymnasium's id gets that class."""


def find(spec: EnvSpec) -> NativeKind | None:
    """The environment in C++ that does what the spec's entry point does, if there is one."""
    if isinstance(spec.entry_point, OwnEnvironment):
        own = spec.entry_point
        return NativeKind("Foreign", PoolParameters(own), pose=own.pose, title=own.description.name)
    return _KINDS.get(spec.entry_point) if isinstance(spec.entry_point, str) else None


@final
@dataclass(frozen=True)
class EnvArguments:
    """What one environment is made with, as the pool takes it.

    Attributes:
        parameters: By their names in C++.
        time_limit: Steps an episode.
    """

    parameters: Parameters
    time_limit: int


def env_arguments(spec: EnvSpec, kind: NativeKind, env_kwargs: Mapping[str, Any]) -> EnvArguments:
    """The arguments of one environment, those of the registry included; an UnsupportedError names what is not."""
    constructor = {**spec.kwargs, **env_kwargs}
    of_make = {name: constructor.pop(name) for name in MAKE_ARGUMENTS if name in constructor}
    unknown = kind.unknown_arguments(constructor)
    if unknown:
        raise UnsupportedError(f"the argument {unknown[0]!r} of {spec.id}")
    return EnvArguments(kind.parameters_from(constructor), _time_limit(spec, of_make.get("max_episode_steps")))


def check_varied(spec: EnvSpec, kind: NativeKind, varied: Sequence[Mapping[str, Any]]) -> None:
    """Refuses arguments in which the environments of one fleet cannot differ, whichever environment has them."""
    shared = {"render_mode", "disable_env_checker", *kind.shaping}
    for env, arguments in enumerate(varied):
        for name in sorted(shared.intersection(arguments)):
            raise UnsupportedError(
                f"environments that differ in {name!r}, which environment {env} of {spec.id} has as "
                f"{arguments[name]!r:.80}: give it to all of them alike, as a constructor argument, or use "
                "backend='process', with vector_kwargs={'observation_mode': 'different'} where their spaces differ"
            )


def _time_limit(spec: EnvSpec, asked: Any) -> int:
    """As ``gymnasium.make`` has it: -1 for none, None for the registered one."""
    limit = spec.max_episode_steps if asked is None else asked
    if limit is None or limit == -1:
        return NO_LIMIT
    if not is_integer(limit) or not 0 < limit <= NO_LIMIT:
        raise ValueError(f"max_episode_steps of {spec.id} must be a positive integer, or -1 for none, got {limit!r}.")
    return int(limit)
