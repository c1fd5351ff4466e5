"""Infos that cannot be batched, sent or shown: the environment is named, and nobody else loses anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from envfleet import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.errors import EnvRaisedError, InvalidOutputError, WorkerError
from envfleet.vector.vector_env import FleetVectorEnv

pytestmark = pytest.mark.usefixtures("stand_in_for_ray", "nothing_left_behind")

NUM_ENVS = 4
CULPRIT = 1
HARMLESS, BAD, BAD_END = 0, 1, 2


class RaisingKey:
    """Can be a key, but neither be compared nor shown."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


class Stubborn:
    """Can be neither shown nor pickled."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")

    def __reduce__(self) -> Any:
        raise SystemExit(3)


def deep_dict() -> dict[str, Any]:
    """5,000 dicts, one in the other."""
    info: dict[str, Any] = {}
    for _ in range(5000):
        info = {"inner": info}
    return info


def deep_list() -> dict[str, Any]:
    """The same of lists."""
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return {"list": value}


def endless(times: int) -> dict[str, Any]:
    """A dict that contains itself so many times."""
    info: dict[str, Any] = {"number": 1}
    info.update({f"again {time}": info for time in range(times)})
    return info


REFUSED: dict[str, Callable[[], Any]] = {
    "deep": deep_dict,
    "contains itself": partial(endless, 1),
    "contains itself often": partial(endless, 5),
    "raising key": lambda: {RaisingKey(): 1.0},
    "raising key inside": lambda: {"inner": {RaisingKey(): "text", "key": 1}},
}
UNPICKLABLE: dict[str, Callable[[], Any]] = {"stubborn": lambda: {"value": Stubborn()}, "deep list": deep_list}
INFOS = {**REFUSED, **UNPICKLABLE}


class InfoEnv(gymnasium.Env[Any, Any]):
    """Returns a bad info when it is told to, by action or option."""

    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, kind: str) -> None:
        self.kind, self.steps = kind, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return 0, INFOS[self.kind]() if options else {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.steps, 1.0, bool(action == BAD_END), False, INFOS[self.kind]() if action else {"text": "fine"}


def make(backend: str, kind: str, **kwargs: Any) -> FleetVectorEnv:
    fns = [partial(InfoEnv, kind)] * NUM_ENVS
    if backend == "sync":
        return SyncVectorEnv(fns, **kwargs)
    if backend == "ray":
        return RayVectorEnv(fns, num_workers=2, **kwargs)
    return AsyncVectorEnv(fns, context="fork", num_workers=2, **kwargs)


def only_culprit(what: int) -> Any:
    actions = np.full(NUM_ENVS, HARMLESS)
    actions[CULPRIT] = what
    return actions


def send_and_receive(envs: FleetVectorEnv) -> None:
    envs.send(only_culprit(BAD))
    envs.recv()


PLACES: dict[str, Callable[[FleetVectorEnv], Any]] = {
    "step": lambda envs: envs.step(only_culprit(BAD)),
    "reset": lambda envs: envs.reset(options=[{"bad": env} if env == CULPRIT else None for env in range(NUM_ENVS)]),
    "recv": send_and_receive,
}


def goes_on(envs: FleetVectorEnv) -> None:
    envs.reset(seed=0)
    assert envs.step(only_culprit(HARMLESS))[0].tolist() == [1] * NUM_ENVS


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("backend", ["sync", "process", "ray"])
def test_the_environment_is_named_and_the_fleet_goes_on(backend: str, kind: str) -> None:
    with make(backend, kind) as envs:
        for place in PLACES.values():
            envs.reset(seed=0)
            with pytest.raises(InvalidOutputError, match=f"Environment {CULPRIT} .* info: expected") as told:
                place(envs)
            assert told.value.env_indices == (CULPRIT,)
            goes_on(envs)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("backend", ["sync", "process"])
def test_restarts_lose_nothing_of_the_others(backend: str, kind: str) -> None:
    """Also where the info is that of an episode's end."""
    for mode, action in (("NextStep", BAD), ("SameStep", BAD_END)):
        with make(backend, kind, on_failure="restart", autoreset_mode=mode) as envs:
            envs.reset(seed=0)
            _, rewards, _, truncated, infos = envs.step(only_culprit(action))
            others = np.arange(NUM_ENVS) != CULPRIT
            assert infos["restarted"].tolist() == truncated.tolist() == (~others).tolist()
            assert rewards[others].tolist() == [1.0] * (NUM_ENVS - 1)
            assert infos["text"][others].tolist() == ["fine"] * (NUM_ENVS - 1)
            envs.step(only_culprit(HARMLESS))


@pytest.mark.parametrize("kind", UNPICKLABLE)
@pytest.mark.parametrize("backend", ["process", "ray"])
def test_what_cannot_be_sent_ends_no_worker(backend: str, kind: str) -> None:
    with make(backend, kind) as envs:
        for place in PLACES.values():
            envs.reset(seed=0)
            with pytest.raises(EnvRaisedError, match="cannot be sent to the caller's process") as told:
                place(envs)
            assert isinstance(told.value, TypeError)
            assert isinstance(told.value, WorkerError)
            assert told.value.env_indices == (CULPRIT,)
            goes_on(envs)


@pytest.mark.parametrize("key", [3, (1, 2), None, 2.5, np.int64(4)], ids=repr)
def test_other_keys_that_behave_are_fine(key: Any) -> None:
    INFOS["other"] = lambda: {key: 1.0, "text": "too"}
    with make("sync", "other") as envs:
        envs.reset(seed=0)
        infos = envs.step(only_culprit(BAD))[-1]
        assert infos[key].tolist() == [0.0, 1.0, 0.0, 0.0]
        assert infos[f"_{key}"].tolist() == [False, True, False, False]
