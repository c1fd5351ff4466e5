"""What the tests in a browser share: Chromium and axe-core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "train"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; Playwright's own is not needed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in containers, may not have Chromium's sandbox; only our own pages are opened.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which `make browser` fetches."""
    return Path(os.environ["ENVFLEET_AXE"]).read_text(encoding="utf-8")
