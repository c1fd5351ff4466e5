"""What web pages of envfleet are made of: scripts and styles, shipped as they are. Charts are drawn by uPlot."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def asset(name: str) -> str:
    """A file of this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")
