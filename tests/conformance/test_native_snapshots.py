"""States of native environments that come from outside: what cannot be is refused in words, and changes nothing."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_fleets import N, cart_poles, snapshots
from own_environments import SOURCES, build

from envfleet import NativeVectorEnv, make_vec, native, uniform
from envfleet.errors import EnvRaisedError
from envfleet.native import snapshots as format_of
from envfleet.native.env import EnvState
from envfleet.testing import assert_same

pytestmark = pytest.mark.usefixtures("box2d")

HEAD = 32 + 5 + 8 + 1
"""The bytes before an environment's own: the random generator, steps and whether the episode has ended."""


def _made(env_id: Any, steps: int = 5, **kwargs: Any) -> NativeVectorEnv:
    envs = make_vec(env_id, 2, "native", **kwargs)
    assert isinstance(envs, NativeVectorEnv)
    envs.action_space.seed(1)
    envs.reset(seed=1)
    for _ in range(steps):
        envs.step(envs.action_space.sample())
    return envs


def _sealed(envs: NativeVectorEnv, change: Callable[[bytearray], None]) -> EnvState:
    """A snapshot with other bytes and a checksum that fits them."""
    state = envs.get_state(0)
    changed = bytearray(format_of.unpacked(state.data, envs._identity))
    change(changed)
    return replace(state, data=format_of.packed(envs._identity, bytes(changed)))


def _assert_refused(envs: NativeVectorEnv, state: Any, match: str, kind: type[Exception] = ValueError) -> None:
    before = _told(envs)
    with pytest.raises(kind, match=match):
        envs.set_state(1, state)
    assert _told(envs) == before
    envs.step(envs.action_space.sample())


def _told(envs: NativeVectorEnv) -> list[Any]:
    """All that can be known of the environments: what is compared before and after a refusal."""
    states = snapshots(envs)
    planned = [state.episodes and state.episodes.episodes for state in states]
    shown = np.concatenate([np.ravel(part) for part in _arrays(envs._block.observations(copy=True))])
    return [[state.data for state in states], planned, shown.tobytes()]


def _arrays(observations: Any) -> tuple[Any, ...]:
    return observations if isinstance(observations, tuple) else (observations,)


# --- whose it is, and whether it is whole ----------------------------------------------------------------


@pytest.mark.parametrize("state", ["text", None, 3, b"bytes", bytearray(50), memoryview(b"x"), object(), ["list"]])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        _assert_refused(envs, state, "needs a state of CartPole", TypeError)
        if not isinstance(state, bytes):
            _assert_refused(envs, EnvState("CartPole", state), "needs a state of CartPole", TypeError)


@pytest.mark.parametrize("place", [0, 3, 20, 40, -40, -17, -16, -1])
def test_every_turned_bit_is_noticed(place: int) -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        state = envs.get_state(0)
        data = bytearray(state.data)
        data[place] ^= 4
        _assert_refused(
            envs, replace(state, data=bytes(data)), "environment 1 of CartPole: it is .*Nothing was changed"
        )


def test_bytes_that_are_missing_or_too_many_are_noticed() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        state = envs.get_state(0)
        for data in (b"", state.data[:10], state.data[:-1], state.data + b"\0", state.data[1:]):
            _assert_refused(envs, replace(state, data=data), "it is (damaged|no snapshot)")


def test_another_version_is_named() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        data = bytearray(envs.get_state(0).data)
        place = len(format_of._MAGIC)
        data[place : place + 4] = struct.pack("<I", 0)
        _assert_refused(envs, EnvState("CartPole", bytes(data)), "a snapshot of version 0, and this is version 1")


def test_a_snapshot_of_another_size_is_refused() -> None:
    with _made("FrozenLake8x8-v1") as large, _made("FrozenLake-v1") as small:
        _assert_refused(small, large.get_state(0), r"taken from FrozenLake, Discrete\(64\).* this fleet has .*\(16\)")
        _assert_refused(large, small.get_state(0), r"taken from FrozenLake, Discrete\(16\)")
    with _made("Ant-v5", 1) as whole, _made("Ant-v5", 1, include_cfrc_ext_in_observation=False) as part:
        _assert_refused(part, whole.get_state(0), r"taken from Ant, Box\(-inf, inf, \(105,\)")
    with _made("Swimmer-v5", 1) as swimmers, _made("HalfCheetah-v5", 1) as cheetahs:
        _assert_refused(cheetahs, swimmers.get_state(0), "needs a state of HalfCheetah", TypeError)


def test_a_snapshot_outlives_its_fleet_in_a_pickle() -> None:
    with _made("LunarLander-v3", 20) as envs:
        kept = pickle.dumps(envs.get_state(0))
        expected = envs.step(np.zeros(2, np.int64))
    with _made("LunarLander-v3") as others:
        others.set_state(1, pickle.loads(kept))
        assert_same(others.step(np.zeros(2, np.int64))[0][1], expected[0][0])


