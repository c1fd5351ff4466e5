"""The table in the docs is that of the tests."""

from __future__ import annotations

from pathlib import Path

from parity import parity_table


def test_the_docs_say_what_was_compared() -> None:
    page = Path(__file__).parents[2] / "docs" / "native.md"
    assert parity_table() in page.read_text()
