"""Learning from pixels: catch a ball that bounces off the walls, seeing the last two pictures of it.

One picture would not tell where it is heading. Images of bytes go through a CNN by themselves.
"""

import gymnasium
import numpy as np
import tyro
from gymnasium.wrappers import FrameStackObservation

from envfleet.train import PPOConfig, evaluate, showcase, train


class Catch(gymnasium.Env):
    """A ball falls on a board of 12 x 12 fields; below, a paddle of three moves left, stays, or moves right."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        """Drop a ball."""
        super().reset(seed=seed, options=options)
        self.column, self.paddle = (int(number) for number in self.np_random.integers(1, 11, size=2))
        self.row, self.drift = 0, int(self.np_random.choice([-1, 1]))
        return self._picture(), {}

    def step(self, action):
        """The episode ends when the ball is down: reward 1 if it was caught, -1 if not."""
        self.paddle = min(max(self.paddle + int(action) - 1, 1), 10)
        self.drift *= 1 if 0 <= self.column + self.drift <= 11 else -1
        self.column, self.row = self.column + self.drift, self.row + 1
        caught, down = abs(self.column - self.paddle) <= 1, self.row == 11
        return self._picture(), down * (1.0 if caught else -1.0), down, False, {}

    def render(self):
        """The picture, enlarged, uint8[288, 288, 3]."""
        return np.repeat(self._picture().repeat(8, axis=0).repeat(8, axis=1)[..., None], 3, axis=2)

    def _picture(self):
        board = np.zeros((12, 12), np.uint8)
        board[11, self.paddle - 1 : self.paddle + 2] = 128
        board[self.row, self.column] = 255
        return board.repeat(3, axis=0).repeat(3, axis=1)


def main(total_steps: int = 50_000, episodes: int = 200) -> None:
    """Train on 16 boards at once, then count how many balls are caught."""
    gymnasium.register("Catch-v0", lambda **arguments: FrameStackObservation(Catch(**arguments), 2))
    result = train(PPOConfig("Catch-v0", num_envs=16, total_steps=total_steps, rollout_steps=64))
    score = evaluate(result.agent, episodes=episodes)
    print(f"{(1 + score.mean_return) / 2:.0%} of {episodes} balls caught")
    print(f"video: {showcase(result.run_dir, episodes=5).path}")


if __name__ == "__main__":
    tyro.cli(main)
