"""Takes the pictures of the live page and the report for the docs: `make screenshots`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from browsing import CHROMIUM
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZES = {"desktop": (1280, 900, 1), "phone": (390, 844, 1)}
TALLEST = 2600
"""Pixels: what is below is more of the same."""

ENVFLEET = [sys.executable, "-m", "envfleet"]
LANDER = ["train", "LunarLander-v3", "--eval-episodes", "30"]


def main() -> None:
    """Train two small runs and one that is watched; photograph them in both sizes, light and dark."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = Path(folder) / "runs"
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        run(
            [*LANDER, "--algo", "a2c", "--total-steps", "4e5", "--seeds", "0", "1", "2", "--run-dir", str(runs / "a2c")]
        )
        run([*LANDER, "--algo", "ppo", "--total-steps", "3e5", "--run-dir", str(runs / "ppo")])
        run(["evaluate", str(runs / "ppo"), "--episodes", "20", "--sweep", "gravity=-11:-2:6"])
        report = Path(folder) / "report.html"
        run(["report", str(runs / "a2c"), str(runs / "ppo"), "--output", str(report)])
        photograph(browser, report.as_uri(), "report", wait=2000)
        watched = [*LANDER, "--algo", "ppo", "--total-steps", "2e6", "--num-envs", "12", "--randomize", "lunar-lander"]
        command = [*ENVFLEET, *watched, "--run-dir", str(runs / "live"), "--watch", "--no-showcase"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = next(line.split()[-1] for line in process.stdout if "live page: " in line)
            photograph(browser, address, "watch", wait=30_000)
            process.terminate()
            process.stdout.read()
        browser.close()


def run(arguments: list[str]) -> None:
    """One command of envfleet's."""
    subprocess.run([*ENVFLEET, *arguments], check=True)


def photograph(browser: Browser, address: str, name: str, wait: int) -> None:
    """A page as a whole, in both sizes, light and dark."""
    for size, (width, height, scale) in SIZES.items():
        for scheme in ("light", "dark"):
            viewport = {"width": width, "height": height}
            context = browser.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=scale)
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(wait)
            picture = PICTURES / f"{name}-{size}-{scheme}.jpg"
            height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
            clip = {"x": 0, "y": 0, "width": width, "height": height}
            page.screenshot(path=picture, full_page=True, clip=clip, type="jpeg", quality=70)
            context.close()


if __name__ == "__main__":
    main()
