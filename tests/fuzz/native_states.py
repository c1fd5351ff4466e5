"""Throws damaged snapshots and impossible attributes at every compiled environment.

    python tests/fuzz/native_states.py --seconds 60 --seed 0

What is refused must be refused with a sentence and change nothing; what is taken must leave the other environments
alone and go on stepping. Built with a sanitizer, the extension says where memory is misused on the way.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from envfleet import NativeVectorEnv, uniform
from envfleet.errors import EnvRaisedError, ResetNeeded
from envfleet.native import catalogue, snapshots
from envfleet.redraw import ParameterStream

NUM_ENVS = 3
NAMES = {
    "Acrobot": ("state", "book_or_nips", "dt", "LINK_MASS_1"),
    "Blackjack": ("player", "dealer", "dealer_top_card_suit", "dealer_top_card_value_str", "natural", "sab"),
    "BipedalWalker": ("game_over", "prev_shaping", "_poses", "_random_state_at_reset", "hardcore"),
    "CartPole": ("state", "gravity", "kinematics_integrator", "_sutton_barto_reward"),
    "CliffWalking": ("s", "lastaction", "is_slippery"),
    "FrozenLake": ("s", "lastaction", "map", "ncol", "is_slippery"),
    "LunarLander": ("game_over", "wind_idx", "_poses", "gravity", "wind_power", "enable_wind", "continuous"),
    "MountainCar": ("state", "goal_velocity", "max_speed"),
    "MountainCarContinuous": ("state", "goal_velocity", "power"),
    "Pendulum": ("state", "last_u", "g", "l"),
    "Taxi": ("s", "lastaction", "fickle_step", "fickle_passenger", "is_rainy"),
}
OF_MUJOCO = ("frame_skip", "_healthy_reward", "_ctrl_cost_weight", "_healthy_z_range", "simulation")
OF_ALL = ("np_random", "_elapsed_steps", "_max_episode_steps", "_state_words", "nothing")


def ids() -> list[str]:
    """One id of every compiled environment, and of those that differ in more than numbers."""
    found: dict[str, str] = {}
    for spec in gymnasium.registry.values():
        kind = catalogue.find(spec)
        if kind is not None and kind.is_compiled and spec.namespace is None and spec.id != "CartPole-v0":
            found.setdefault(kind.name_for(spec.kwargs), spec.id)
    return sorted(found.values())


def hostile_values(rng: np.random.Generator) -> Iterator[Any]:
    """What nobody should set; some of it is fine for some attributes."""
    endless: list[Any] = []
    endless.append(endless)
    yield from (None, True, -1, 0, 3, 47, 48, 499, 500, 10**9, -(10**9), 2**63 - 1, 2**63, -(2**80), 1.5, 1e300)
    yield from (float("nan"), float("inf"), "", "nips", "X", "\udcff", "a\0b", b"four", bytearray(4), memoryview(b"4"))
    yield from ([], [1], [[1, 2, 3, 4]], [None] * 4, ["a"] * 4, endless, {}, {"s": 1}, range(10**9), object())
    yield from (np.zeros((2, 2)), np.zeros(4, complex), np.array(3), np.int8(3), np.float32(2), np.array([1, "a"], "O"))
    yield from ([np.nan] * 4, [np.inf] * 2, [np.nan] * 2, (0.0, 1e308), [10**400], [2**63] * 4)
    size = int(rng.integers(1, 6))
    yield rng.normal(size=size)
    yield rng.integers(-3, 600)


def damaged(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with some bits turned, pieces cut out, put in, or replaced by what another environment had there."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        where = int(rng.integers(len(changed) + 1))
        length = int(rng.integers(1, 17))
        match int(rng.integers(7)):
            case 0 if where < len(changed):
                changed[where] ^= 1 << int(rng.integers(8))
            case 1:
                changed[where : where + length] = rng.bytes(length)
            case 2:
                del changed[where : where + length]
            case 3:
                changed[where:where] = rng.bytes(length)
            case 4:
                changed[where:] = other[where:]
            case 5:
                changed[where : where + 8] = np.array([rng.choice([-1, 0, 1, 23, 25, 2**31, 2**62])]).tobytes()
            case _:
                changed[where : where + 8] = np.array([rng.choice([np.nan, np.inf, -1e308, 1e308, 5e-324])]).tobytes()
    return bytes(changed)


class Fuzz:
    """One fleet under attack.

    Args:
        env_id: What to make.
        rng: Decides what is done to it.
        told: Counts what happened.
    """

    def __init__(self, env_id: str, rng: np.random.Generator, told: Counter[str]) -> None:
        self._rng, self._told = rng, told
        kwargs: dict[str, Any] = {"autoreset_mode": str(rng.choice(["NextStep", "SameStep", "Disabled"]))}
        if env_id == "Pendulum-v1" and rng.random() < 0.5:
            kwargs["origins"] = [ParameterStream({"g": uniform(5, 15)}, 1, i) for i in range(NUM_ENVS)]
        self.envs = NativeVectorEnv(env_id, NUM_ENVS, env_kwargs={"max_episode_steps": 30}, **kwargs)
        self.envs.action_space.seed(int(rng.integers(2**31)))
        self._names = (*NAMES.get(self.envs._kind.removesuffix("Continuous"), OF_MUJOCO), *OF_ALL)
        self._begin()

    def _begin(self) -> None:
        self.envs.reset(seed=int(self._rng.integers(2**31)))
        self._play(int(self._rng.integers(20)))

    def _play(self, steps: int) -> None:
        for _ in range(steps):
            try:
                *_, terminated, truncated, _ = self.envs.step(self.envs.action_space.sample())
            except (EnvRaisedError, ResetNeeded) as error:  # a state that was put back may be that of an ended episode
                self._told[f"steps that raised {type(error).__name__}"] += 1
                self.envs.reset()
                return
            finished = terminated | truncated
            if self.envs.autoreset_mode.value == "Disabled" and finished.any():
                self.envs.reset(options={"reset_mask": finished})

    def _states(self) -> list[Any]:
        return [self.envs.get_state(i).data for i in range(NUM_ENVS)]

    def attack_state(self) -> None:
        """Damages a snapshot, half of them with a checksum that fits, and puts it back."""
        source, target = (int(i) for i in self._rng.integers(NUM_ENVS, size=2))
        state, before = self.envs.get_state(source), self._states()
        if self._rng.random() < 0.3:
            data = damaged(state.data, before[target], self._rng)
        else:
            parts = [snapshots.unpacked(each, self.envs._identity) for each in (state.data, before[target])]
            data = snapshots.packed(self.envs._identity, damaged(*parts, self._rng))
        refusal = None
        try:
            self.envs.set_state(target, replace(state, data=data))
        except snapshots.SnapshotError as error:
            refusal = str(error)
        self._told["states taken" if refusal is None else "states refused"] += 1
        after = self._states()
        if refusal is not None:
            assert "Nothing was changed." in refusal
            assert after == before, f"a state that was refused changed something: {refusal}"
        del after[target], before[target]
        assert after == before, "another environment changed"

    def attack_attribute(self) -> None:
        """Sets an attribute to something."""
        name = str(self._rng.choice(self._names))
        values = list(hostile_values(self._rng))
        value = values[int(self._rng.integers(len(values)))]
        if name == "frame_skip" and isinstance(value, int) and value > 100:
            return  # it would be played
        target, before = int(self._rng.integers(NUM_ENVS)), self._states()
        refusal = None
        try:
            self.envs.set_attr(name, [value], indices=[target])
        except (EnvRaisedError, AttributeError) as error:
            refusal = str(error)
        self._told["attributes taken" if refusal is None else "attributes refused"] += 1
        if refusal is not None:
            assert "std::" not in refusal
            assert "nanobind" not in refusal
            assert self._states() == before, f"{name} was refused and changed something: {refusal}"

    def run(self, rounds: int) -> None:
        """Attacks and plays on by turns."""
        for _ in range(rounds):
            if self._rng.random() < 0.6:
                self.attack_state()
            else:
                self.attack_attribute()
            self._play(int(self._rng.integers(4)))


def fuzz(env_id: str, seed: int, rounds: int, told: Counter[str]) -> None:
    """Attacks a fleet of this environment so many times."""
    fleet = Fuzz(env_id, np.random.default_rng([seed, *env_id.encode()]), told)
    with fleet.envs:
        fleet.run(rounds)


def main() -> None:
    """Goes round all environments until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=40, help="attacks on a fleet before the next one is made")
    parser.add_argument("ids", nargs="*", help="which environments; by default all that are compiled")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # overflows in damaged numbers are what is wanted here
    told: Counter[str] = Counter()
    end, turn = time.monotonic() + given.seconds, 0
    while time.monotonic() < end:
        for env_id in given.ids or ids():
            if time.monotonic() < end:
                fuzz(env_id, given.seed + turn, given.rounds, told)
                told["fleets"] += 1
        turn += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(told.items())))


if __name__ == "__main__":
    main()
