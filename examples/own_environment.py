"""A duckling in a round pond, a fox on the shore four times as fast: an environment of one's own, compiled."""

import math

import numpy as np
from gymnasium.spaces import Box, Discrete

import envfleet


@envfleet.native.compile(
    observation_space=Box(-1.1, 1.1, (4,), np.float32),
    action_space=Discrete(8),  # directions of the compass
    state=[("duck", float, 2), ("fox", float)],
    parameters={"fox_speed": 4.0},
    max_episode_steps=400,
)
class Pond:
    def reset(self, random):
        self.duck[0], self.duck[1] = random.normal(0.0, 0.1), random.normal(0.0, 0.1)
        self.fox = random.uniform(-math.pi, math.pi)

    def step(self, action, random):
        self.duck[0] += 0.02 * math.cos(action * math.pi / 4)
        self.duck[1] += 0.02 * math.sin(action * math.pi / 4)
        gap = (math.atan2(self.duck[1], self.duck[0]) - self.fox + math.pi) % (2 * math.pi) - math.pi
        reach = 0.02 * self.fox_speed
        self.fox += min(max(gap, -reach), reach)
        ashore = self.duck[0] * self.duck[0] + self.duck[1] * self.duck[1] >= 1.0
        return (0.0 if not ashore else -1.0 if abs(gap) <= reach else 1.0), ashore

    def observe(self, observation):
        observation[:2], observation[2], observation[3] = self.duck, math.cos(self.fox), math.sin(self.fox)


if __name__ == "__main__":
    with envfleet.make_vec(Pond, num_envs=1024, randomize={"fox_speed": envfleet.uniform(1.0, 4.0)}) as envs:
        envs.reset(seed=7)
        saved = sum((envs.step(envs.action_space.sample())[1] > 0).sum() for _ in range(500))
        print(f"{envs.plan} {saved} ducklings got away.")