# --- what the environment itself says ------------------------------------------------------------------------


def _put(place: int, text: str, *values: Any) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(f"<{text}", data, HEAD + place, *values)


OWN = {
    "CartPole-v1": [
        (_put(0, "d", float("nan")), "state must hold finite"),
        (_put(32, "B", 2), "neither true nor false"),
    ],
    "Acrobot-v1": [
        (_put(8, "d", float("inf")), "state must hold finite"),
        (_put(32, "B", 255), "neither true nor false"),
    ],
    "MountainCar-v0": [(_put(0, "d", float("-inf")), "state must hold finite numbers, not -inf")],
    "MountainCarContinuous-v0": [(_put(16, "B", 9), "neither true nor false")],
    "Pendulum-v1": [(_put(16, "B", 3), "neither true"), (_put(17, "d", float("nan")), "last_u must hold finite")],
    "Blackjack-v1": [
        (_put(0, "B", 255), "no hand has so many cards"),
        (_put(0, "B", 23), "no hand has so many cards"),
        (_put(1, "B", 0), "no such card"),
        (_put(1, "B", 11), "no such card"),
    ],
    "CliffWalking-v1": [
        (_put(0, "q", 10**9), "s must lie in 0 to 47, not be 1000000000"),
        (_put(0, "q", -1), "s must lie in 0 to 47"),
        (_put(9, "q", 4), "lastaction must lie in 0 to 3"),
        (_put(17, "d", float("nan")), "prob must hold finite"),
    ],
    "FrozenLake-v1": [(_put(0, "q", 16), "s must lie in 0 to 15"), (_put(0, "q", -(2**63)), "s must lie")],
    "Taxi-v4": [(_put(0, "q", 500), "s must lie in 0 to 499"), (_put(17, "B", 7), "neither true nor false")],
    "LunarLander-v3": [
        (_put(37, "d", float("nan")), "gravity, wind_power and turbulence_power must lie"),
        (_put(45, "B", 8), "neither true nor false"),
        (_put(87, "q", 4), "an action must lie in 0 to 3"),
        (lambda data: data.extend(data[-33:] * 20_000), "no episode is kept so long"),
        (lambda data: data.extend(b"\0"), "some are missing"),
    ],
    "BipedalWalker-v3": [
        (_put(0, "Q", 0), "no world has so many nodes"),
        (_put(0, "Q", 2**60), "no world has so many nodes"),
        (_put(8, "i", -1), "each there once"),
        (_put(8, "ii", 3, 3), "each there once"),
        (lambda data: struct.pack_into("<f", data, len(data) - 4, float("nan")), "the action holds NaN"),
    ],
    "Hopper-v5": [
        (_put(0, "d", float("nan")), "time must hold finite"),
        (lambda data: data.extend(b"\0" * 8), "another model has as many numbers"),
    ],
}
OF_ALL = [
    (lambda data: struct.pack_into("<B", data, 32, 9), "neither true nor false"),
    (lambda data: struct.pack_into("<Q", data, 16, 2), "the random generator cannot be in this state"),
    (lambda data: struct.pack_into("<q", data, 37, -1), "nobody counts so many steps"),
    (lambda data: struct.pack_into("<q", data, 37, 2**63 - 1), "nobody counts so many steps"),
    (lambda data: struct.pack_into("<B", data, 45, 2), "neither true nor false"),
    (lambda data: data.__delitem__(slice(HEAD - 1, None)), "some are missing"),
    (lambda data: data.clear(), "some are missing"),
]


@pytest.mark.parametrize("env_id", OWN)
def test_a_damaged_field_is_refused_though_the_checksum_fits(env_id: str) -> None:
    with _made(env_id) as envs:
        for change, sentence in [*OF_ALL, *OWN[env_id]]:
            _assert_refused(envs, _sealed(envs, change), f"environment 1 of .*{sentence}.*Nothing was changed")


def test_a_state_of_ones_own_must_be_of_its_size(tmp_path: Path) -> None:
    with _made(native.load(build(SOURCES["Dice"], tmp_path / "dice.so")), 0) as envs:
        _assert_refused(envs, _sealed(envs, lambda data: data.extend(b"\0" * 8)), "its state has another size")


