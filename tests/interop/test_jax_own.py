"""Environments written against `FunctionalEnv`: given to make_vec as classes and as made ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envfleet import make_vec, uniform
from envfleet.device import FunctionalEnv, JaxVectorEnv


class Walk(FunctionalEnv):
    """A walk on a line; it ends where it leaves it."""

    name = "Walk"
    action_space = Discrete(2)
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    time_limit = 30

    def __init__(self, length: int = 4) -> None:
        self.observation_space = Box(-length, length, (1,), np.float32)
        self.length = length
        self.values, self.defaults = {}, {"noise": 0.0}

    def reset(self, key: Any, values: Any) -> Any:
        place = jax.random.randint(key, (), -1, 2).astype(jnp.float32)
        return place, place[None], {}

    def step(self, key: Any, state: Any, action: Any, values: Any) -> Any:
        noise = values.get("noise", 0.0) * jax.random.normal(key)
        place = jnp.clip(state + 2 * action - 1 + noise, -self.length, self.length)
        return place, place[None], -jnp.abs(place), jnp.abs(place) >= self.length, False, {}


def test_a_class_and_a_made_one_are_taken_and_are_the_same() -> None:
    with make_vec(Walk, 5, length=3) as of_class, make_vec(Walk(3), 5) as made:
        assert type(of_class) is JaxVectorEnv
        assert "Walk" in of_class.plan
        np.testing.assert_array_equal(of_class.reset(seed=1)[0], made.reset(seed=1)[0])
        ends = 0
        for step in range(20):
            actions = (np.arange(5) + step // 4) % 2
            mine, theirs = of_class.step(actions), made.step(actions)
            for one, other in zip(mine[:4], theirs[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            ends += int(mine[2].sum())
        assert ends >= 3


def test_parameters_are_given_drawn_and_refused() -> None:
    with make_vec(Walk(), 4, noise=1.0) as noisy, make_vec(Walk(), 4) as still:
        noisy.reset(seed=0), still.reset(seed=0)
        assert not np.array_equal(noisy.step(np.ones(4, int))[0], still.step(np.ones(4, int))[0])
    with make_vec(Walk, 4, randomize={"noise": uniform(1, 2)}) as envs:
        envs.reset(seed=0)
        assert (envs.parameters["noise"] >= 1).all()  # type: ignore[index]
    with pytest.raises(TypeError, match="did you mean 'noise'"):
        make_vec(Walk, 4, nois=1.0)


def test_its_own_time_limit_holds() -> None:
    with make_vec(Walk(10**6), 2, max_episode_steps=5) as short, make_vec(Walk(10**6), 2) as usual:
        for envs, limit in ((short, 5), (usual, 30)):
            envs.reset(seed=0)
            ends = [envs.step(np.ones(2, int))[3].all() for _ in range(limit)]
            assert ends == [False] * (limit - 1) + [True]
