"""gymnax: CartPole as one compiled JAX function over all environments, `rounds` steps per call, resets included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import gymnasium
import gymnax
import jax
import jax.numpy as jnp

from harness.fleet import Fleet
from harness.workloads import Workload


@final
class GymnaxFleet(Fleet):
    """`rounds` steps of all environments a call; the actions of all of them are there before."""

    def __init__(self, env_id: str, num_envs: int, rounds: int) -> None:
        space = gymnasium.make(env_id)
        super().__init__(num_envs, space.observation_space, space.action_space)
        self._rounds = rounds
        self._env, self._params = gymnax.make(env_id)
        self._run = jax.jit(self._steps)

    def _steps(self, key: Any, state: Any, actions: Any) -> Any:
        step = jax.vmap(self._env.step, in_axes=(0, 0, 0, None))

        def one(carry: Any, chosen: Any) -> Any:
            key, state = carry
            key, now = jax.random.split(key)
            observation, state, reward, *ended, _ = step(jax.random.split(now, self.width), state, chosen, self._params)
            return (key, state), (observation, reward, *ended)

        (key, state), results = jax.lax.scan(one, (key, state), actions)
        return key, state, results

    def reset(self) -> Any:
        """Reset all environments."""
        self._key = jax.random.key(0)
        keys = jax.random.split(self._key, self.width)
        observations, self._state = jax.vmap(self._env.reset, in_axes=(0, None))(keys, self._params)
        return observations

    def step(self, actions: Any) -> tuple[Any, int]:
        """Run them, and wait until the results are there."""
        self._key, self._state, results = self._run(self._key, self._state, actions)
        observations = jax.block_until_ready(results)[0]
        return observations, self.width * self._rounds

    def batch(self, actions: list[Any]) -> list[Any]:
        """Arrays [rounds, environments] on JAX's side."""
        return [jnp.stack(actions[at : at + self._rounds]) for at in range(0, len(actions), self._rounds)]

    def close(self) -> None:
        """Nothing."""


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make the functions; they are compiled by the first call."""
    return GymnaxFleet(workload.env_id, workload.num_envs, options["rounds"])