def test_planned_episodes_that_cannot_be_are_refused() -> None:
    with _made("Pendulum-v1", randomize={"g": uniform(5, 15)}, randomize_seed=1, randomize_on="reset") as envs:
        state = envs.get_state(0)
        assert state.episodes is not None
        episodes = state.episodes.episodes
        for wrong in (
            replace(state.episodes, episodes=()),
            replace(state.episodes, episodes=(None,)),
            replace(state.episodes, episodes=(episodes[0]._replace(cells=()),)),
            replace(state.episodes, episodes=(episodes[0]._replace(seed=-1),)),
            replace(state.episodes, episodes=(episodes[0], episodes[1]._replace(cells=("x",)))),
            replace(state.episodes, randomize={}),
            replace(state.episodes, stream=None),
            "none",
        ):
            _assert_refused(envs, replace(state, episodes=wrong), "environment 1 of Pendulum")
        damaged = _sealed(envs, lambda data: struct.pack_into("<B", data, 45, 2))
        before = envs.get_attr("g")
        with pytest.raises(ValueError, match="neither true"):
            envs.set_state(1, damaged)
        assert envs.get_attr("g") == before


def test_a_long_episode_of_box2d_is_not_kept_for_ever() -> None:
    one_turn, most = 33, 20_000
    with _made("LunarLander-v3", 5) as envs:
        envs.set_state(0, _sealed(envs, lambda data: data.extend(data[-one_turn:] * (most - 5))))
        assert len(envs.get_state(0).data) > most * one_turn
        envs.step(np.zeros(2, np.int64))
        with pytest.raises(RuntimeError, match="Environment 0 of LunarLander cannot be kept: its episode is longer"):
            envs.get_state(0)
        envs.reset(seed=1)
        envs.set_state(1, envs.get_state(0))


# --- attributes -------------------------------------------------------------------------------------------


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NO_NUMBERS = [None, "text", b"four", bytearray(4), {}, [None] * 4, [[1, 2, 3, 4]], ENDLESS, object(), np.zeros((2, 2))]
WRONG: dict[tuple[str, str], list[Any]] = {
    ("CliffWalking-v1", "s"): [10**9, -1, 48, 1.0, None, True, "3", 2**63, -(2**70), [1], float("nan")],
    ("CliffWalking-v1", "lastaction"): [4, -1, 1.0, True, "up"],
    ("FrozenLake-v1", "s"): [16, -1, 10**9, 2**64, 1.0, None, False, ENDLESS],
    ("Taxi-v4", "s"): [500, -1, 2**62, 3.0, None, True],
    ("Taxi-v4", "lastaction"): [6, -2],
    ("Taxi-v4", "fickle_step"): [1, None, 0.0, "yes"],
    ("Blackjack-v1", "player"): [[1, 2], [], [99] * 99, None],
    ("Blackjack-v1", "dealer"): [[1, 2]],
    ("Blackjack-v1", "dealer_top_card_suit"): ["X", "", "CD", 3, None, "\udcff"],
    ("Blackjack-v1", "dealer_top_card_value_str"): ["1", "AA"],
    ("CartPole-v1", "state"): [*NO_NUMBERS, [0.0] * 3, [0.0] * 5, [np.nan] * 4, [0, 0, np.inf, 0], 1.0, range(10**9)],
    ("Acrobot-v1", "state"): [*NO_NUMBERS, [np.nan] * 4, [0.0] * 2],
    ("MountainCar-v0", "state"): [*NO_NUMBERS, [0.0, np.nan], [0.0], [10**400, 0]],
    ("MountainCarContinuous-v0", "state"): [[np.inf, 0.0], np.zeros(3)],
    ("Pendulum-v1", "state"): [*NO_NUMBERS, [np.nan, 0.0], np.zeros((1, 2))],
    ("Pendulum-v1", "last_u"): ["x", float("nan"), True, [1.0]],
    ("LunarLander-v3", "gravity"): [float("nan"), float("inf"), 1e300, "x", None],
    ("LunarLander-v3", "_poses"): [[1.0], None],
    ("BipedalWalker-v3", "game_over"): [True],
    ("Hopper-v5", "frame_skip"): [0, -3, 1.5, None],
    ("Hopper-v5", "_healthy_reward"): ["x", None, True, [1.0], 2**53 + 1],
}


@pytest.mark.parametrize(("env_id", "name"), WRONG)
def test_what_a_state_cannot_be_is_refused_and_changes_nothing(env_id: str, name: str) -> None:
    with _made(env_id) as envs:
        before = _told(envs)
        for value in WRONG[env_id, name]:
            for indices in ([1], [0, 1]):
                with pytest.raises((EnvRaisedError, AttributeError)) as caught:
                    envs.set_attr(name, [value] * len(indices), indices=indices)
                message = str(caught.value)
                assert "std::" not in message
                assert f"Environment {indices[0]} " in message
                assert name in message
                assert f" for {name} of {envs._kind}" in message
            assert _told(envs) == before
        envs.step(envs.action_space.sample())


def test_one_that_is_refused_for_all_changes_nobody() -> None:
    with cart_poles() as envs:
        envs.reset(seed=1)
        before = _told(envs)
        with pytest.raises(EnvRaisedError, match="state must hold finite numbers, not nan"):
            envs.set_attr("state", [[0.0, 0.0, 0.0, np.nan]] * N)
        assert _told(envs) == before
