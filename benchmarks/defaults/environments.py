"""Two environments such as newcomers write: a maze seen as a picture and a compass, and a grid seen as numbers."""

from __future__ import annotations

from typing import Any, TypeAlias, cast, final

import gymnasium
import numpy as np
from gymnasium import spaces

MAZE_ID, GRID_ID = "envfleet-defaults/Maze-v0", "envfleet-defaults/Grid-v0"
Cell: TypeAlias = tuple[int, int]

_MOVES: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))
_MAZE = (
    "..#...",
    ".#..#.",
    "...##.",
    ".#....",
    ".###.#",
    ".....G",
)
_PIXELS = 6
_STEP_COST = 0.02


class _Board(gymnasium.Env[Any, Any]):
    """A walker on a square board: 1 for reaching the goal, a small cost for every step."""

    action_space = spaces.Discrete(len(_MOVES))
    size: int
    walls: frozenset[Cell] = frozenset()

    def __init__(self) -> None:
        self._at: Cell = (0, 0)
        self._goal: Cell = (0, 0)

    def _walk(self, action: int) -> None:
        row, column = self._at[0] + _MOVES[action][0], self._at[1] + _MOVES[action][1]
        if 0 <= row < self.size and 0 <= column < self.size and (row, column) not in self.walls:
            self._at = (row, column)

    def _any_cell(self, *others: Cell) -> Cell:
        """A cell that is neither a wall nor one of the others."""
        every = [(row, column) for row in range(self.size) for column in range(self.size)]
        free = [cell for cell in every if cell not in self.walls and cell not in others]
        return free[int(self.np_random.integers(len(free)))]


@final
class Maze(_Board):
    """A 6 x 6 maze, always the same, from a random cell to the corner.

    Observations are a Dict: a picture of the maze, uint8[36, 36, 3], and the direction of the goal, float32[2].
    Who bumps into walls for all of the 60 steps gets -1.2, the worst there is; walking straight to the goal gives 0.87
    on average.
    """

    size = 6
    walls = frozenset(
        (row, column) for row, line in enumerate(_MAZE) for column, sign in enumerate(line) if sign == "#"
    )
    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (size * _PIXELS, size * _PIXELS, 3), np.uint8),
            "compass": spaces.Box(-1, 1, (2,), np.float32),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin in a random cell."""
        super().reset(seed=seed, options=options)
        self._goal = (self.size - 1, self.size - 1)
        self._at = self._any_cell(self._goal)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Walk one cell; the goal ends the episode."""
        self._walk(int(action))
        arrived = self._at == self._goal
        return self._observation(), float(arrived) - _STEP_COST, arrived, False, {}

    def _observation(self) -> dict[str, Any]:
        cells = np.zeros((self.size, self.size, 3), np.uint8)
        for wall in self.walls:
            cells[wall] = 90
        cells[self._goal] = (0, 255, 0)
        cells[self._at] = (255, 0, 0)
        towards = np.subtract(self._goal, self._at) / self.size
        return {
            "picture": cells.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1),
            "compass": towards.astype(np.float32),
        }


@final
class Grid(_Board):
    """A 5 x 5 grid with a goal (+1) and a pit (-1), both elsewhere in every episode; at most 50 steps.

    Observations are the cells of walker, goal and pit as six numbers, float32[6].
    """

    size = 5
    observation_space = spaces.Box(0, size - 1, (6,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        self._pit: Cell = (0, 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Place walker, goal and pit."""
        super().reset(seed=seed, options=options)
        self._at = self._any_cell()
        self._goal = self._any_cell(self._at)
        self._pit = self._any_cell(self._at, self._goal)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Walk one cell; goal and pit end the episode."""
        self._walk(int(action))
        arrived, fell = self._at == self._goal, self._at == self._pit
        return self._observation(), float(arrived) - float(fell) - _STEP_COST, arrived or fell, False, {}

    def _observation(self) -> Any:
        return np.array([*self._at, *self._goal, *self._pit], np.float32)


def register() -> None:
    """Make both known to gymnasium.make; once."""
    for env_id, entry_point, steps in ((MAZE_ID, Maze, 60), (GRID_ID, Grid, 50)):
        if env_id not in gymnasium.registry:
            # Gymnasium's type asks for a class that takes arguments.
            gymnasium.register(env_id, cast("Any", entry_point), max_episode_steps=steps)
