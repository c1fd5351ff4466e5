"""Chromium, a server of the live page, and what tests ask of every page; also for the pictures of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = "/usr/bin/chromium"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
LOOKS = pytest.mark.parametrize(("size", "scheme"), [(size, look) for size in SIZES for look in ("light", "dark")])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`envfleet watch FOLDER`; yields the address with the token."""
    command = [sys.executable, "-m", "envfleet", "watch", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            process.terminate()


def opened(browser: Any, address: str, size: str = "desktop", scheme: str = "light") -> tuple[Any, list[str]]:
    """A page, and what went wrong in it or was asked of another host than ours."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if is_foreign(request.url) else None)
    page.goto(address)
    return page, problems


def is_foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "file:", "data:"))


def until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    ends = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.2)
    return found


def serious(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    return [
        f"{entry['impact']}: {entry['id']}: {entry['nodes'][0]['html'][:200]}"
        for entry in found["violations"]
        if entry["impact"] in ("serious", "critical")
    ]
