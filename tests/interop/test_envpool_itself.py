"""The adapter beside the real EnvPool: the same calls on both, and what comes back has the same form and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import envpool as theirs
import numpy as np
import pytest

from envfleet.adapters import envpool as ours

# Gymnasium warns of bounds that EnvPool gives it in float64.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")

LIBRARIES = {"EnvPool": theirs, "envfleet": ours}
IDS = ["CartPole-v1", "Pendulum-v1", "LunarLander-v3", "HalfCheetah-v5"]
COPIES = 4


def on_both(use: Callable[[Any], Any], env_id: str, **arguments: Any) -> list[Any]:
    """What a program finds out with either library, which only the import tells apart."""
    found = []
    for library in LIBRARIES.values():
        env = library.make(env_id, env_type="gymnasium", num_envs=COPIES, **arguments)
        try:
            found.append(use(env))
        finally:
            env.close()
    return found


def form_of(results: tuple[Any, ...]) -> list[Any]:
    """Shapes and types of what `step` returns, and of the infos that all environments have."""
    *arrays, info = results
    common = {"env_id": info["env_id"], "players": info["players"]["env_id"], "elapsed_step": info["elapsed_step"]}
    return [(each.shape, str(each.dtype)) for each in [*arrays, *common.values()]]


def actions_for(env: Any, rows: int) -> Any:
    """Zeros of the form that the action space has."""
    return np.zeros((rows, *env.action_space.shape), env.action_space.dtype)


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_are_those_of_one_environment(env_id: str) -> None:
    def use(env: Any) -> Any:
        box = env.observation_space
        return box.shape, str(box.dtype), env.action_space.shape, env.config["seed"], len(env)

    first, second = on_both(use, env_id)
    assert first == second


@pytest.mark.parametrize("env_id", IDS)
def test_resets_and_steps_have_the_same_form(env_id: str) -> None:
    def use(env: Any) -> Any:
        observations, info = env.reset()
        forms = [(observations.shape, str(observations.dtype)), str(info["env_id"].dtype), info["env_id"].tolist()]
        forms.append(form_of(env.step(actions_for(env, COPIES))))
        some = np.array([3, 0], np.int32)
        results = env.step(actions_for(env, 2), some)
        return [*forms, form_of(results), results[-1]["env_id"].tolist(), results[-1]["elapsed_step"].tolist()]

    first, second = on_both(use, env_id)
    assert first == second


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_end_and_begin_in_the_same_steps(env_id: str) -> None:
    """The step after the end resets: its action is ignored and its reward is 0."""

    def use(env: Any) -> Any:
        env.reset()
        told = []
        for _ in range(9):
            _, rewards, terminated, truncated, info = env.step(actions_for(env, COPIES))
            zeros = (rewards == 0).tolist() if told and any(told[-1][1]) else None
            told.append((terminated.tolist(), truncated.tolist(), info["elapsed_step"].tolist(), zeros))
        return told

    first, second = on_both(use, env_id, max_episode_steps=3)
    assert any(any(step[1]) for step in first)
    assert first == second


def test_a_pool_gives_as_many_as_its_batch_and_each_in_its_turn() -> None:
    def use(env: Any) -> Any:
        env.async_reset()
        forms, seen = set(), set()
        for _ in range(40):
            *arrays, info = env.recv()
            seen |= {*info["env_id"].tolist()}
            forms.add(str(form_of((*arrays, info))))
            env.send(np.zeros(2, np.int32), info["env_id"])
        return forms, seen

    first, second = on_both(use, "CartPole-v1", batch_size=2)
    assert first == second
    assert first[1] == set(range(COPIES))


def test_without_a_batch_size_results_come_in_the_order_of_sending() -> None:
    def use(env: Any) -> Any:
        env.reset()
        order = np.array([2, 0, 3, 1], np.int32)
        env.send(np.zeros(COPIES, np.int32), order)
        return env.recv()[-1]["env_id"].tolist()

    assert on_both(use, "CartPole-v1") == [[2, 0, 3, 1]] * 2


def test_the_same_seed_gives_the_same_episodes_again_and_each_environment_its_own() -> None:
    def use(env: Any) -> Any:
        return env.reset()[0].tolist()

    first, again, other = (on_both(use, "CartPole-v1", seed=seed) for seed in (3, 3, 4))
    for mine, repeated, moved in zip(first, again, other, strict=True):
        assert mine == repeated
        assert len({*map(tuple, mine)}) == COPIES
        assert mine[1:] == moved[:-1]  # environment i has seed + i


def test_time_steps_have_the_same_fields() -> None:
    found = []
    for library in LIBRARIES.values():
        env = library.make_dm("CartPole-v1", num_envs=COPIES, max_episode_steps=2)
        first = env.reset()
        steps = [env.step(np.zeros(COPIES, np.int32)) for _ in range(3)]
        kinds = [[int(kind) for kind in each.step_type] for each in [first, *steps]]
        found.append((kinds, first.observation.obs.shape, str(steps[0].reward.dtype), str(steps[0].discount.dtype)))
        env.close()
    assert found[0] == found[1]
