"""An agent plays in a window: in a process of its own, as SDL leaves threads behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import run_script

pytest.importorskip("pygame")

PLAYERS = Path(__file__).parent / "train"
SETUP = f"""
import os, sys
sys.path.insert(0, {str(PLAYERS)!r})
os.environ["SDL_VIDEODRIVER"] = "dummy"  # a screen that nobody sees
import pygame
from players import Coin, Player
from envfleet import uniform
from envfleet.train import evaluate, play_in_window
Coin.metadata = {{"render_modes": ["rgb_array"], "render_fps": 2000}}
"""


def run(code: str, folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(SETUP + code)
    status, output, errors = run_script(script, [], folder)
    assert status == 0, errors + output
    assert not errors


def test_the_episodes_of_an_evaluation_are_played_in_a_window(tmp_path: Path) -> None:
    code = """
flip, shown = pygame.display.flip, []
pygame.display.flip = lambda: (shown.append(pygame.display.get_window_size()), flip())[1]
seen = play_in_window(Player(), episodes=2, seed=4)
assert seen == evaluate(Player(), episodes=2, num_envs=2, seed=4, backend="sync"), seen
assert len(shown) >= sum(seen.lengths) and shown[0] == (60, 24), shown
assert not pygame.display.get_init()
randomize = {"long": uniform(1, 9), "short": uniform(1, 9)}
seen = play_in_window(Player(), episodes=2, randomize=randomize)
assert seen == evaluate(Player(), episodes=2, num_envs=2, randomize=randomize, backend="sync"), seen
assert play_in_window(Player("players/Endless-v0"), episodes=2, max_steps=3).cut == 2
"""
    run(code, tmp_path)


def test_a_screen_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    code = """
os.environ["SDL_VIDEODRIVER"] = "no-such-driver"
try:
    play_in_window(Player())
except OSError as error:
    said = str(error)
assert said.startswith("no window could be opened for players/Coin-v0: error: no-such-driver"), said
assert said.endswith("Make a film instead."), said
"""
    run(code, tmp_path)
