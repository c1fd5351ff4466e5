"""Functional environments for the tests of the device backend, and single environments of Gymnasium around them.

`Single` steps a functional environment by hand: one at a time, uncompiled, with the keys that docs/jax.md promises. It
shares nothing with the fleet, so that agreeing with it means something.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from gymnasium.spaces import Box, Dict, Discrete


class CounterParams(NamedTuple):
    """`ending`: 0 terminated, 1 truncated is not for a FuncEnv to say."""

    index: int = 0
    length: int = 3
    weight: float = 0.125


DEFAULTS = CounterParams()


class CounterFunctional(FuncEnv):
    """Observation (index, step, last action or -1, a number drawn at this step); ends after `length` steps."""

    observation_space = Box(-1, 1_000_000, (4,), np.int64)
    action_space = Discrete(10)

    def get_default_params(self, **kwargs: Any) -> CounterParams:
        return CounterParams(**kwargs)

    def initial(self, rng: Any, params: Any = None) -> Any:
        return {"step": 0, "action": -1, "first": jax.random.randint(rng, (), 0, 1000)}

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        return {**state, "step": state["step"] + 1, "action": action}

    def observation(self, state: Any, rng: Any, params: Any = DEFAULTS) -> Any:
        return jnp.stack(
            [
                jnp.asarray(v)
                for v in (params.index, state["step"], state["action"], jax.random.randint(rng, (), 0, 10**6))
            ]
        )

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = DEFAULTS) -> Any:
        return params.index + next_state["step"] * params.weight

    def terminal(self, state: Any, rng: Any, params: Any = DEFAULTS) -> Any:
        return state["step"] >= params.length + state["first"] % 3

    def state_info(self, state: Any, params: Any = DEFAULTS) -> dict[str, Any]:
        return {"first": state["first"], "both": state["first"] * 2}

    def transition_info(self, state: Any, action: Any, next_state: Any, params: Any = DEFAULTS) -> dict[str, Any]:
        return {"step": next_state["step"], "nested": {"action": action + 1}, "both": next_state["step"]}


class NestedFunctional(CounterFunctional):
    """A dict of observations of two dtypes, and actions of a Box."""

    observation_space = Dict({"place": Box(-9, 9, (2,), np.float32), "step": Discrete(100)})
    action_space = Box(-1, 1, (2,), np.float32)

    def initial(self, rng: Any, params: Any = None) -> Any:
        return {**super().initial(rng), "action": jnp.zeros(2)}

    def observation(self, state: Any, rng: Any, params: Any = DEFAULTS) -> Any:
        return {"place": state["action"] * 0.5, "step": state["step"]}

    def transition_info(self, state: Any, action: Any, next_state: Any, params: Any = DEFAULTS) -> dict[str, Any]:
        return {"action": action}


class Single(gym.Env[Any, Any]):
    """One functional environment with the keys of a fleet, stepped by hand."""

    def __init__(self, func_env: FuncEnv[Any, Any, Any, Any, Any, Any, Any], params: Any = None) -> None:
        self.func_env, self.given = func_env, {} if params is None else {"params": params}
        self.observation_space, self.action_space = func_env.observation_space, func_env.action_space
        self.key, self.episode, self.steps = jax.random.PRNGKey(0), 0, 0

    def _key(self) -> Any:
        return jax.random.fold_in(jax.random.fold_in(self.key, self.episode), self.steps)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.steps = self.episode + 1, 0
        if seed is not None:
            self.key, self.episode = jax.random.PRNGKey(seed), 0
        key, env = self._key(), self.func_env
        self.state = env.initial(key, **self.given)
        return self._shown(key), _host(env.state_info(self.state, **self.given))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        key, env, before = self._key(), self.func_env, self.state
        self.state = after = env.transition(before, action, key, **self.given)
        reward = float(env.reward(before, action, after, key, **self.given))
        info = _host(env.transition_info(before, jnp.asarray(action), after, **self.given))
        return self._shown(key), reward, bool(env.terminal(after, key, **self.given)), False, info

    def _shown(self, key: Any) -> Any:
        value = self.func_env.observation(self.state, key, **self.given)
        space = self.observation_space
        if isinstance(space, Dict):
            return {name: np.asarray(value[name], part.dtype)[()] for name, part in space.items()}
        return np.asarray(value, space.dtype)


def _host(info: Any) -> dict[str, Any]:
    """Numbers and arrays of NumPy, of the types that JAX computes with."""
    return jax.tree.map(lambda value: np.asarray(jnp.asarray(value))[()], info)  # type: ignore[no-any-return]
