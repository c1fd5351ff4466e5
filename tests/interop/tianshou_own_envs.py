"""The environment of Tianshou's own tests, from its test/base/env.py.

MIT License, Copyright (c) 2022 Tianshou contributors. Kept as it is but for types, branches that are not used here,
and observations of the dtype that their space says.
"""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class MoveToRightEnv(gym.Env[Any, Any]):
    """A task for "going right". The task is to go right ``size`` steps."""

    def __init__(
        self,
        size: int,
        sleep: float = 0.0,
        dict_state: bool = False,
        random_sleep: bool = False,
        array_state: bool = False,
    ) -> None:
        self.size = size
        self.sleep = sleep
        self.random_sleep = random_sleep
        self.dict_state = dict_state
        self.array_state = array_state
        # how many steps this env has stepped
        self.steps = 0
        if dict_state:
            self.observation_space: Any = Dict(
                {
                    "index": Box(shape=(1,), low=0, high=size - 1),
                    "rand": Box(shape=(1,), low=0, high=1, dtype=np.float64),
                },
            )
        elif array_state:
            self.observation_space = Box(shape=(4, 84, 84), low=0, high=255)
        else:
            self.observation_space = Box(shape=(1,), low=0, high=size - 1)
        self.action_space = Discrete(2)
        self.terminated = False
        self.index = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options is None:
            options = {"state": 0}
        super().reset(seed=seed)
        self.terminated = False
        self.do_sleep()
        self.index = options["state"]
        return self._get_state(), {"key": 1, "env": self}

    def _get_reward(self) -> int:
        return int(self.terminated)

    def _get_state(self) -> Any:
        if self.dict_state:
            return {
                "index": np.array([self.index], dtype=np.float32),
                "rand": self.np_random.random(1),
            }
        if self.array_state:
            img = np.zeros([4, 84, 84], np.float32)
            img[3, np.arange(84), np.arange(84)] = self.index
            img[2, np.arange(84)] = self.index
            img[1, :, np.arange(84)] = self.index
            img[0] = self.index
            return img
        return np.array([self.index], dtype=np.float32)

    def do_sleep(self) -> None:
        if self.sleep > 0:
            sleep_time = random.random() if self.random_sleep else 1
            sleep_time *= self.sleep
            time.sleep(sleep_time)

    def step(self, action: Any) -> tuple[Any, int, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.terminated:
            raise ValueError("step after done !!!")
        self.do_sleep()
        if self.index == self.size:
            self.terminated = True
            return self._get_state(), self._get_reward(), self.terminated, False, {}

        info_dict = {"key": 1, "env": self}
        if action == 0:
            self.index = max(self.index - 1, 0)
            return self._get_state(), self._get_reward(), self.terminated, False, info_dict
        if action == 1:
            self.index += 1
            self.terminated = self.index == self.size
            return self._get_state(), self._get_reward(), self.terminated, False, info_dict
        raise ValueError(f"Invalid action {action}")
