from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from players import Coin, Player

from envfleet import uniform
from envfleet.train import evaluate, play_in_window

pygame = pytest.importorskip("pygame")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that nobody sees."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(Coin, "metadata", {"render_modes": ["rgb_array"], "render_fps": 2000})


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("screen")
def test_the_episodes_of_an_evaluation_are_played_in_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: (shown.append(pygame.display.get_window_size()), flip())[1])
    seen = play_in_window(Player(), episodes=2, seed=4)
    assert seen == evaluate(Player(), episodes=2, num_envs=2, seed=4, backend="sync")
    assert len(shown) >= sum(seen.lengths)
    assert not pygame.display.get_init()
    randomize = {"long": uniform(1, 9), "short": uniform(1, 9)}
    assert play_in_window(Player(), episodes=2, randomize=randomize) == evaluate(
        Player(), episodes=2, num_envs=2, randomize=randomize, backend="sync"
    )


@pytest.mark.usefixtures("screen")
def test_episodes_that_were_cut_off_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play_in_window(Player("players/Endless-v0"), episodes=2, max_steps=3).cut == 2


@pytest.mark.usefixtures("no_screen")
def test_without_a_screen_a_sentence_says_so() -> None:
    with pytest.raises(OSError, match=r"there is no screen to open a window on: neither DISPLAY nor .* Make a film"):
        play_in_window(Player())


def test_a_screen_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "no-such-driver")
    with pytest.raises(OSError, match=r"no window could be opened for players/Coin-v0: error: .*no-such-driver.*film"):
        play_in_window(Player())


@pytest.mark.usefixtures("screen")
def test_an_environment_without_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match=r"players/Unpainted-v0 cannot be shown in a window: it offers neither"):
        play_in_window(Player("players/Unpainted-v0"))


@pytest.mark.usefixtures("screen")
def test_an_environments_own_errors_are_left_as_they_are() -> None:
    def policy(observations: Any) -> Any:
        raise ArithmeticError("out of ideas")

    with pytest.raises(ArithmeticError, match="out of ideas"):
        play_in_window(Player(policy=policy))
    for arguments in ({"episodes": 0}, {"seed": -1}, {"max_steps": 0}):
        with pytest.raises(ValueError, match="or more"):
            play_in_window(Player(), **arguments)
    with pytest.raises(FileNotFoundError):
        play_in_window(Path("nowhere"))
