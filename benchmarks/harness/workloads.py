"""What is stepped: an environment, how many of it, and the actions it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space

from .environments import BUSY, BUSY_EXPONENTIAL, DICT_IMAGE, MEGABYTE, POND, make_pong, register_pond

CARTPOLE = "CartPole-v1"
LANDER = "LunarLander-v3"
CHEETAH = "HalfCheetah-v5"
ANT = "Ant-v5"
PONG = "ALE/Pong-v5"

ACTION_BATCHES = 128
WITH_POLICY = "+policy"

# Copies started together also end their first episodes together. Until the episodes are well mixed a slow
# engine would see only the cheap steps of young episodes, a fast one the expensive resets as well.
MIXING_ROUNDS = {LANDER: 150, CHEETAH: 20, ANT: 50, PONG: 20, BUSY: 5, BUSY_EXPONENTIAL: 5, MEGABYTE: 20}
DEFAULT_MIXING_ROUNDS = 100


@dataclass(frozen=True)
class Workload:
    """`num_envs` copies of the environment `env_id`; with `policy`, a small network picks the actions."""

    env_id: str
    num_envs: int
    policy: bool = False

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read `CartPole-v1:64` or `CartPole-v1:64+policy`."""
        fleet = text.removesuffix(WITH_POLICY)
        env_id, _, count = fleet.rpartition(":")
        if not env_id or not count.isdecimal() or int(count) < 1:
            raise ValueError(
                f"a workload is ID:NUM_ENVS, such as CartPole-v1:64, with {WITH_POLICY} behind it if a network "
                f"is to pick the actions; got {text!r}"
            )
        return cls(env_id, int(count), policy=fleet != text)

    @property
    def name(self) -> str:
        """As it is printed: `64 x CartPole-v1`."""
        return f"{self.num_envs} x {self.env_id}{' with a policy' if self.policy else ''}"

    @property
    def mixing_rounds(self) -> int:
        """How many batched steps until young and old episodes are mixed."""
        return MIXING_ROUNDS.get(self.env_id, DEFAULT_MIXING_ROUNDS)

    def register(self) -> None:
        """Makes the id known to Gymnasium, if importing this has not done so."""
        if self.env_id == POND and POND not in gymnasium.registry:
            register_pond()

    def env_fn(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        """A function that makes one environment, in whatever process it is called."""
        if self.env_id == PONG:
            return make_pong
        self.register()
        # The spec instead of its name: a process started afresh has no registration of the made-up ones.
        return partial(gymnasium.make, gymnasium.spec(self.env_id))


def single_actions(space: Space[Any]) -> list[Any]:
    """Random actions for one environment, the same ones every time."""
    space.seed(0)
    return [space.sample() for _ in range(ACTION_BATCHES)]


def batched_actions(space: Space[Any], num_envs: int) -> list[Any]:
    """Random actions for a fleet, the same ones every time and for every engine."""
    return single_actions(batch_space(space, num_envs))


SIZES = {
    CARTPOLE: (1, 8, 64, 1024),
    LANDER: (8, 64),
    CHEETAH: (8, 64),
    ANT: (8, 64),
    PONG: (8, 64),
    BUSY: (8,),
    BUSY_EXPONENTIAL: (8,),
    DICT_IMAGE: (64,),
    MEGABYTE: (8,),
}
"""Numbers of environments where they make a difference: all of all would take an hour."""
HEADLINE = tuple(Workload(env_id, 64 if 64 in sizes else max(sizes)) for env_id, sizes in SIZES.items())
WORKLOADS = (
    *(Workload(env_id, size) for env_id, sizes in SIZES.items() for size in sizes),
    *(Workload(LANDER, size, policy=True) for size in (10, 64)),
)
QUICK_WORKLOADS = (Workload(CARTPOLE, 64), Workload(LANDER, 8), Workload(BUSY, 8))
CREATION_WORKLOAD = Workload(LANDER, 64)
