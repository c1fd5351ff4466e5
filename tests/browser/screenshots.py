"""Takes the pictures of the live page, the report and the site for the docs: `make screenshots`.

`python tests/browser/screenshots.py site` takes those of the site alone, which `make site` has built; `report` and
`watch` are the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from browsing import CHROMIUM
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SIZES = {"desktop": (1280, 900, 1), "phone": (390, 844, 1)}
TALLEST = 2600
"""Pixels: what is below is more of the same."""

SITE_PAGES = {
    ("desktop", "light"): "index.html",
    ("desktop", "dark"): "tutorials/advantages.html#what-lambda-does",
    ("phone", "light"): "start.html",
    ("phone", "dark"): "reference/configuration.html",
}

ENVFLEET = [sys.executable, "-m", "envfleet"]
FLEET = 12
LANDER = ["train", "LunarLander-v3", "--eval-episodes", "30"]


def main() -> None:
    """Photograph all, or what is asked for."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        subjects = {"site": photograph_site, "report": photograph_report, "watch": photograph_watch}
        for name in sys.argv[1:] or subjects:
            subjects[name](browser)
        browser.close()


def photograph_site(browser: Browser) -> None:
    """A page of the site in each size, light and dark: as much as a screen shows."""
    for (size, scheme), page in SITE_PAGES.items():
        address = f"{(ROOT / 'build' / 'site').as_uri()}/{page}"
        photograph_one(browser, address, "site", wait=1000, size=size, scheme=scheme, tallest=SIZES[size][1])


def photograph_report(browser: Browser) -> None:
    """Train some small runs; photograph their report."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        run(
            [*LANDER, "--algo", "a2c", "--total-steps", "4e5", "--seeds", "0", "1", "2", "--run-dir", str(runs / "a2c")]
        )
        run([*LANDER, "--algo", "ppo", "--total-steps", "3e5", "--run-dir", str(runs / "ppo")])
        run(["evaluate", str(runs / "ppo"), "--episodes", "20", "--sweep", "gravity=-11:-2:6"])
        report = Path(folder) / "report.html"
        run(["report", str(runs / "a2c"), str(runs / "ppo"), "--output", str(report)])
        photograph(browser, report.as_uri(), "report", wait=2000)


def photograph_watch(browser: Browser) -> None:
    """Train a run that is watched; photograph the live page once its whole fleet has been drawn."""
    with tempfile.TemporaryDirectory() as folder:
        watched = [*LANDER, "--algo", "ppo", "--total-steps", "2e7", "--num-envs", str(FLEET)]
        watched += ["--randomize", "lunar-lander"]
        command = [*ENVFLEET, *watched, "--run-dir", str(Path(folder) / "live"), "--watch", "--no-showcase"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = next(line.split()[-1] for line in process.stdout if "live page: " in line)
            wait_for_pictures(browser, address)
            photograph(browser, address, "watch", wait=5_000)
            process.terminate()
            process.stdout.read()


def wait_for_pictures(browser: Browser, address: str) -> None:
    """Watch until every environment of the fleet has been drawn once, two minutes at most."""
    page = browser.new_page()
    page.goto(address)
    page.locator(".tile img").nth(FLEET - 1).wait_for(timeout=120_000)
    page.close()


def run(arguments: list[str]) -> None:
    """One command of envfleet's."""
    subprocess.run([*ENVFLEET, *arguments], check=True)


def photograph(browser: Browser, address: str, name: str, wait: int) -> None:
    """A page as a whole, in both sizes, light and dark."""
    for size in SIZES:
        for scheme in ("light", "dark"):
            photograph_one(browser, address, name, wait, size, scheme)


def photograph_one(
    browser: Browser, address: str, name: str, wait: int, size: str, scheme: str, tallest: int = TALLEST
) -> None:
    """A page in one size and one scheme of colours; what is not seen without scrolling only if `tallest` allows it."""
    width, height, scale = SIZES[size]
    viewport = {"width": width, "height": height}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=scale)
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(wait)
    picture = PICTURES / f"{name}-{size}-{scheme}.jpg"
    if tallest == height:
        page.screenshot(path=picture, type="jpeg", quality=70)
    else:
        height = min(tallest, page.evaluate("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        page.screenshot(path=picture, full_page=True, clip=clip, type="jpeg", quality=70)
    context.close()


if __name__ == "__main__":
    main()
