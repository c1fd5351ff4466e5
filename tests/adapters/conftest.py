"""What the tests of adapters share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envfleet import native

sys.path.append(str(Path(__file__).parents[1] / "conformance"))


@pytest.fixture(scope="session")
def spot(tmp_path_factory: pytest.TempPathFactory) -> native.LibraryEnvironment:
    """An environment with pictures, compiled from spot.c."""
    from own_environments import build

    return native.load(build(Path(__file__).with_name("spot.c"), tmp_path_factory.mktemp("spot") / "spot.so"))
