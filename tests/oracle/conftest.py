"""Writes down what was compared, when asked to."""

from __future__ import annotations

from pathlib import Path

import pytest
import record


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parity-record", type=Path, help="where to write what the oracle tests compared, as JSON")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """After every test: a run that is stopped loses only what it has not compared yet."""
    path = item.config.getoption("--parity-record", None)
    if path is not None:
        record.write(path, record.COMPARISONS)
