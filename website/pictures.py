"""Makes the pictures of docs/start.md by a real run of the commands on that page.

python website/pictures.py

A fleet with random actions, the learning curves and the film of `envfleet train LunarLander-v3`: two minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import envfleet

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH = 1000
"""Pixels: the pages have less room."""


def main() -> None:
    """See the module."""
    save(Image.fromarray(fleet()), "start-fleet.png")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "lander"
        train = ["train", "LunarLander-v3", "--seed", "0", "--run-dir", str(run)]
        subprocess.run([sys.executable, "-m", "envfleet", *train], check=True)
        save(Image.open(run / "curves.png"), "start-curves.png")
        film = envfleet.train.showcase(run, episodes=1, path=Path(folder) / "film.mp4", progress=False)
        save(Image.open(film.still), "start-still.png")
        shutil.copyfile(film.path, PICTURES / "start-film.mp4")


def fleet() -> Any:
    """Sixteen landers after some steps of random actions."""
    with envfleet.make_vec("LunarLander-v3", num_envs=16, backend="native", render_mode="rgb_array") as envs:
        envs.reset(seed=7)
        rng = np.random.default_rng(0)
        for _ in range(55):
            envs.step(rng.integers(4, size=16))
        return envfleet.mosaic(envs.render())


def save(picture: Image.Image, name: str) -> None:
    """A small PNG: no wider than a page, with the colours of a drawing."""
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    picture.convert("RGB").quantize(96, dither=Image.Dither.NONE).save(PICTURES / name, optimize=True)


if __name__ == "__main__":
    main()
