"""What keeps an agent from playing in a window. That it does play is shown in test_windows.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from players import Player

from envfleet.train import play_in_window


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that nobody sees."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_screen")
def test_without_a_screen_a_sentence_says_so() -> None:
    with pytest.raises(OSError, match=r"there is no screen to open a window on: neither DISPLAY nor .* Make a film"):
        play_in_window(Player())


@pytest.mark.usefixtures("screen")
def test_an_environment_without_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match=r"players/Unpainted-v0 cannot be shown in a window: it offers neither"):
        play_in_window(Player("players/Unpainted-v0"))


@pytest.mark.usefixtures("screen")
def test_bad_arguments_are_refused() -> None:
    for arguments in ({"episodes": 0}, {"seed": -1}, {"max_steps": 0}):
        with pytest.raises(ValueError, match="or more"):
            play_in_window(Player(), **arguments)
    with pytest.raises(FileNotFoundError):
        play_in_window(Path("nowhere"))
